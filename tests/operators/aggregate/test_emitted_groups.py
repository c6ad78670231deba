"""Which groups HAVING shows, and when a shown group is emitted, on timelines small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.aggregate.estimates import run_estimates
from tests.oracle import evaluations, every_instants, table_rows
from tests.properties.generators.aggregation_cases import SavedStateParts
from tests.volume import scale_volume
from watersmeet.errors import QueryError, WatersmeetError
from watersmeet.operators.aggregate.state import compact_state
from watersmeet.operators.aggregate.step import AggregateOperator
from watersmeet.sources.declarations import bind_query

Row = tuple[Any, ...]
Timeline = Mapping[str, list[Any]]

#: The rows of a timeline are cut into batches at up to this many places.
MAX_CUTS = min(3, 1 + scale_volume(1))

MAX_OF_SEVERAL = "SELECT s.k, MAX(s.price) AS m FROM s [LANDMARK] GROUP BY s.k HAVING COUNT(*) > 1 EVERY 1 MICROSECOND"
MAX_OF_PAIRS = (
    "SELECT s.k, MAX(s.price) AS m FROM s [RANGE 2 MICROSECONDS] GROUP BY s.k HAVING COUNT(*) = 2 EVERY 1 MICROSECOND"
)
SEVERAL = (
    "SELECT s.k, COUNT(*) AS n, SUM(s.price) AS total FROM s [RANGE 2 MICROSECONDS] "
    "GROUP BY s.k HAVING {} EVERY 1 MICROSECOND"
)


def collect_emitted_rows(query: str, **timelines: Timeline) -> list[Row]:
    """Return the rows that the engine emits, `as_of` first, and check them against the oracle."""
    tables = {name: pa.table(dict(timeline)) for name, timeline in timelines.items()}
    sources = _sources(tables)
    found = _rows(wm.collect(query, sources))
    bound = bind_query(query, sources)
    if bound.query.every_us is not None:
        assert found == sorted(
            ((each.as_of_us, *each.row) for each in evaluations(bound, tables, every_instants(bound, tables))), key=str
        )
    return found


def _sources(tables: Mapping[str, pa.Table]) -> dict[str, wm.Stream | wm.Relation]:
    return {name: wm.stream(table, time="ts") for name, table in tables.items()}


def _rows(table: pa.Table) -> list[Row]:
    as_of = table.column("as_of").cast(pa.int64()).to_pylist()
    rest = table_rows(table.drop_columns(["as_of"]))
    return sorted(((at, *row) for at, row in zip(as_of, rest, strict=True)), key=str)


def test_a_group_that_starts_to_satisfy_having_is_emitted_although_no_displayed_value_changed() -> None:
    #  µs      1   2   3
    #  price   5   3   4      at 2 there are two rows, and the largest price is still 5
    assert collect_emitted_rows(MAX_OF_SEVERAL, s={"ts": [1, 2, 3], "k": ["x"] * 3, "price": [5, 3, 4]}) == [
        (2, "x", 5)
    ]


def test_a_group_that_stops_satisfying_having_emits_nothing() -> None:
    #  µs      1   2   3          at 3 three rows: HAVING is false
    query = "SELECT s.k, MAX(s.price) AS m FROM s [LANDMARK] GROUP BY s.k HAVING COUNT(*) = 2 EVERY 1 MICROSECOND"
    assert collect_emitted_rows(query, s={"ts": [1, 2, 3, 4], "k": ["x"] * 4, "price": [5, 3, 9, 9]}) == [(2, "x", 5)]


def test_a_group_that_satisfies_having_again_is_emitted_with_the_same_row_again() -> None:
    #  µs      1   2   3   4   5
    #  price   5       5   5   5      [RANGE 2]: two rows at 3 and 4, three at 5, two at 6
    found = collect_emitted_rows(MAX_OF_PAIRS, s={"ts": [1, 3, 4, 5, 9], "k": ["x"] * 5, "price": [5] * 5})
    assert found == [(3, "x", 5), (6, "x", 5)]


def test_a_shown_group_is_emitted_only_when_its_row_changes() -> None:
    found = collect_emitted_rows(MAX_OF_SEVERAL, s={"ts": [1, 2, 3, 4, 5], "k": ["x"] * 5, "price": [5, 3, 5, 6, 6]})
    assert found == [(2, "x", 5), (4, "x", 6)]


def test_instants_at_which_nothing_changes_keep_a_group_shown() -> None:
    #  two rows at 1 and 2; from 3 to 999 nothing happens; the third row at 1000 changes no displayed value
    assert collect_emitted_rows(MAX_OF_SEVERAL, s={"ts": [1, 2, 1000], "k": ["x"] * 3, "price": [5, 3, 4]}) == [
        (2, "x", 5)
    ]


@pytest.mark.parametrize("having", ["COUNT(*) > 0", "SUM(s.price) IS NOT NULL", "SUM(s.price) > 0"])
def test_a_shown_group_that_empties_is_emitted_once_more_although_having_is_false_of_the_empty_row(having: str) -> None:
    found = collect_emitted_rows(SEVERAL.format(having), s={"ts": [1, 9], "k": ["x", "y"], "price": [5, 7]})
    assert found == [(1, "x", 1, 5), (4, "x", 0, None), (9, "y", 1, 7)]


def test_a_shown_group_that_empties_is_emitted_once_more_where_having_is_true_of_the_empty_row() -> None:
    found = collect_emitted_rows(SEVERAL.format("COUNT(*) < 2"), s={"ts": [1, 9], "k": ["x", "y"], "price": [5, 7]})
    assert found == [(1, "x", 1, 5), (4, "x", 0, None), (9, "y", 1, 7)]


@pytest.mark.parametrize("having", ["COUNT(*) <> 1", "SUM(s.price) IS NULL"])
def test_an_empty_group_that_was_not_shown_emits_nothing_although_having_is_true_of_the_empty_row(having: str) -> None:
    assert collect_emitted_rows(SEVERAL.format(having), s={"ts": [1, 9], "k": ["x", "y"], "price": [5, 7]}) == []


def test_a_group_that_stopped_satisfying_having_before_it_emptied_emits_nothing_more() -> None:
    #  µs   1   2   3   4   5
    #  x    x   x             two rows at 2, one at 4 (not shown), none at 5
    query = SEVERAL.format("COUNT(*) > 1")
    assert collect_emitted_rows(query, s={"ts": [1, 2, 9], "k": ["x", "x", "y"], "price": [5, 5, 5]}) == [
        (2, "x", 2, 10)
    ]


def test_a_query_without_group_by_has_one_group_that_having_shows_or_not() -> None:
    query = "SELECT MAX(s.price) AS m FROM s [RANGE 3 MICROSECONDS] HAVING COUNT(*) > 1 EVERY 1 MICROSECOND"
    #  µs      1   2        9      at 2 two rows, at 5 one, at 6 none
    assert collect_emitted_rows(query, s={"ts": [1, 2, 9], "price": [5, 3, 4]}) == [(2, 5)]
    #  both rows leave at once: the group was shown and is empty
    assert collect_emitted_rows(query, s={"ts": [2, 2, 9], "price": [5, 3, 4]}) == [(2, 5), (6, None)]


def test_evaluation_after_every_row_shows_a_group_that_starts_to_satisfy_having() -> None:
    query = "SELECT s.k, MAX(s.price) AS m FROM s [LANDMARK] GROUP BY s.k HAVING COUNT(*) > 1"
    table = pa.table({"ts": [1, 2, 3], "k": ["x"] * 3, "price": [5, 3, 4]})
    assert _rows(wm.collect(query, _sources({"s": table}), evaluate="row")) == [(2, "x", 5)]


def test_without_every_each_batch_shows_the_groups_that_satisfy_having_at_its_watermark() -> None:
    #  ms        1   2   3   4      a batch each; the watermark is the newest time
    query = "SELECT s.k, MAX(s.price) AS m FROM s [LANDMARK] GROUP BY s.k HAVING COUNT(*) > 1"
    batches = [
        pa.table({"ts": [1_000 * at], "k": ["x"], "price": [price]}) for at, price in [(1, 5), (2, 3), (3, 4), (4, 6)]
    ]
    run = wm.run(query, {"s": wm.stream(batches, time="ts")})
    assert _rows(run.collect()) == [(2_000, "x", 5), (4_000, "x", 6)]


def test_an_output_that_fails_counts_only_where_its_group_is_shown() -> None:
    query = "SELECT s.k, MAX(s.price) + 1 AS n FROM s [LANDMARK] GROUP BY s.k HAVING COUNT(*) > 1 EVERY 1 MICROSECOND"
    largest = 2**63 - 1
    assert collect_emitted_rows(query, s={"ts": [1, 2, 3], "k": ["x", "y", "y"], "price": [largest, 7, 8]}) == [
        (3, "y", 9)
    ]
    with pytest.raises(WatersmeetError, match="overflow"):
        wm.collect(query, _sources({"s": pa.table({"ts": [1, 2], "k": ["x", "x"], "price": [largest, 7]})}))


def test_a_sum_that_overflows_is_an_error_although_having_hides_its_group() -> None:
    query = "SELECT s.k, SUM(s.price) AS total FROM s [LANDMARK] GROUP BY s.k HAVING COUNT(*) > 9 EVERY 1 MICROSECOND"
    with pytest.raises(QueryError, match="overflow in the sum"):
        wm.collect(query, _sources({"s": pa.table({"ts": [1, 1], "k": ["x", "x"], "price": [2**62, 2**62]})}))


def test_the_batches_and_a_restart_between_them_change_nothing() -> None:
    #  milliseconds, because watermarks are rounded down to them
    times = [1_000 * at for at in (1, 2, 3, 5, 6, 7, 9, 20, 21)]
    table = pa.table(
        {"ts": times, "k": ["x", "y", "x", "x", "y", "y", "x", "y", "x"], "price": [5, 1, 3, 5, 1, 1, 5, 2, 2]}
    )
    query = """SELECT s.k, MAX(s.price) AS m FROM s [RANGE 4 MILLISECONDS]
               GROUP BY s.k HAVING COUNT(*) = 2 OR SUM(s.price) > 12 EVERY 1 MILLISECOND"""
    whole = _rows(wm.collect(query, _sources({"s": table})))
    assert whole
    for cuts in (cut for size in range(1, MAX_CUTS + 1) for cut in combinations(range(1, len(times)), size)):
        for restart in ("no restart", "bytes", "parts", "compacted"):
            assert _rows(_in_batches(query, table, cuts, restart)) == whole, (cuts, restart)


def _in_batches(query: str, table: pa.Table, cuts: tuple[int, ...], restart: str) -> pa.Table:
    batches = [
        table.slice(start, stop - start) for start, stop in zip((0, *cuts), (*cuts, table.num_rows), strict=True)
    ]
    run = wm.run(query, {"s": wm.stream(batches, time="ts")}, plan=wm.plan())
    assert isinstance(run.operator, AggregateOperator)
    kept = SavedStateParts()
    found: list[pa.RecordBatch] = []
    for rows in batches:
        found += run.advance({"s": rows})
        kept.save(run.state)
        if restart == "bytes":
            run.restore_state(run.save_state())
        elif restart == "parts":
            run.state = kept.restore(run.operator.config)
        elif restart == "compacted":
            run.state = compact_state(run.operator.config, run.state)
    return pa.Table.from_batches([*found, *run.finish()], run.result)


def test_a_shedding_aggregation_shows_the_same_groups_when_nothing_is_shed() -> None:
    for query, timeline in _timelines():
        sources = _sources({"s": pa.table(timeline)})
        estimated = run_estimates(bind_query(query, sources), sources).collect()
        bare = estimated.select([name for name in estimated.column_names if not name.endswith(("_stderr", "_bound"))])
        assert [str(row) for row in _rows(bare)] == [str(row) for row in _rows(wm.collect(query, sources))], query


def _timelines() -> Iterator[tuple[str, dict[str, list[Any]]]]:
    rows: dict[str, list[Any]] = {
        "ts": [1, 2, 3, 5, 9, 10],
        "k": ["x", "x", "y", "x", "y", "y"],
        "price": [5, 3, 4, 3, 3, 3],
    }
    for having in ("COUNT(*) > 1", "COUNT(*) <> 1", "MIN(s.price) = 3", "COUNT(*) < 2 OR MAX(s.price) IS NULL"):
        for window in ("LANDMARK", "RANGE 2 MICROSECONDS"):
            yield (
                f"SELECT s.k, MAX(s.price) AS m FROM s [{window}] GROUP BY s.k HAVING {having} EVERY 1 MICROSECOND",
                rows,
            )
            yield f"SELECT MAX(s.price) AS m FROM s [{window}] HAVING {having} EVERY 1 MICROSECOND", rows
