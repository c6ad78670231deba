"""What must hold of a B+tree and a T-tree between any two operations, read straight from their arrays."""

from __future__ import annotations

import math

from watersmeet.kernels import btree, ttree
from watersmeet.kernels.tree_balance import HEIGHT, LEFT, RIGHT
from watersmeet.kernels.tree_entries import Words
from watersmeet.kernels.tree_header import (
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
    UP,
    USED,
    USED_INNER,
)
from watersmeet.kernels.tree_loads import BTREE

import numpy as np

Entry = tuple[int, int]

#: Words of untouched array on both sides of an arena and a header under test.
WIDTH = 512
_UNTOUCHED = 0x5EA1


def fenced(tree: int, rows: int, node_size: int) -> tuple[Words, Words, list[Words]]:
    """An empty tree in slices of larger arrays, its arena exactly as large as the tree asks for; and those larger arrays."""
    size = (btree if tree == BTREE else ttree).nodes_size(rows, node_size)
    around_nodes, around_header = (np.full(words + 2 * WIDTH, _UNTOUCHED, np.int64) for words in (size, HEADER))
    nodes, header = around_nodes[WIDTH:-WIDTH], around_header[WIDTH:-WIDTH]
    (btree if tree == BTREE else ttree).clear(nodes, header, node_size)
    return nodes, header, [around_nodes, around_header]


def fences_stand(arrays: list[Words]) -> bool:
    return all(bool((fence == _UNTOUCHED).all()) for array in arrays for fence in (array[:WIDTH], array[-WIDTH:]))


def check_invariants(tree: int, nodes: Words, header: Words) -> None:
    entries = entries_of(tree, nodes, header)
    assert entries == sorted(set(entries)), "entries stand in order, each once"
    assert len(entries) == header[INSERTS] - header[REMOVES]
    (_check_btree if tree == BTREE else _check_ttree)(nodes, header)


def entries_of(tree: int, nodes: Words, header: Words) -> list[Entry]:
    return [entry for entries in nodes_in_order(tree, nodes, header) for entry in entries]


def nodes_in_order(tree: int, nodes: Words, header: Words) -> list[list[Entry]]:
    """The entries of each leaf of a B+tree, of each node of a T-tree."""
    if tree == BTREE:
        places = [node for node, level in _btree_nodes(nodes, header) if level == 0]
    else:
        places = _ttree_nodes(nodes, header, int(header[ROOT]))
    return [_entries(nodes, header, node) for node in places]


def _entries(nodes: Words, header: Words, node: int) -> list[Entry]:
    count, rows = int(nodes[node + COUNT]), node + int(header[ROOM])
    return list(zip(nodes[node : node + count].tolist(), nodes[rows : rows + count].tolist(), strict=True))


def _free(nodes: Words, header: Words, word: int) -> list[int]:
    free = []
    node = int(header[word])
    while node != NONE:
        free.append(node)
        assert len(free) <= header[USED] + header[USED_INNER], "the free list ends"
        node = int(nodes[node + LINK])
    return free


def _btree_nodes(nodes: Words, header: Words) -> list[tuple[int, int]]:
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


def _check_btree(nodes: Words, header: Words) -> None:
    size = int(header[NODE_SIZE])
    found = _btree_nodes(nodes, header)
    leaves, inner = ([node for node, level in found if (level > 0) == above] for above in (False, True))
    for node, level in found:
        least = (1 if level else 0) if node == header[ROOT] else size // 2 if level else (size + 1) // 2
        assert least <= nodes[node + COUNT] <= size, "occupancy"
        if level:
            _check_separators(nodes, header, node, level)
    assert [int(nodes[leaf + LINK]) for leaf in leaves] == [*leaves[1:], NONE], "each leaf links to the next"
    _check_btree_arena(nodes, header, leaves, inner)
    held = int(header[INSERTS] - header[REMOVES])
    if header[LEVELS]:
        assert header[LEVELS] <= 1 + math.log(max(1, held / ((size + 1) // 2) / 2), size // 2 + 1) + 1e-9, "height"


def _check_separators(nodes: Words, header: Words, node: int, level: int) -> None:
    def below(child: int, depth: int) -> list[Entry]:
        if depth == 0:
            return _entries(nodes, header, child)
        return [entry for grandchild in _children(nodes, header, child) for entry in below(grandchild, depth - 1)]

    children = [below(child, level - 1) for child in _children(nodes, header, node)]
    for separator, left, right in zip(_entries(nodes, header, node), children[:-1], children[1:], strict=True):
        assert left[-1] <= separator < right[0], "a separator parts its children"


def _check_btree_arena(nodes: Words, header: Words, leaves: list[int], inner: list[int]) -> None:
    size = int(header[NODE_SIZE])
    leaf_words = 3 + 2 * (size + 1)
    inner_words = leaf_words + size + 2
    assert sorted(leaves + _free(nodes, header, FREE)) == [3 + leaf_words * i for i in range(header[USED])], "no leaf is lost"
    inner_places = [nodes.size + 3 - inner_words * (i + 1) for i in range(header[USED_INNER])]
    assert sorted(inner + _free(nodes, header, FREE_INNER)) == inner_places[::-1], "no inner node is lost"
    assert header[USED] * leaf_words + header[USED_INNER] * inner_words <= nodes.size, "the arena is large enough"


def _ttree_nodes(nodes: Words, header: Words, node: int) -> list[int]:
    if node == NONE:
        return []
    left, right = (_ttree_nodes(nodes, header, int(nodes[node + side])) for side in (LEFT, RIGHT))
    return [*left, node, *right]


def _check_ttree(nodes: Words, header: Words) -> None:
    size, root = int(header[NODE_SIZE]), int(header[ROOT])
    found = _ttree_nodes(nodes, header, root)
    least = max(1, size - 2)
    assert root == NONE or nodes[root + UP] == NONE
    for node in found:
        children = [int(nodes[node + side]) for side in (LEFT, RIGHT)]
        heights = [int(nodes[child + HEIGHT]) if child != NONE else 0 for child in children]
        assert nodes[node + HEIGHT] == 1 + max(heights)
        assert abs(heights[0] - heights[1]) <= 1, "balance"
        assert all(nodes[child + UP] == node for child in children if child != NONE)
        assert 1 <= nodes[node + COUNT] <= size, "occupancy"
        if NONE not in children:
            assert nodes[node + COUNT] >= least, "occupancy of a node with two children"
        elif max(children) != NONE:
            assert nodes[node + COUNT] + nodes[max(children) + COUNT] >= least + 1, "occupancy of a half-leaf and its leaf"
    words = 5 + 2 * size
    assert sorted(found + _free(nodes, header, FREE)) == [5 + words * i for i in range(header[USED])], "no node is lost"
    assert header[USED] * words <= nodes.size, "the arena is large enough"
    if found:
        assert nodes[root + HEIGHT] <= 1.4405 * math.log2(len(found) + 2), "height"
