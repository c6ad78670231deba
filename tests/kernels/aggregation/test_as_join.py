"""The AS join against its definition.

Three inputs have equal keys between neighbours, and a comparison between the first and the last.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.kernels.aggregation.arguments import AggregationCounters, EntryChanges
from watersmeet.kernels.aggregation.as_join import as_join_definition
from watersmeet.operators.aggregate.config import AggregateConfig, build_aggregate_config, build_layout
from watersmeet.operators.aggregate.tables import JoinTables
from watersmeet.sources.declarations import bind_query

ENTRIES, INPUTS = 15, 3

Described = list[tuple[int, int, int]]  # by entry: its key of each class, and the value that is compared
Listed = list[tuple[int, int, int]]  # by change: its entry, its rows, and what it adds to the entry's sum


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2)), min_size=ENTRIES, max_size=ENTRIES),
    st.lists(st.tuples(st.integers(0, ENTRIES - 1), st.integers(-2, 3), st.integers(-9, 9)), max_size=30),
    st.integers(1, 5),
)
@settings(deadline=None)
def test_every_change_joins_the_entries_that_match_at_that_time(
    described: Described, proposed: Listed, room: int
) -> None:
    listed = _never_below_zero(proposed)

    def matches(chosen: tuple[int, ...]) -> bool:
        a, b, c = (described[entry] for entry in chosen)
        return a[0] == b[0] and b[1] == c[1] and a[2] < c[2]

    expected = as_join_definition(
        [(entry % INPUTS, entry, rows, amount) for entry, rows, amount in listed], INPUTS, matches
    )
    assert sorted(_join_changes(described, listed, room)) == sorted(expected)


def _never_below_zero(proposed: Listed) -> Listed:
    held = [0] * ENTRIES
    kept = []
    for entry, rows, amount in proposed:
        if held[entry] + rows >= 0:
            held[entry] += rows
            kept.append((entry, rows, amount))
    return kept


def _config() -> AggregateConfig:
    table = pa.table({name: pa.array([], pa.int64()) for name in ("ts", "k", "m", "v", "x")})
    query = """SELECT SUM(a.x) AS a, SUM(b.x) AS b, SUM(c.x) AS c
        FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND], c [RANGE 1 SECOND]
        WHERE a.k = b.k AND b.m = c.m AND a.v < c.v"""
    return build_aggregate_config(bind_query(query, {name: wm.stream(table, time="ts") for name in "abc"}))


def _join_changes(
    described: Described, listed: Listed, room: int
) -> list[tuple[int, tuple[int, ...], int, tuple[int, ...]]]:
    config = _config()
    tables = JoinTables(config, build_layout(config), [])
    of_pair = {frozenset(keys): number for number, keys in enumerate(config.join.classes.keys)}
    first = len(of_pair)
    compared = {number: column - first for number in (0, 2) for column, _ in config.inputs[number].ranges}
    for entry, (k, m, v) in enumerate(described):
        tables.entries.key_codes[entry, of_pair[frozenset({0, 1})]] = k
        tables.entries.key_codes[entry, of_pair[frozenset({1, 2})]] = m
        if entry % INPUTS in compared:
            tables.entries.condition_codes[entry, compared[entry % INPUTS]] = v
    for number in range(INPUTS):
        tables.find_nodes(number, np.arange(number, ENTRIES, INPUTS))
    changed, rows, amount = (np.array([change[place] for change in listed], np.int64) for place in range(3))
    ints = np.stack([rows, amount], axis=1)
    changes = EntryChanges(
        changed % INPUTS,
        changed,
        rows,
        np.zeros_like(rows),
        ints,
        ints[:, 1:].astype(np.float64),
        np.empty((rows.size, 0)),
        np.empty((rows.size, 0), np.int64),
    )
    out = tables.allocate_results(room)
    found = []
    for size in tables.join(
        changes, AggregationCounters(*(np.zeros((INPUTS, INPUTS), np.int64) for _ in range(2))), out
    ):
        for at in range(size):
            chosen, sums = tuple(out.entries[at].tolist()), tuple(out.ints[at, 2::2].tolist())
            assert np.allclose(out.approx[at], sums)
            found.append((int(out.change[at]), chosen, int(out.ints[at, 0]), sums))
    return found
