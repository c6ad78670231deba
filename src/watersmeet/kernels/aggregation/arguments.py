"""Flat arrays that the aggregation kernels work on, grouped and named.

A probe finds entries. An entry is one row of a window. On an input that aggregates early, an entry is all rows that
share the join keys and every attribute that is read later. The entries of all inputs share the same arrays. The
number of a removed entry is given to a new one.
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
    """Changes of entries, by instant: rows added or removed, and the amounts added to the sums.

    The extremes are those of the entry after the change: two columns per MIN or MAX, its code and whether there is one.
    """

    input: Int64s
    entry: Int64s
    rows: Int64s
    instant: Int64s
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D
    extremes: Int64s  # 2-D


class AggregationEntries(NamedTuple):
    """Entries: the number of rows, the join keys, the codes that conditions read, the time, and the sums.

    There is one key code per equality class: the columns that the query's equalities make equal.

    An integer sum is kept modulo 2⁶⁴ together with its approximation. Both together give the exact sum, however often
    it wrapped. A sum of floats is a pair of doubles in adjacent columns. Extremes are kept as in `EntryChanges`.
    """

    rows: Int64s
    key_codes: Int64s  # 2-D
    condition_codes: Int64s  # 2-D
    times: Int64s
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D
    extremes: Int64s  # 2-D


class EntryDirectories(NamedTuple):
    """Directories of entries. Each finds the entries of one input that agree in some key classes.

    Directories with the same key classes share a key space, which numbers the combinations of keys. Such a number is
    called a node. An entry looks its nodes up once, when it is created. So a probe whose keys come from one entry
    hashes nothing.
    """

    classes: Int64s  # 2-D, [space, place]: key class, padded with −1
    space_of: Int64s  # [directory]: key space
    input_directories: Int64s  # 2-D, [input, place]: directory, padded with −1
    slots: Int64s  # 2-D: [space, slot]; the number of slots is a power of two
    node_codes: Int64s  # 3-D: [space, node, place]
    head: Int64s  # 2-D: [node, directory]; the heads of one node share a cache line
    nodes: Int64s  # [space]: nodes in use
    following: Int64s  # 2-D: [directory, entry]
    preceding: Int64s  # 2-D
    node_of: Int64s  # 2-D: [space, entry]


class AggregationSteps(NamedTuple):
    """Probe steps for each origin: the input to probe, the directory to use, and the inputs that provide the keys.

    `single_provider` is the input that provides all keys, −1 if several do.
    """

    target: Int64s  # 2-D: [origin, step]
    directory: Int64s  # 2-D
    providers: Int64s  # 3-D: [origin, step, place]
    single_provider: Int64s  # 2-D


class EntryConditions(NamedTuple):
    """Comparisons between codes of two inputs, and bounds between times (an empty array if there are none)."""

    op: Int64s
    left: Int64s
    left_column: Int64s
    right: Int64s
    right_column: Int64s
    later_by: Int64s  # 2-D


class AggregationColumns(NamedTuple):
    """Owner of each result column, and its place among the owner's columns.

    The owner is the input whose values the column sums; −1 if its values are computed after the join.
    """

    int_owner: Int64s
    int_place: Int64s
    approx_owner: Int64s
    approx_place: Int64s
    pair_owner: Int64s
    pair_place: Int64s
    extreme_owner: Int64s  # by MIN or MAX


class AggregationCursors(NamedTuple):
    """Where the loops are, so that the caller can empty a full output in the middle of them.

    `chosen` has the current entry by input, −1 if there is none yet. `cursor` has, by loop level, the entry from which
    that loop continues. `before` has the extremes that the changed entry had before the change.
    """

    chosen: Int64s
    cursor: Int64s
    position: Int64s
    before: Int64s


# Places of `position`: the next change, the level of its loops (−1: not started), and whether that level is about
# to be opened.
NEXT, LEVEL, OPENING = 0, 1, 2


class JoinedResults(NamedTuple):
    """Room for results: the change each comes from, the entry of every input, and the amounts it adds.

    A MIN or MAX has four columns: a value that the result takes from its group and how often, and a value that it adds
    and how often. Numbers of values are signed.
    """

    change: Int64s
    entries: Int64s  # 2-D: [result, input]
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D
    extremes: Int64s  # 2-D


class AggregationCounters(NamedTuple):
    """Work by origin and target: probes, and entries found that satisfy the conditions."""

    probes: Int64s  # 2-D
    matched: Int64s  # 2-D


class AggregationSet(NamedTuple):
    """An aggregation set: per group its sums, the sums last emitted, and whether it changed since.

    Column 0 of the integers is COUNT(*).
    """

    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    pairs: Float64s  # 2-D
    emitted_ints: Int64s  # 2-D
    emitted_approx: Float64s  # 2-D
    emitted_pairs: Float64s  # 2-D
    dirty: Int64s  # groups that changed, the first `progress[DIRTY]` places
    is_dirty: Bools
    progress: Int64s


# Places of `progress`: how many groups are dirty, and the instant whose changes are being added (−1: none).
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

    multiplicity: Int64s
    key: Int64s  # smaller comes first
    child: Int64s
    sibling: Int64s
    in_heap: Bools
    root: Int64s  # by group


def _type(group: type[tuple[Any, ...]], *arrays: tuple[Any, int]) -> Any:
    kinds = [types.Array(kind, dimensions, "C") for kind, dimensions in arrays]
    return types.BaseTuple.from_types(kinds, group)  # type: ignore[no-untyped-call] # numba publishes no types


_I, _F, _B = types.int64, types.float64, types.boolean

CHANGES = _type(EntryChanges, *[(_I, 1)] * 4, (_I, 2), (_F, 2), (_F, 2), (_I, 2))
ENTRIES = _type(AggregationEntries, (_I, 1), (_I, 2), (_I, 2), (_I, 1), (_I, 2), (_F, 2), (_F, 2), (_I, 2))
DIRECTORIES = _type(
    EntryDirectories, (_I, 2), (_I, 1), (_I, 2), (_I, 2), (_I, 3), (_I, 2), (_I, 1), (_I, 2), (_I, 2), (_I, 2)
)
STEPS = _type(AggregationSteps, (_I, 2), (_I, 2), (_I, 3), (_I, 2))
CONDITIONS = _type(EntryConditions, *[(_I, 1)] * 5, (_I, 2))
COLUMNS = _type(AggregationColumns, *[(_I, 1)] * 7)
CURSORS = _type(AggregationCursors, *[(_I, 1)] * 4)
JOINED_RESULTS = _type(JoinedResults, (_I, 1), (_I, 2), (_I, 2), (_F, 2), (_F, 2), (_I, 2))
EMITTED_GROUPS = _type(EmittedGroups, (_I, 1), (_I, 1), *[(_I, 2), (_F, 2), (_F, 2)] * 2)
COUNTERS = _type(AggregationCounters, (_I, 2), (_I, 2))
AGGREGATION_SET = _type(AggregationSet, *[(_I, 2), (_F, 2), (_F, 2)] * 2, (_I, 1), (_B, 1), (_I, 1))
HEAPS = _type(PairingHeaps, *[(_I, 1)] * 4, (_B, 1), (_I, 1))
