"""Probes and windows divided between two streams: real joins put out what the formulas say, and rank the strategies as they do."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import PlanError
from watersmeet.runtime.allocation import Shares, collect_allocated
from watersmeet.workloads.kang_limited import Bar, bars

QUERY = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 30 MICROSECONDS], b [RANGE 50 MICROSECONDS] WHERE a.k = b.k"


@pytest.fixture(scope="module")
def measured() -> list[Bar]:
    return list(bars(seconds=200))


@pytest.mark.parametrize("figure", [5, 6, 7])
def test_the_measured_output_of_each_strategy_ranks_as_predicted(measured: list[Bar], figure: int) -> None:
    shown = [bar for bar in measured if bar.figure == figure]
    for one in shown:
        for other in shown:
            if one.predicted_per_s > other.predicted_per_s:
                assert one.measured_per_s > other.measured_per_s
    assert [bar.measured_per_s for bar in shown] == pytest.approx([bar.predicted_per_s for bar in shown], rel=0.05)


def _streams(seed: int) -> dict[str, wm.Stream | wm.Relation]:
    rng = Random(seed)
    tables = {
        name: pa.table({"ts": [rng.randrange(500) for _ in range(rows)], "k": [rng.randrange(5) for _ in range(rows)]})
        for name, rows in (("a", 120), ("b", 80))
    }
    return {name: wm.stream(table, time="ts") for name, table in tables.items()}


def _pairs(table: pa.Table) -> Counter[tuple[int, int]]:
    return Counter(zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_equal_shares_for_probing_and_holding_are_the_plain_join_over_the_kept_rows(seed: int) -> None:
    streams = _streams(seed)
    whole = collect_allocated(wm.sql(QUERY), streams, {})
    assert _pairs(whole) == _pairs(wm.collect(QUERY, streams))
    thin = collect_allocated(wm.sql(QUERY), streams, {"a": Shares(0.6, 0.6), "b": Shares(0.3, 0.3)}, seed=seed)
    assert _pairs(thin) == _pairs(wm.collect(QUERY, streams, plan=wm.plan(drop={"a": 0.4, "b": 0.7}, drop_seed=seed)))


def test_a_stream_that_only_probes_is_the_later_row_of_every_pair() -> None:
    table = collect_allocated(wm.sql(QUERY), _streams(1), {"a": Shares(probe=1, window=0), "b": Shares(probe=0, window=1)})
    assert table.num_rows
    assert all(x >= y for x, y in _pairs(table))


def test_the_best_division_is_found_from_what_the_streams_bring() -> None:
    table = wm.allocate(QUERY, _streams(2), service_per_s=50_000)
    shares = json.loads(table.schema.metadata[b"watersmeet"])["allocation"]["shares"]
    assert shares["a"]["window"] == shares["b"]["window"] == 1
    assert min(shares["a"]["probe"], shares["b"]["probe"]) == 0, "all probes go from the smaller window into the larger"
    least = wm.allocate(QUERY, _streams(2), service_per_s=50_000, least_per_s=(10_000, 10_000))
    wanted = json.loads(least.schema.metadata[b"watersmeet"])["allocation"]["shares"]
    assert all(each["probe"] > 0 for each in wanted.values())


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(PlanError, match="RANGE window"):
        wm.allocate("SELECT a.ts AS x, b.ts AS y FROM a [ROWS 5], b [RANGE 5 SECONDS] WHERE a.k = b.k", _streams(1), memory_rows=10)
    with pytest.raises(PlanError, match="two different streams"):
        wm.allocate("SELECT x.k FROM a [RANGE 5 SECONDS] AS x, a [RANGE 5 SECONDS] AS y WHERE x.k = y.k", _streams(1), memory_rows=10)
    with pytest.raises(PlanError, match='no strategy "MaxC"'):
        wm.allocate(QUERY, _streams(1), probes="MaxC", service_per_s=10)
