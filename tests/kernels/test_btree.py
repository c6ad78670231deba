"""Laws of a B+tree between any two operations, read directly from its arrays; and its splits and merges."""

from __future__ import annotations

import math

import numpy as np

from watersmeet.kernels import btree
from watersmeet.kernels.tree_nodes import (
    COUNT,
    FREE,
    FREE_INNER,
    HEADER,
    INSERTS,
    LEVELS,
    LINK,
    NODE_SIZE,
    NONE,
    REMOVES,
    ROOM,
    ROOT,
    USED,
    USED_INNER,
    Words,
)

Entry = tuple[int, int]


def test_a_full_leaf_splits_in_halves_and_halves_merge_again() -> None:
    nodes, header = _fill_tree([1, 2, 3, 4, 5], node_size=4)
    assert leaves_in_order(nodes, header) == [[(1, 1), (2, 2), (3, 3)], [(4, 4), (5, 5)]]
    assert header[LEVELS] == 1
    for key in (1, 2):
        assert btree.remove(nodes, header, key, key)
    assert leaves_in_order(nodes, header) == [[(3, 3), (4, 4), (5, 5)]]
    assert header[LEVELS] == 0
    check_btree(nodes, header)


def test_a_leaf_below_the_minimum_evens_out_with_a_fuller_neighbour() -> None:
    nodes, header = _fill_tree([1, 2, 3, 6, 7, 4, 5], node_size=4)
    assert leaves_in_order(nodes, header) == [[(1, 1), (2, 2), (3, 3)], [(4, 4), (5, 5), (6, 6), (7, 7)]]
    for key in (1, 2):
        assert btree.remove(nodes, header, key, key)
    assert leaves_in_order(nodes, header) == [[(3, 3), (4, 4), (5, 5)], [(6, 6), (7, 7)]]
    check_btree(nodes, header)


def _fill_tree(keys: list[int], node_size: int) -> tuple[Words, Words]:
    """A tree of these keys, each also its row."""
    nodes, header = np.empty(btree.arena_words(len(keys), node_size), np.int64), np.empty(HEADER, np.int64)
    btree.clear(nodes, header, node_size)
    for key in keys:
        btree.insert(nodes, header, key, key)
    return nodes, header


def leaves_in_order(nodes: Words, header: Words) -> list[list[Entry]]:
    return [entries_at(nodes, header, node) for node, level in _nodes(nodes, header) if level == 0]


def check_btree(nodes: Words, header: Words) -> None:
    size = int(header[NODE_SIZE])
    found = _nodes(nodes, header)
    leaves, inner = ([node for node, level in found if (level > 0) == above] for above in (False, True))
    for node, level in found:
        least = (1 if level else 0) if node == header[ROOT] else size // 2 if level else (size + 1) // 2
        assert least <= nodes[node + COUNT] <= size, "occupancy"
        if level:
            _check_separators(nodes, header, node, level)
    assert [int(nodes[leaf + LINK]) for leaf in leaves] == [*leaves[1:], NONE], "each leaf links to the next"
    _check_arena(nodes, header, leaves, inner)
    held = int(header[INSERTS] - header[REMOVES])
    if header[LEVELS]:
        assert header[LEVELS] <= 1 + math.log(max(1, held / ((size + 1) // 2) / 2), size // 2 + 1) + 1e-9, "height"


def _check_separators(nodes: Words, header: Words, node: int, level: int) -> None:
    children = _children(nodes, header, node)
    for separator, left, right in zip(entries_at(nodes, header, node), children[:-1], children[1:], strict=True):
        last, first = _outermost(nodes, header, left, level - 1, -1), _outermost(nodes, header, right, level - 1, 0)
        assert last <= separator < first, "a separator parts its children"


def _outermost(nodes: Words, header: Words, node: int, level: int, end: int) -> Entry:
    """The first (end 0) or last (end -1) entry below a node; all entries are known to stand in order."""
    for _ in range(level):
        node = _children(nodes, header, node)[end]
    return entries_at(nodes, header, node)[end]


def _check_arena(nodes: Words, header: Words, leaves: list[int], inner: list[int]) -> None:
    size = int(header[NODE_SIZE])
    leaf_words = 3 + 2 * (size + 1)
    inner_words = leaf_words + size + 2
    assert sorted(leaves + free_nodes(nodes, header, FREE)) == [3 + leaf_words * i for i in range(header[USED])], (
        "no leaf is lost"
    )
    inner_places = [nodes.size + 3 - inner_words * (i + 1) for i in range(header[USED_INNER])]
    assert sorted(inner + free_nodes(nodes, header, FREE_INNER)) == inner_places[::-1], "no inner node is lost"
    assert header[USED] * leaf_words + header[USED_INNER] * inner_words <= nodes.size, "the arena is large enough"


def _nodes(nodes: Words, header: Words) -> list[tuple[int, int]]:
    """(node, level) from left to right, parents first; leaves are level 0."""
    found: list[tuple[int, int]] = []

    def visit(node: int, level: int) -> None:
        found.append((node, level))
        if level:
            for child in _children(nodes, header, node):
                visit(child, level - 1)

    visit(int(header[ROOT]), int(header[LEVELS]))
    return found


def _children(nodes: Words, header: Words, node: int) -> list[int]:
    first = node + 2 * int(header[ROOM])
    return [int(child) for child in nodes[first : first + nodes[node + COUNT] + 1]]


def entries_at(nodes: Words, header: Words, node: int) -> list[Entry]:
    count, rows = int(nodes[node + COUNT]), node + int(header[ROOM])
    return list(zip(nodes[node : node + count].tolist(), nodes[rows : rows + count].tolist(), strict=True))


def free_nodes(nodes: Words, header: Words, word: int) -> list[int]:
    free = []
    node = int(header[word])
    while node != NONE:
        free.append(node)
        assert len(free) <= header[USED] + header[USED_INNER], "the free list ends"
        node = int(nodes[node + LINK])
    return free
