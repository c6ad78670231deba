"""Aggregation over windows of length 0: a row is valid at its own time and at no other instant."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.aggregate.estimates import run_estimates
from tests.operators.aggregate.test_emitted_groups import collect_emitted_rows
from tests.operators.aggregate.test_shed_aggregation import round_rows, streams_of, tables_of
from watersmeet.sources.declarations import bind_query

COUNTS = "SELECT s.k, COUNT(*) AS n, SUM(s.x) AS total FROM s [RANGE 0 SECONDS] GROUP BY s.k EVERY {} MICROSECONDS"


def _rows(*rows: tuple[int, str, int]) -> dict[str, list[Any]]:
    times, keys, values = zip(*rows, strict=True)
    return {"ts": list(times), "k": list(keys), "x": list(values)}


def test_a_group_is_emitted_at_the_time_of_its_rows_and_once_more_when_it_is_empty() -> None:
    #  µs   1    2        4
    #  p    3    5+6
    #  q                  7
    found = collect_emitted_rows(COUNTS.format(1), s=_rows((1, "p", 3), (2, "p", 5), (2, "p", 6), (4, "q", 7)))
    assert found == [(1, "p", 1, 3), (2, "p", 2, 11), (3, "p", 0, None), (4, "q", 1, 7)]


def test_rows_between_two_evaluation_instants_are_never_seen() -> None:
    #  EVERY 10: 10 and 20 are seen, 5, 11 and 19 are not
    found = collect_emitted_rows(
        COUNTS.format(10), s=_rows((5, "p", 1), (10, "p", 2), (11, "p", 3), (19, "p", 4), (20, "q", 5))
    )
    assert found == [(10, "p", 1, 2), (20, "p", 0, None), (20, "q", 1, 5)]


def test_joined_rows_count_at_their_common_instant() -> None:
    #  µs               1    2    3
    #  a [RANGE 0]      1         1
    #  b [RANGE 1]      1                  seen by a at 1; expired at 3
    query = "SELECT COUNT(*) AS n FROM a [RANGE 0 SECONDS], b [RANGE 1 MICROSECOND] WHERE a.k = b.k EVERY 1 MICROSECOND"
    assert collect_emitted_rows(query, a={"ts": [1, 3], "k": [1, 1]}, b={"ts": [1], "k": [1]}) == [(1, 1), (2, 0)]


def test_without_every_a_batch_counts_the_rows_at_the_watermark() -> None:
    batches = [pa.table({"ts": pa.array(times, pa.timestamp("ms"))}) for times in ([1, 2], [2, 2, 3], [7])]
    query = "SELECT COUNT(*) AS n FROM s [RANGE 0 SECONDS]"
    found = wm.collect(query, {"s": wm.stream(batches, time="ts")}).to_pylist()
    #  one row at watermark 2, one at 3 and one at the end (7): the count never changes, so it is emitted once
    assert [row["n"] for row in found] == [1]


@pytest.mark.parametrize("every", ["", "EVERY 10 MICROSECONDS"])
@pytest.mark.parametrize("window", ["RANGE 0 SECONDS", "RANGE 25 MICROSECONDS", "TUMBLE 30 MICROSECONDS"])
def test_with_nothing_shed_the_estimates_are_the_exact_aggregates(window: str, every: str) -> None:
    query = f"""
        SELECT a.g AS g, COUNT(*) AS n, SUM(a.x) AS total, MIN(b.y) AS low
        FROM a [RANGE 0 SECONDS], b [{window}] WHERE a.k = b.k GROUP BY a.g {every}
    """
    shown = 0
    for seed in range(10):
        tables = tables_of(Random(seed), 60, 30, 3)
        exact = wm.collect(query, streams_of(Random(seed), tables)).to_pylist()
        sources = streams_of(Random(seed), tables)
        estimated = run_estimates(bind_query(query, sources), sources).collect().to_pylist()
        assert round_rows(estimated) == round_rows(exact), f"seed {seed}"
        shown += len(exact)
    assert shown
