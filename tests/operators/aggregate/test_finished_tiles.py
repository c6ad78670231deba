"""TUMBLE with EVERY: an instant at the end of a tile shows the whole tile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.aggregate.estimates import run_estimates
from tests.oracle import evaluations, every_instants, table_rows
from tests.properties.generators.aggregation_cases import SavedStateParts
from watersmeet.operators.aggregate.state import compact_state
from watersmeet.operators.aggregate.step import AggregateOperator
from watersmeet.sources.declarations import bind_query

Row = tuple[Any, ...]
Timeline = Mapping[str, list[Any]] | list[int]

COUNT_OF_TEN = "SELECT COUNT(*) AS n FROM a [TUMBLE 10 MICROSECONDS] EVERY {} MICROSECONDS"
PAIRS = "SELECT COUNT(*) AS n FROM a [{}], b [{}] {} EVERY {} MICROSECONDS"


def collect_rows(query: str, **timelines: Timeline) -> list[Row]:
    """Return the rows that every placement of early aggregation and a shedding run emit, `as_of` first.

    The oracle emits the same rows.
    """
    tables = {name: table_of(timeline) for name, timeline in timelines.items()}
    sources = sources_of(tables)
    bound = bind_query(query, sources)
    wanted = in_order((each.as_of_us, *each.row) for each in evaluations(bound, tables, every_instants(bound, tables)))
    early = (
        [()]
        if bound.query.pairs
        else [names for size in range(len(tables) + 1) for names in combinations(tables, size)]
    )
    for names in early:
        assert rows_of(wm.collect(query, sources, plan=wm.plan(early=names))) == wanted, names
    if "ROWS" not in query:
        estimated = run_estimates(bound, sources).collect()
        bare = estimated.select([name for name in estimated.column_names if not name.endswith(("_stderr", "_bound"))])
        assert [(at, *map(int, row)) for at, *row in rows_of(bare)] == wanted, "shedding"
    return wanted


def table_of(timeline: Timeline) -> pa.Table:
    return pa.table({"ts": pa.array(timeline, pa.int64())} if isinstance(timeline, list) else dict(timeline))


def sources_of(tables: Mapping[str, pa.Table]) -> dict[str, wm.Stream | wm.Relation]:
    return {name: wm.stream(table, time="ts") for name, table in tables.items()}


def rows_of(table: pa.Table) -> list[Row]:
    as_of = table.column("as_of").cast(pa.int64()).to_pylist()
    rest = table_rows(table.drop_columns(["as_of"]))
    return in_order((at, *row) for at, row in zip(as_of, rest, strict=True))


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], str(row)))


def test_a_tile_is_shown_complete_at_its_end_and_empty_at_the_end_of_the_next() -> None:
    #  µs     0  3     10  12    20     30      35   40
    #  a      x  x         x                    x
    #  tile  [---------)[---------)[----)[----------)
    assert collect_rows(COUNT_OF_TEN.format(10), a=[0, 3, 12, 35]) == [(10, 2), (20, 1), (30, 0), (40, 1)]


def test_a_row_at_the_edge_belongs_to_the_tile_it_starts() -> None:
    #  at 10 the tile before is shown without the row at 10; at 20 the row at 10 without the row at 20
    assert collect_rows(COUNT_OF_TEN.format(10), a=[9, 10, 10, 20]) == [(10, 1), (20, 2), (30, 1)]
    #  every 5: at 10 still the tile before, at 15 the new one
    assert collect_rows(COUNT_OF_TEN.format(5), a=[9, 10, 10, 20]) == [(10, 1), (15, 2), (25, 1)]
    #  every microsecond: the row at the start of a tile appears one microsecond later, and stays until the end of the
    # tile
    assert collect_rows(COUNT_OF_TEN.format(1), a=[10]) == [(11, 1)]
    assert collect_rows(COUNT_OF_TEN.format(1), a=[10, 25]) == [(11, 1), (21, 0), (25, 1)]


def test_an_instant_inside_a_tile_shows_its_rows_so_far() -> None:
    #  µs   1   4   9        instants at 3, 6, 9, then 12 in the next tile
    assert collect_rows(COUNT_OF_TEN.format(3), a=[1, 4, 9, 13]) == [(3, 1), (6, 2), (9, 3), (12, 0), (15, 1)]


def test_an_interval_that_does_not_divide_the_tile_sees_it_at_its_own_instants() -> None:
    #  instants at 7, 14, 21, 28: only 70 is also the end of a tile
    assert collect_rows(COUNT_OF_TEN.format(7), a=[0, 8, 12, 60, 69]) == [(7, 1), (21, 0), (63, 1), (70, 2)]


def test_an_interval_longer_than_the_tile_skips_tiles() -> None:
    assert collect_rows(COUNT_OF_TEN.format(20), a=[0, 5, 11, 12, 13]) == [(20, 3)]


def test_tiles_before_the_epoch() -> None:
    #  µs   -20  -15  -10  -1  0      tiles [-20, -10), [-10, 0), [0, 10)
    assert collect_rows(COUNT_OF_TEN.format(10), a=[-20, -15, -14, -10, -1, 0]) == [(-10, 3), (0, 2), (10, 1)]


def test_a_tile_of_one_microsecond() -> None:
    assert collect_rows("SELECT COUNT(*) AS n FROM a [TUMBLE 1 MICROSECOND] EVERY 1 MICROSECOND", a=[5, 5, 6]) == [
        (6, 2),
        (7, 1),
    ]


def test_the_pairs_of_a_tile_are_counted_at_its_end() -> None:
    tumble = "TUMBLE 10 MICROSECONDS"
    #  tile [0, 10): 2 rows of a, 1 of b; tile [10, 20): 1 and 2
    assert collect_rows(PAIRS.format(tumble, tumble, "", 10), a=[0, 9, 10], b=[5, 10, 19]) == [(10, 2)]
    assert collect_rows(PAIRS.format(tumble, tumble, "", 10), a=[0, 9, 10], b=[5, 10, 19, 19]) == [(10, 2), (20, 3)]


def test_tiles_joined_with_other_windows() -> None:
    tumble = "TUMBLE 10 MICROSECONDS"
    #  at 10 the row of a at 3 is still there, and so is the row of b at 10 itself; at 20, the end of its tile, the row
    # of a has expired
    assert collect_rows(PAIRS.format(tumble, "LANDMARK", "", 10), a=[3], b=[10]) == [(10, 1), (20, 0)]
    assert collect_rows(PAIRS.format(tumble, "ROWS 1", "", 10), a=[3], b=[10]) == [(10, 1), (20, 0)]
    assert collect_rows(PAIRS.format(tumble, "RANGE 5 MICROSECONDS", "", 10), a=[3, 8], b=[4, 10]) == [(10, 2), (20, 0)]
    #  the row of a at 10 is not there at 10 yet
    assert collect_rows(PAIRS.format(tumble, "RANGE 5 MICROSECONDS", "", 10), a=[10], b=[10]) == []
    assert collect_rows(PAIRS.format(tumble, "RANGE 5 MICROSECONDS", "", 5), a=[10], b=[10]) == [(15, 1), (20, 0)]


def test_tiles_of_different_lengths() -> None:
    #  at 10 the first tile of a and 10 µs of the tile of b; at 20 both tiles end
    query = PAIRS.format("TUMBLE 10 MICROSECONDS", "TUMBLE 20 MICROSECONDS", "", 10)
    assert collect_rows(query, a=[1, 10, 19], b=[0, 2, 19]) == [(10, 2), (20, 6)]
    #  at 30 (a's third tile ends) the row of b at 20 is in; the end of the input is the end of the longer tile
    assert collect_rows(query, a=[20, 29], b=[20, 20]) == [(30, 4), (40, 0)]


def test_pair_constraints_compare_the_rows_own_times() -> None:
    #  the rows at 10 and 12 are 2 apart, although the first appears at 11
    tumble, near = "TUMBLE 10 MICROSECONDS", "WINDOW (a, b) = 1 MICROSECOND"
    assert collect_rows(PAIRS.format(tumble, tumble, near, 10), a=[10], b=[12]) == []
    assert collect_rows(PAIRS.format(tumble, tumble, near, 10), a=[10], b=[11]) == [(20, 1)]
    assert collect_rows(PAIRS.format(tumble, "LANDMARK", near, 10), a=[9], b=[10]) == [(10, 1), (20, 0)]


def test_the_end_of_the_input_ends_the_tile_of_the_largest_time_of_any_stream() -> None:
    #  µs   3   25      the tile of 25 ends at 30; rows of a RANGE window expire on the way
    query = PAIRS.format("TUMBLE 10 MICROSECONDS", "RANGE 3 MICROSECONDS", "", 5)
    assert collect_rows(query, a=[3, 24], b=[2, 25]) == [(5, 1), (10, 0), (25, 1), (30, 0)]
    #  with a LANDMARK window alone the last instant is the largest time
    assert collect_rows("SELECT COUNT(*) AS n FROM a [LANDMARK] EVERY 10 MICROSECONDS", a=[3, 25]) == [(10, 1)]


def test_without_every_a_tile_restarts_at_its_edge() -> None:
    query = "SELECT COUNT(*) AS n FROM a [TUMBLE 10 MICROSECONDS]"
    assert rows_of(wm.collect(query, sources_of({"a": table_of([3, 9, 10])}))) == [(10, 1)]
    by_row = wm.collect(query, sources_of({"a": table_of([3, 9, 10])}), evaluate="row")
    assert rows_of(by_row) == [(3, 1), (9, 2), (10, 1)]


def test_a_join_of_tiles_keeps_its_half_open_tiles() -> None:
    query = "SELECT a.ts AS x, b.ts AS y FROM a [TUMBLE 10 MICROSECONDS], b [TUMBLE 10 MICROSECONDS]"
    table = wm.collect(query, sources_of({"a": table_of([0, 9]), "b": table_of([9, 10])}))
    assert sorted(table_rows(table)) == [(0, 9), (9, 9)]


def test_having_decides_about_the_finished_tile() -> None:
    query = """SELECT a.k, MAX(a.v) AS m FROM a [TUMBLE 10 MICROSECONDS]
               GROUP BY a.k HAVING COUNT(*) > 1 EVERY 10 MICROSECONDS"""
    tables = {"a": pa.table({"ts": [0, 5, 10, 12, 20], "k": ["x"] * 5, "v": [4, 4, 4, 4, 4]})}
    assert rows_of(wm.collect(query, sources_of(tables))) == [(10, "x", 4)]


@pytest.mark.parametrize("every_ms", [1, 3, 4, 8])
def test_the_batches_and_a_restart_between_them_change_nothing(every_ms: int) -> None:
    times = {
        name: [1_000 * at for at in ats]
        for name, ats in {"a": (0, 3, 4, 8, 9, 15, 16), "b": (1, 4, 7, 8, 12, 16, 17)}.items()
    }
    tables = {name: pa.table({"ts": column, "v": range(len(column))}) for name, column in times.items()}
    query = f"""SELECT COUNT(*) AS n, MAX(a.v) AS m, MIN(b.v) AS l
                FROM a [TUMBLE 4 MILLISECONDS], b [TUMBLE 8 MILLISECONDS] EVERY {every_ms} MILLISECONDS"""
    whole = rows_of(wm.collect(query, sources_of(tables)))
    bound = bind_query(query, sources_of(tables))
    assert whole == in_order(
        (each.as_of_us, *each.row) for each in evaluations(bound, tables, every_instants(bound, tables))
    )
    for cuts in (cut for size in (1, 2) for cut in combinations(range(1, 7), size)):
        for restart in ("no restart", "bytes", "parts", "compacted", "another plan"):
            assert rows_of(_in_batches(query, tables, cuts, restart)) == whole, (cuts, restart)


def _in_batches(query: str, tables: Mapping[str, pa.Table], cuts: tuple[int, ...], restart: str) -> pa.Table:
    bounds = list(zip((0, *cuts), (*cuts, 7), strict=True))
    sources = {
        name: wm.stream([table.slice(start, stop - start) for start, stop in bounds], time="ts")
        for name, table in tables.items()
    }
    run = wm.run(query, sources, plan=wm.plan())
    assert isinstance(run.operator, AggregateOperator)
    kept = SavedStateParts()
    found: list[pa.RecordBatch] = []
    for number, (start, stop) in enumerate(bounds):
        found += run.advance({name: table.slice(start, stop - start) for name, table in tables.items()})
        kept.save(run.state)
        if restart == "bytes":
            run.restore_state(run.save_state())
        elif restart == "parts":
            run.state = kept.restore(run.operator.config)
        elif restart == "compacted":
            run.state = compact_state(run.operator.config, run.state)
        elif restart == "another plan":
            run.replan(wm.plan(early=("a", "b")[: 1 + number % 2]))
    return pa.Table.from_batches([*found, *run.finish()], run.result)


def test_tiles_appear_batch_by_batch_once_the_watermark_has_passed_their_end() -> None:
    query = "SELECT COUNT(*) AS n FROM a [TUMBLE 10 MILLISECONDS] EVERY 10 MILLISECONDS"
    batches = [pa.table({"ts": [1_000 * at for at in ats]}) for ats in ([1, 9], [10], [11, 12], [40])]
    run = wm.run(query, {"a": wm.stream(batches, time="ts")})
    found = [rows_of(pa.Table.from_batches(each, run.result)) for each in run.batches()]
    #  at the watermark 10 another row at 10 may come, but it is of the next tile; the instant is final only when the
    # watermark is past it
    assert found == [[], [], [(10_000, 2)], [(20_000, 3), (30_000, 0)], [(50_000, 1)]]


DUCKDB_WINDOWS = {
    # at the instant t, as DuckDB's SQL has it
    "TUMBLE 10 MICROSECONDS": "{a}.ts >= (ceil(t / 10.0) - 1) * 10 AND {a}.ts < ceil(t / 10.0) * 10 AND {a}.ts <= t",
    "TUMBLE 4 MICROSECONDS": "{a}.ts >= (ceil(t / 4.0) - 1) * 4 AND {a}.ts < ceil(t / 4.0) * 4 AND {a}.ts <= t",
    "RANGE 7 MICROSECONDS": "{a}.ts BETWEEN t - 7 AND t",
    "LANDMARK": "{a}.ts <= t",
}


@pytest.mark.parametrize(
    ("one", "other", "every", "having"),
    [
        ("TUMBLE 10 MICROSECONDS", "TUMBLE 10 MICROSECONDS", 10, "true"),
        ("TUMBLE 10 MICROSECONDS", "TUMBLE 4 MICROSECONDS", 2, "COUNT(*) > 1"),
        ("TUMBLE 10 MICROSECONDS", "RANGE 7 MICROSECONDS", 3, "MIN(b.v) < 3"),
        ("TUMBLE 4 MICROSECONDS", "LANDMARK", 1, "COUNT(*) % 2 = 0"),
        ("RANGE 7 MICROSECONDS", "LANDMARK", 5, "SUM(b.v) > 20 OR COUNT(*) = 1"),
        ("TUMBLE 4 MICROSECONDS", "TUMBLE 10 MICROSECONDS", 7, "COUNT(*) <> 1"),
    ],
)
def test_duckdb_shows_the_same_groups_at_every_instant(one: str, other: str, every: int, having: str) -> None:
    a = pa.table({"ts": [-12, -10, -3, 0, 0, 4, 9, 10, 14, 20, 21, 33], "k": [1, 2, 1, 2, 1, 1, 2, 2, 1, 1, 2, 2]})
    b = pa.table(
        {"ts": [-11, -8, 0, 1, 8, 10, 12, 19, 20, 22, 30], "k": [1, 2, 1, 2, 2, 1, 1, 2, 2, 1, 2], "v": range(11)}
    )
    query = f"""SELECT a.k, MAX(b.v) AS m FROM a [{one}], b [{other}] WHERE a.k = b.k GROUP BY a.k
                HAVING {having.replace("true", "COUNT(*) > 0")} EVERY {every} MICROSECONDS"""
    inside = " AND ".join(DUCKDB_WINDOWS[window].format(a=alias) for alias, window in (("a", one), ("b", other)))
    last = max([33, *((33 // length + 1) * length for length in (4, 10) if f"TUMBLE {length} " in one + other)])
    instants = f"range({-(12 // every) * every}, {last} + 1, {every}) AS i(t)"
    groups = f"""SELECT t, a.k AS k, MAX(b.v) AS m, {having} AS shown FROM {instants}, a, b
                 WHERE a.k = b.k AND {inside} GROUP BY t, a.k"""
    found = duckdb.execute(
        f"""WITH groups AS ({groups}),
            every_group AS (SELECT i.t, keys.k, g.m, coalesce(g.shown, false) AS shown, g.k IS NULL AS empty
                FROM {instants} CROSS JOIN (SELECT DISTINCT k FROM a) AS keys
                LEFT JOIN groups AS g ON g.t = i.t AND g.k = keys.k),
            previous AS (SELECT *, coalesce(lag(shown) OVER w, false) AS was_shown, lag(m) OVER w AS before
                FROM every_group WINDOW w AS (PARTITION BY k ORDER BY t))
            SELECT t, k, m FROM previous
            WHERE (shown AND (NOT was_shown OR m IS DISTINCT FROM before)) OR (empty AND was_shown)"""
    ).fetchall()
    assert found
    assert in_order(found) == rows_of(wm.collect(query, sources_of({"a": a, "b": b})))
