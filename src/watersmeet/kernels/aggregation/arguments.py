"""Flat arrays that the aggregation kernels work on, grouped and named.

A probe finds entries. An entry is one row of a window. On an input that aggregates early, an entry is all rows that
share the join keys and every attribute that is read later. The entries of all inputs share the same arrays. Numbers of
removed entries are reused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

NONE = -1


class EntryChanges(NamedTuple):
    """Changes of entries, by instant: rows added or removed, and the amounts added to the sums."""

    input: Int64s
    entry: Int64s
    rows: Int64s
    instant: Int64s
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D


class AggregationEntries(NamedTuple):
    """Entries: the number of rows, the join keys by class, the codes that conditions read, the time, and the sums.

    An integer sum is kept modulo 2⁶⁴ together with its approximation. Both together give the exact sum, however often
    it wrapped. A sum of floats is a pair of doubles in adjacent columns.
    """

    rows: Int64s
    words: Int64s  # 2-D
    ranges: Int64s  # 2-D
    times: Int64s
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D


class EntryDirectories(NamedTuple):
    """Hash directories of entries.

    Each finds the entries of one input that agree in some key classes. A node is one combination of keys.
    """

    classes: Int64s  # 2-D: [directory, place], −1 where there are fewer
    of_input: Int64s  # 2-D: [input, place], −1 where there are fewer
    slots: Int64s  # 2-D: [directory, slot]; as many as a power of two
    node_words: Int64s  # 3-D: [directory, node, place]
    head: Int64s  # 2-D: [directory, node]
    nodes: Int64s  # nodes in use
    following: Int64s  # 2-D: [directory, entry]
    preceding: Int64s  # 2-D
    node_of: Int64s  # 2-D


class AggregationSteps(NamedTuple):
    """Probe steps for each origin: the input to probe, the directory to use, and the inputs that provide the keys."""

    target: Int64s  # 2-D: [origin, step]
    directory: Int64s  # 2-D
    providers: Int64s  # 3-D: [origin, step, place]


class EntryConditions(NamedTuple):
    """Comparisons between codes of two inputs, and bounds between times (an empty array if there are none)."""

    op: Int64s
    left: Int64s
    left_column: Int64s
    right: Int64s
    right_column: Int64s
    later_by: Int64s  # 2-D


class AggregationColumns(NamedTuple):
    """Owner of each result column (−1: computed elsewhere), and its place among the owner's columns."""

    int_owner: Int64s
    int_place: Int64s
    approx_owner: Int64s
    approx_place: Int64s
    pair_owner: Int64s
    pair_place: Int64s


class AggregationCursors(NamedTuple):
    """Position of the loops, so the caller can empty a full output in the middle of them."""

    chosen: Int64s
    cursor: Int64s
    clock: Int64s


# Places of the loops' clock: the next change, the level of its loops (−1: not started), and whether that level is about
# to be opened.
NEXT, LEVEL, OPENING = 0, 1, 2


class JoinedResults(NamedTuple):
    """Room for results: the change each comes from, the entry of every input, and the amounts it adds."""

    change: Int64s
    met: Int64s  # 2-D
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D


class AggregationCounters(NamedTuple):
    """Work by origin and target: probes, and entries that passed."""

    probes: Int64s  # 2-D
    touched: Int64s  # 2-D


class AggregationSet(NamedTuple):
    """An aggregation set: per group its sums, the sums last emitted, and whether it changed since.

    Column 0 of the integers is COUNT(*).
    """

    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D
    shown_ints: Int64s  # 2-D
    shown_approx: Float64s  # 2-D
    shown_pairs: Float64s  # 2-D
    dirty: Int64s  # groups that changed, the first `clock[DIRTY]` places
    is_dirty: Bools
    clock: Int64s


# Places of a result's clock: how many groups are dirty, and the open instant (−1: none).
DIRTY, OPEN = 0, 1


class EmittedGroups(NamedTuple):
    """Room for emitted groups: instant and group, the group's sums, and the sums emitted before."""

    instant: Int64s
    group: Int64s
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D
    before_ints: Int64s  # 2-D
    before_approx: Float64s  # 2-D
    before_pairs: Float64s  # 2-D


class PairingHeaps(NamedTuple):
    """Pairing heaps, one per group, over distinct values with their multiplicities."""

    held: Int64s  # multiplicity
    key: Int64s  # smaller comes first
    child: Int64s
    sibling: Int64s
    in_heap: Bools
    root: Int64s  # by group


def _type(group: type[tuple[Any, ...]], *arrays: tuple[Any, int]) -> Any:
    kinds = [types.Array(kind, dimensions, "C") for kind, dimensions in arrays]
    return types.BaseTuple.from_types(kinds, group)  # type: ignore[no-untyped-call] # numba publishes no types


_I, _F, _B = types.int64, types.float64, types.boolean

CHANGES = _type(EntryChanges, *[(_I, 1)] * 4, (_I, 2), (_F, 2), (_F, 2))
ENTRIES = _type(AggregationEntries, (_I, 1), (_I, 2), (_I, 2), (_I, 1), (_I, 2), (_F, 2), (_F, 2))
DIRECTORIES = _type(EntryDirectories, (_I, 2), (_I, 2), (_I, 2), (_I, 3), (_I, 2), (_I, 1), (_I, 2), (_I, 2), (_I, 2))
STEPS = _type(AggregationSteps, (_I, 2), (_I, 2), (_I, 3))
CONDITIONS = _type(EntryConditions, *[(_I, 1)] * 5, (_I, 2))
COLUMNS = _type(AggregationColumns, *[(_I, 1)] * 6)
LOOPS = _type(AggregationCursors, (_I, 1), (_I, 1), (_I, 1))
FOUND = _type(JoinedResults, (_I, 1), (_I, 2), (_I, 2), (_F, 2), (_F, 2))
SHOWN = _type(EmittedGroups, (_I, 1), (_I, 1), *[(_I, 2), (_F, 2), (_F, 2)] * 2)
WORK = _type(AggregationCounters, (_I, 2), (_I, 2))
RESULT = _type(AggregationSet, *[(_I, 2), (_F, 2), (_F, 2)] * 2, (_I, 1), (_B, 1), (_I, 1))
HEAPS = _type(PairingHeaps, *[(_I, 1)] * 4, (_B, 1), (_I, 1))
