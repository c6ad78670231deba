"""State of the nested loops: flat arrays, grouped and named, and the windows' rows entering and leaving.

Numba accepts named tuples of arrays as arguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from watersmeet.kernels import btree, ttree
from watersmeet.kernels.compile import IN_INT64, INT, OUT_INT64, inlined_subroutine, kernel, subroutine
from watersmeet.kernels.tree_nodes import COMPARISONS

Int64s = NDArray[np.int64]
Rows = NDArray[np.int32]

# Kinds of access to a window.
LIST, HASH, BTREE, TTREE = 0, 1, 2, 3

# Comparisons between a value of a loop's row and one of a row bound before.
EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = 0, 1, 2, 3, 4, 5

# Places of the clock: the next events, the position of the loops (no loop is open at level −1), whether rows are
# pending, and the next partial match to continue from.
NEXT_ARRIVAL, NEXT_EVALUATION, NEXT_EXPIRATION, ORIGIN, LEVEL, PENDING, NEXT_PARTIAL, CLOCK = range(8)

LOWEST = int(np.iinfo(np.int64).min)
HIGHEST = int(np.iinfo(np.int64).max)


class LoopWindows(NamedTuple):
    """All rows of all windows.

    Row r of window w is at `offsets[w] + r`. Its value in column c is at `column_at[w, c] + r`.
    """

    offsets: Int64s
    times: Int64s
    ends: Int64s  # last instant of validity
    ranks: Int64s  # position in the order of arrival; −1 for rows of earlier batches
    values: Int64s
    column_at: Int64s  # 2-D, −1 where a window has no such column
    later_by: Int64s  # 2-D: the most by which a row of the second window can be later than one of the first
    keep: Int64s  # how long after its time a row can match others


class LoopArrivals(NamedTuple):
    """The new rows in order of arrival."""

    input: Int64s
    row: Int64s


class LoopSteps(NamedTuple):
    """One loop per window for each origin: the window, the index (−1 for none) and the conditions on outer loops."""

    order: Int64s  # 2-D: [origin, loop]
    access: Int64s  # 2-D
    conditions: Int64s  # 3-D: [origin, loop, from and to]
    op: Int64s
    column: Int64s
    bound: Int64s  # the outer loop to compare with
    bound_column: Int64s


class LoopIndexes(NamedTuple):
    """Indexes on windows; the indexes of one window are adjacent.

    A hash bucket is a range of `placed_row` and `placed_value`, in arrival order, with room for more rows behind it.
    """

    of_window: Int64s  # indexes of window w are of_window[w] … of_window[w + 1]
    column: Int64s
    kind: Int64s
    size: Int64s  # buckets, or entries per node
    bucket_at: Int64s
    heads: Int64s
    tails: Int64s
    placed_at: Int64s  # where the buckets of an index's rows are in `placed_bucket`
    placed_row: Int64s
    placed_value: Int64s
    placed_bucket: Int64s  # by row, not by place
    nodes_at: Int64s  # one more than there are indexes
    nodes: Int64s
    headers: Int64s  # 2-D


class LoopProgress(NamedTuple):
    """Progress of the join per window.

    It is the oldest row kept, the first row not joined yet and the first row not arrived yet.
    """

    oldest: Int64s
    evaluated: Int64s
    tail: Int64s
    clock: Int64s  # its places have names, see above


class LoopCursors(NamedTuple):
    """Position of each nested loop.

    It is kept between calls, so the caller can empty a full output in the middle of the loops.
    """

    chosen: Int64s  # the row of each loop
    cursor: Int64s
    stop: Int64s
    kind: Int64s
    key: Int64s
    bounds: Int64s  # 2-D
    candidates: Int64s  # 2-D: rows a tree gave, per loop


class LoopStage(NamedTuple):
    """The loops of one stage, `bounds[0] … bounds[1]`, and the partial matches it continues from; see `nested_loops`.

    `partials[w, m]` is the row of window w in partial match m. Two more rows follow those of the windows: how many rows
    had arrived when the match was found, and its origin. Matches are in the order in which the previous stage found
    them.

    - `bounds[2]` is the number of partial matches.
    - `bounds[3]` is 1 while the previous stage may find more.
    - `bounds[4]` is 1 for the first stage.
    """

    bounds: Int64s
    partials: Rows  # 2-D


class LoopCounters(NamedTuple):
    """Exact work of the join, by origin and target.

    All other counts follow from these and from the join's progress.
    """

    comparisons: Int64s  # 2-D: rows a loop compared
    touched: Int64s  # 2-D: rows that passed a loop


def _type(group: type[tuple[Any, ...]], *dimensions: int) -> Any:
    """Return Numba's type of a named tuple whose arrays have these dimensions."""
    arrays = [types.Array(types.int64, count, "C") for count in dimensions]
    return types.BaseTuple.from_types(arrays, group)  # type: ignore[no-untyped-call] # numba publishes no types


