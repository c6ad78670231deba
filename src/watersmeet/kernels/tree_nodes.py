"""Nodes of B+trees and T-trees: the header of a tree, the head of a node, and its sorted (key, row) entries.

A tree is two flat arrays of int64: `nodes`, an arena, and `header`, the `HEADER` words named here. Both may be slices
of larger arrays. A node's address is the place of its first key in the arena. The node's head is before that place,
hence the negative offsets. The keys start at the address, and the row of the key at place p is at p + `header[ROOM]`.
So one set of subroutines serves both trees.

Entries are found by binary search, shifted to make or close a gap, and moved between nodes. Each search counts its
comparisons in a register and adds them to the header once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import subroutine

NONE = -1

# Words of the header.
NODE_SIZE = 0  # N: entries a node may hold between two operations
ROOM = 1  # entries a node has words for, hence the distance from a key to its row
ROOT = 2
LEVELS = 3  # B+tree: levels of inner nodes above the leaves
COMPARISONS = 4  # an entry's key, and on a tie its row, against the sought one; a three-way comparison counts once
TOUCHED = 5  # entries found by probes, written out or only counted
PROBES = 6  # calls of `probe` and of `count_range`
INSERTS = 7
REMOVES = 8  # rows that were there and left; inserts less removes is the number of rows held
FREE = 9  # first released node, the rest follow through LINK
USED = 10  # nodes ever taken from the arena, including those released since
FREE_INNER = 11  # B+tree: the same two for inner nodes, which are larger and come from the arena's far end
USED_INNER = 12
HEADER = 13

# Words of a node's head, from its address backwards.
COUNT = -1
LINK = -2  # next free node; B+tree: next leaf, or the child an update went down to; T-tree: left child
UP = -3


Words = NDArray[np.int64]


@subroutine
def count_keys_below(nodes: Words, header: Words, node: int, key: int) -> int:
    """Return how many of the node's keys are smaller than `key`.

    It is also the place of the first entry with that key or a larger one.
    """
    low, high = 0, nodes[node + COUNT]
    comparisons = 0
    while low < high:
        middle = (low + high) >> 1
        comparisons += 1
        if nodes[node + middle] < key:
            low = middle + 1
        else:
            high = middle
    header[COMPARISONS] += comparisons
    return low


@subroutine
def find_entry_place(nodes: Words, header: Words, node: int, first: int, key: int, row: int) -> int:
    """Return the first place from `first` on whose entry is (key, row) or a larger one.

    Rows break ties, so duplicates cost a logarithm too.
    """
    room = header[ROOM]
    low, high = first, nodes[node + COUNT]
    comparisons = 0
    while low < high:
        middle = (low + high) >> 1
        comparisons += 1
        if nodes[node + middle] < key or (nodes[node + middle] == key and nodes[node + room + middle] < row):
            low = middle + 1
        else:
            high = middle
    header[COMPARISONS] += comparisons
    return low


@subroutine
def is_entry(nodes: Words, header: Words, node: int, place: int, key: int, row: int) -> bool:
    """Return whether the entry at `place`, if there is one, is (key, row)."""
    if place == nodes[node + COUNT]:
        return False
    header[COMPARISONS] += 1
    return bool(nodes[node + place] == key and nodes[node + header[ROOM] + place] == row)


@subroutine
def find_range_end(nodes: Words, header: Words, node: int, first: int, high: int) -> int:
    """Return the first place from `first` on whose key is larger than `high`.

    A node whose last key is still inside the range costs one comparison. Otherwise the range ends here, and the entries
    are compared one by one. With few matches this is faster than a search. Either way, beyond its way down the tree, a
    probe makes at most two comparisons more than it finds entries.
    """
    count = nodes[node + COUNT]
    if first == count:
        return first
    header[COMPARISONS] += 1
    if nodes[node + count - 1] <= high:
        return count  # type: ignore[no-any-return] # numba's int
    end = first
    while nodes[node + end] <= high:  # the last key is larger, so this stops inside the node
        end += 1
    header[COMPARISONS] += end - first + 1
    return end


@subroutine
def write_rows(nodes: Words, header: Words, node: int, first: int, end: int, out: Words, at: int) -> int:
    """Write the rows of the entries from `first` up to `end` into `out`, and return the place after the last.

    The first row goes to place `at`.
    """
    rows = node + header[ROOM]
    for place in range(first, end):
        out[at] = nodes[rows + place]
        at += 1
    return at


@subroutine
def copy_words(nodes: Words, source: int, target: int, count: int) -> None:
    """Copy words inside the arena; source and target may overlap."""
    if target < source:
        for at in range(count):
            nodes[target + at] = nodes[source + at]
    else:
        for at in range(count - 1, -1, -1):
            nodes[target + at] = nodes[source + at]


@subroutine
def copy_entries(nodes: Words, header: Words, source: int, target: int, count: int) -> None:
    """Copy keys and their rows; source and target are the places of the first key."""
    copy_words(nodes, source, target, count)
    copy_words(nodes, source + header[ROOM], target + header[ROOM], count)


@subroutine
def insert_entry(nodes: Words, header: Words, node: int, place: int, key: int, row: int) -> None:
    """Insert an entry at `place`; the node must have room for it."""
    copy_entries(nodes, header, node + place, node + place + 1, nodes[node + COUNT] - place)
    nodes[node + place] = key
    nodes[node + header[ROOM] + place] = row
    nodes[node + COUNT] += 1


@subroutine
def remove_entry(nodes: Words, header: Words, node: int, place: int) -> None:
    nodes[node + COUNT] -= 1
    copy_entries(nodes, header, node + place + 1, node + place, nodes[node + COUNT] - place)


@subroutine
def move_to_next(nodes: Words, header: Words, left: int, right: int, count: int) -> None:
    """Move the last `count` entries of `left` to the front of `right`, the next node in order."""
    copy_entries(nodes, header, right, right + count, nodes[right + COUNT])
    copy_entries(nodes, header, left + nodes[left + COUNT] - count, right, count)
    nodes[left + COUNT] -= count
    nodes[right + COUNT] += count


@subroutine
def move_to_previous(nodes: Words, header: Words, left: int, right: int, count: int) -> None:
    """Move the first `count` entries of `right` to the end of `left`, the previous node in order."""
    copy_entries(nodes, header, right, left + nodes[left + COUNT], count)
    copy_entries(nodes, header, right + count, right, nodes[right + COUNT] - count)
    nodes[left + COUNT] += count
    nodes[right + COUNT] -= count


@subroutine
def take_free_node(nodes: Words, header: Words, free: int) -> int:
    """Return a released node from the list that starts in header word `free`, or NONE."""
    node: int = header[free]
    if node != NONE:
        header[free] = nodes[node + LINK]
    return node


@subroutine
def release_node(nodes: Words, header: Words, free: int, node: int) -> None:
    nodes[node + LINK] = header[free]
    header[free] = node


@subroutine
def renumber_node(nodes: Words, header: Words, node: int, dropped: int) -> None:
    """Subtract a number from the rows of a node's entries; words beyond the last entry do not matter."""
    rows = node + header[ROOM]
    for place in range(nodes[node + COUNT]):
        nodes[rows + place] -= dropped
