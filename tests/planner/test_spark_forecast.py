"""Forecasts of micro-batches: they follow the trigger interval, the cores, the rows and the size of rows."""

from __future__ import annotations

import pytest

import watersmeet as wm
from watersmeet.planner.explain import Explanation

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


def _explain(trigger: str | None = "10 seconds", *, rate: float = 10_000, row_bytes: int = 24) -> Explanation:
    stats = {name: wm.stats(rate=rate, distinct={"k": 10 * rate}, row_bytes=row_bytes) for name in "ab"}
    return wm.explain(QUERY, stats, engine="spark", trigger=trigger)


def _micro_batch_s(about: Explanation) -> float:
    assert about.micro_batch_s is not None
    return about.micro_batch_s


def _find_sustained_rate(about: Explanation) -> float:
    assert about.sustained_rows_per_s is not None
    return about.sustained_rows_per_s


def test_the_parts_of_a_micro_batch_add_up_to_its_time() -> None:
    about = _explain()
    assert about.micro_batch is not None
    assert [part.name for part in about.micro_batch.parts] == [
        "driver", "scan and pack", "shuffle", "state", "join", "emit",
    ]  # fmt: skip
    assert sum(part.wall_s for part in about.micro_batch.parts) == pytest.approx(_micro_batch_s(about))
    assert about.micro_batch.rows_in == 200_000


def test_a_longer_interval_has_longer_batches_and_sustains_a_higher_rate() -> None:
    short, long = _explain("2 seconds"), _explain("20 seconds")
    assert _micro_batch_s(short) < _micro_batch_s(long)
    assert _find_sustained_rate(short) < _find_sustained_rate(long)


def test_a_stream_at_the_sustained_rate_fills_the_interval() -> None:
    # The matches of a row stay the same: the number of distinct keys grows with the rate.
    sustained = _find_sustained_rate(_explain())
    assert _micro_batch_s(_explain(rate=sustained / 2)) == pytest.approx(10, rel=0.1)


def test_the_shortest_interval_that_keeps_up_is_as_long_as_its_own_batch() -> None:
    about = _explain()
    assert about.micro_batch is not None
    shortest_s = about.micro_batch.shortest_trigger_s
    assert shortest_s is not None
    assert _micro_batch_s(_explain(f"{round(shortest_s * 1e6)} microseconds")) == pytest.approx(shortest_s, rel=0.1)


def test_wide_rows_take_longer_and_need_more_memory() -> None:
    narrow, wide = _explain(row_bytes=24), _explain(row_bytes=240)
    assert narrow.micro_batch is not None
    assert wide.micro_batch is not None
    assert _micro_batch_s(narrow) < _micro_batch_s(wide)
    assert narrow.micro_batch.worker_bytes < wide.micro_batch.worker_bytes


def test_the_forecast_is_in_the_text_and_in_the_plain_values() -> None:
    about = _explain()
    facts = about.to_dict()
    assert facts["micro_batch_s"] == about.micro_batch_s
    assert facts["sustained_rows_per_s"] == about.sustained_rows_per_s
    assert facts["micro_batch"]["shuffled_rows"] == 200_000
    assert "micro-batch every 10 s" in str(about)
    assert "the shortest trigger interval that keeps up is" in str(about)


def test_a_rate_that_no_interval_keeps_up_with_is_named() -> None:
    about = _explain(rate=1e8)
    assert about.micro_batch is not None
    assert about.micro_batch.shortest_trigger_s is None
    assert "no trigger interval keeps up" in str(about)


def test_the_embedded_engine_has_no_micro_batches() -> None:
    stats = {name: wm.stats(rate=10) for name in "ab"}
    assert wm.explain(QUERY, stats).micro_batch_s is None
    with pytest.raises(wm.WatersmeetError, match="trigger interval is the time between two micro-batches"):
        wm.explain(QUERY, stats, trigger="10 seconds")