WINDOWS = _type(LoopWindows, 1, 1, 1, 1, 1, 2, 2, 1)
ARRIVALS = _type(LoopArrivals, 1, 1)
STEPS = _type(LoopSteps, 2, 2, 3, 1, 1, 1, 1)
INDEXES = _type(LoopIndexes, *[1] * 13, 2)
PROGRESS = _type(LoopProgress, 1, 1, 1, 1)
LOOPS = _type(LoopCursors, 1, 1, 1, 1, 1, 2, 2)
COUNTERS = _type(LoopCounters, 2, 2)
OUT_ROWS = types.Array(types.int32, 2, "C")
STAGE = types.BaseTuple.from_types([types.Array(types.int64, 1, "C"), OUT_ROWS], LoopStage)  # type: ignore[no-untyped-call]


@kernel(INT, OUT_INT64, OUT_INT64, IN_INT64, INT)
def fill_tree(kind: int, nodes: Int64s, header: Int64s, values: Int64s, node_rows: int) -> None:
    """Build a tree over the rows that are already in its window."""
    if kind == BTREE:
        btree.clear(nodes, header, node_rows)
    else:
        ttree.clear(nodes, header, node_rows)
    for row in range(values.size):
        add_to_tree(kind, nodes, header, values[row], row)


@kernel(INT, OUT_INT64, OUT_INT64, IN_INT64, INT, INT)
def insert_into_tree(kind: int, nodes: Int64s, header: Int64s, values: Int64s, first: int, stop: int) -> None:
    """Insert the rows `first … stop - 1` of a window again, after they had been removed too early."""
    for row in range(first, stop):
        add_to_tree(kind, nodes, header, values[row], row)


@kernel(INT, OUT_INT64, OUT_INT64, INT)
def renumber_tree(kind: int, nodes: Int64s, header: Int64s, dropped: int) -> None:
    """Subtract a number from the row of every entry, because the window dropped that many rows from its front."""
    if kind == BTREE:
        btree.renumber(nodes, header, dropped)
    else:
        ttree.renumber(nodes, header, dropped)


@inlined_subroutine
def insert_row(  # type: ignore[no-untyped-def] # numba infers
    values, column_at, of_window, index_column, index_kind, placed_at, placed_bucket, placed_row, placed_value, tails,
           nodes_at, nodes, headers, tail, window, row
):  # fmt: skip
    """Insert an arriving row: it becomes the newest of its window and of its buckets, and an entry of its trees.

    Its bucket has room for it: see `buckets.make_room`.
    """
    tail[window] = row + 1
    for index in range(of_window[window], of_window[window + 1]):
        value = values[column_at[window, index_column[index]] + row]
        if index_kind[index] == HASH:
            bucket = placed_bucket[placed_at[index] + row]
            place = tails[bucket]
            placed_row[place], placed_value[place] = row, value
            tails[bucket] = place + 1
        else:
            add_to_tree(index_kind[index], nodes[nodes_at[index] : nodes_at[index + 1]], headers[index], value, row)


@inlined_subroutine
def expire_rows(  # type: ignore[no-untyped-def] # numba infers
    times, ends, offsets, keep, values, column_at, of_window, index_column, index_kind, placed_at, placed_bucket,
           heads, nodes_at, nodes, headers, oldest, evaluated, window, now
):  # fmt: skip
    """Expire rows that cannot match anything at or after `now`, oldest first, up to the first row that has to stay.

    Buckets are in arrival order too, so the oldest row of a window is the oldest of its bucket. No bucket is visited in
    vain.
    """
    base = offsets[window]
    row = oldest[window]
    while row < evaluated[window] and (times[base + row] + keep[window] < now or ends[base + row] < now):
        for index in range(of_window[window], of_window[window + 1]):
            if index_kind[index] == HASH:
                heads[placed_bucket[placed_at[index] + row]] += 1
            else:
                value = values[column_at[window, index_column[index]] + row]
                remove_from_tree(
                    index_kind[index], nodes[nodes_at[index] : nodes_at[index + 1]], headers[index], value, row
                )
        row += 1
    oldest[window] = row


@subroutine
def add_to_tree(kind: int, nodes: Int64s, header: Int64s, value: int, row: int) -> None:
    if kind == BTREE:
        btree.insert(nodes, header, value, row)
    else:
        ttree.insert(nodes, header, value, row)


@subroutine
def remove_from_tree(kind: int, nodes: Int64s, header: Int64s, value: int, row: int) -> None:
    if kind == BTREE:
        btree.remove(nodes, header, value, row)
    else:
        ttree.remove(nodes, header, value, row)


@subroutine
def probe_tree(kind: int, nodes: Int64s, header: Int64s, low: int, high: int, found: Int64s) -> tuple[int, int]:
    """Write the rows between two values to `found`; return their number and the comparisons it took."""
    if low > high:
        return 0, 0
    before = header[COMPARISONS]
    count = (
        btree.probe(nodes, header, low, high, found, 0)
        if kind == BTREE
        else ttree.probe(nodes, header, low, high, found, 0)
    )
    return count, header[COMPARISONS] - before
