"""Predicates that no kernel tests are tested as soon as their inputs are bound; the cost model charges for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.calibration.profiles import default_profile
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.matches import recheck_matches
from watersmeet.operators.window_join.tactics import loop_stages, w_joins
from watersmeet.operators.window_join.tactics.registry import TACTICS
from watersmeet.runtime.embedded.run import EmbeddedRun

ROWS = 200
ROOMS = "a.room = b.room AND b.room = c.room AND c.room = d.room"
CLOSE = "ABS(a.temp - b.temp) < 0.05 AND ABS(c.temp - d.temp) < 0.05"
FOUR = (
    "SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d FROM a [{0}], b [{0}], c [{0}], d [{0}] WHERE "
    + f"{ROOMS} AND {CLOSE}"
)
BAND = (
    "SELECT a.id AS a, b.id AS b, c.id AS c FROM a [{0}], b [{0}], c [{0}] "
    "WHERE a.temp > b.temp + 4 AND b.temp < c.temp AND c.temp < b.temp + 1"
)


def streams(names: str, rows: int = ROWS) -> dict[str, wm.Stream]:
    rng = np.random.default_rng(5)
    return {
        name: wm.stream(
            pa.table(
                {
                    "ts": pa.array(np.sort(rng.integers(0, rows * 1_000_000, rows)), pa.timestamp("us")),
                    "id": pa.array(np.arange(rows)),
                    "room": pa.array(rng.integers(0, 4, rows)),
                    "temp": pa.array(
                        [None if i % 50 == 7 else t for i, t in enumerate(rng.normal(20, 3, rows).tolist())]
                    ),
                }
            ),
            time="ts",
        )
        for name in names
    }


def build_plan(name: str) -> Plan:
    interval = "5 seconds" if "lazy" in name else 0
    return wm.plan(name, evaluate=interval, expire=interval)


def collect_rows(run: EmbeddedRun) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in run.collect().to_pylist())


def count_complete_matches(window: str) -> int:
    """Count the matches on rooms and windows: a plan without early tests must check all of them."""
    return int(wm.collect(FOUR.format(window).replace(f" AND {CLOSE}", ""), streams("abcd")).num_rows)


@pytest.mark.parametrize("name", TACTICS)
def test_partial_matches_that_fail_a_predicate_are_not_grown(name: str) -> None:
    window = "RANGE 60 SECONDS"
    run = wm.run(FOUR.format(window), streams("abcd"), plan=build_plan(name))
    assert collect_rows(run) == collect_rows(wm.run(FOUR.format(window), streams("abcd")))
    assert 0 < int(run.tally.tested.sum()) < count_complete_matches(window) / 4
    if name not in ("ripple-join", "xjoin"):  # they ignore windows while scanning, so they visit more rows
        assert int(run.tally.touched.sum()) < count_complete_matches(window)


@pytest.mark.parametrize("name", ["eager-nlj", "lazy-hash", "window-join", "nlw-join", "lca"])
def test_small_pieces_give_the_same_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = collect_rows(wm.run(FOUR.format("RANGE 30 SECONDS"), streams("abcd"), plan=build_plan(name)))
    monkeypatch.setattr(loop_stages, "MAX_MATCHES", 3)
    monkeypatch.setattr(w_joins, "MAX_MATCHES", 3)
    assert collect_rows(wm.run(FOUR.format("RANGE 30 SECONDS"), streams("abcd"), plan=build_plan(name))) == expected


@pytest.mark.parametrize("kind", ["list", "btree(4)", "ttree(4)"])
def test_every_stage_sees_its_indexes_as_of_the_partial_match(kind: str) -> None:
    query = FOUR.format("RANGE 20 SECONDS").replace("c.room = d.room", "c.room <= d.room")
    plan = wm.plan("window-join", indexes=dict.fromkeys("abcd", kind))
    assert collect_rows(wm.run(query, streams("abcd"), plan=plan)) == collect_rows(wm.run(query, streams("abcd")))


@pytest.mark.parametrize("name", ["nlw-join", "mw-join", "gca", "lca", "ripple-join"])
def test_w_joins_without_an_equality_compare_inside_their_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = []

    def record_piece(config, reach, found, *rest):  # type: ignore[no-untyped-def] # the real function, recorded
        pieces.append(len(found))
        return recheck_matches(config, reach, found, *rest)

    monkeypatch.setattr(w_joins, "recheck_matches", record_piece)
    monkeypatch.setattr(w_joins, "MAX_MATCHES", 256)
    query = BAND.format("RANGE 60 SECONDS")
    found = collect_rows(wm.run(query, streams("abc"), plan=wm.plan(name)))
    assert found == collect_rows(wm.run(query, streams("abc"), plan=wm.plan("eager-nlj")))
    assert sum(pieces) <= 2 * len(found)  # no product of windows is built
    assert max(pieces) <= 256


def test_a_product_of_windows_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(w_joins, "MAX_MATCHES", 256)
    run = wm.run(
        "SELECT a.id, b.id, c.id FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS]",
        streams("abc"),
        plan=wm.plan("lca"),
    )
    sizes = [batch.num_rows for some in run.batches() for batch in some]
    assert sum(sizes) > 1000
    assert max(sizes) <= 256


def test_loops_are_charged_for_every_match_they_test() -> None:
    query = FOUR.format("RANGE 120 SECONDS")
    explained = wm.explain(query, streams("abcd", 600))
    checked = 0
    for each in (explained.chosen, *explained.others):
        run = wm.run(query, streams("abcd", 600), plan=each.plan)
        run.collect()
        charged = each.cost.cpu_per_s * 600
        assert charged > 0.5 * int(run.tally.tested.sum()) * default_profile().check_s, each.plan.algorithm
        checked += 1
    assert checked > 5


def test_an_algorithm_that_cannot_run_the_query_is_refused() -> None:
    with pytest.raises(PlanError, match="common"):
        wm.collect(BAND.format("RANGE 60 SECONDS"), streams("abc"), plan=wm.plan("hw-join"))
