"""Rows entering and leaving the windows of nested loops, and their indexes with them."""

from __future__ import annotations

from watersmeet.kernels import btree, ttree
from watersmeet.kernels.compile import IN_INT64, INT, OUT_INT64, inlined, kernel, piece
from watersmeet.kernels.loop_arguments import BTREE, HASH, Int64s
from watersmeet.kernels.tree_header import COMPARISONS


@kernel(INT, OUT_INT64, OUT_INT64, IN_INT64, INT)
def fill_tree(kind: int, nodes: Int64s, header: Int64s, values: Int64s, node_rows: int) -> None:
    """A tree with the rows that are already in its window."""
    if kind == BTREE:
        btree.clear(nodes, header, node_rows)
    else:
        ttree.clear(nodes, header, node_rows)
    for row in range(values.size):
        add_to_tree(kind, nodes, header, values[row], row)


@inlined
def insert(  # type: ignore[no-untyped-def] # numba infers
    values, column_at, of_window, index_column, index_kind, placed_at, placed_bucket, tails, nodes_at, nodes, headers,
           tail, window, row
):  # fmt: skip
    """A row arrives: it is the newest of its window, of its bucket, and an entry of its trees."""
    tail[window] = row + 1
    for index in range(of_window[window], of_window[window + 1]):
        if index_kind[index] == HASH:
            tails[placed_bucket[placed_at[index] + row]] += 1
        else:
            value = values[column_at[window, index_column[index]] + row]
            add_to_tree(index_kind[index], nodes[nodes_at[index] : nodes_at[index + 1]], headers[index], value, row)


@inlined
def expire(  # type: ignore[no-untyped-def] # numba infers
    times, ends, offsets, keep, values, column_at, of_window, index_column, index_kind, placed_at, placed_bucket,
           heads, nodes_at, nodes, headers, oldest, evaluated, window, now
):  # fmt: skip
    """Rows that can meet nothing at or after `now` leave, oldest first, up to the first that has to stay.

    Buckets are in arrival order too, so the oldest row of a window is the oldest of its bucket: no bucket is visited in
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
                take_from_tree(
                    index_kind[index], nodes[nodes_at[index] : nodes_at[index + 1]], headers[index], value, row
                )
        row += 1
    oldest[window] = row


@piece
def add_to_tree(kind: int, nodes: Int64s, header: Int64s, value: int, row: int) -> None:
    if kind == BTREE:
        btree.insert(nodes, header, value, row)
    else:
        ttree.insert(nodes, header, value, row)


@piece
def take_from_tree(kind: int, nodes: Int64s, header: Int64s, value: int, row: int) -> None:
    if kind == BTREE:
        btree.remove(nodes, header, value, row)
    else:
        ttree.remove(nodes, header, value, row)


@piece
def tree_candidates(kind: int, nodes: Int64s, header: Int64s, low: int, high: int, found: Int64s) -> tuple[int, int]:
    """Writes the rows between two values to `found`; their number, and the comparisons it took."""
    if low > high:
        return 0, 0
    before = header[COMPARISONS]
    count = (
        btree.probe(nodes, header, low, high, found, 0)
        if kind == BTREE
        else ttree.probe(nodes, header, low, high, found, 0)
    )
    return count, header[COMPARISONS] - before
