"""Laws of a T-tree between any two operations, read directly from its arrays; and its rotations, loans and merges."""

from __future__ import annotations

import math

import numpy as np

from tests.kernels.test_btree import Entry, entries_at, free_nodes
from watersmeet.kernels import ttree
from watersmeet.kernels.tree_nodes import COUNT, FREE, HEADER, NODE_SIZE, NONE, ROOT, UP, USED, Words
from watersmeet.kernels.ttree import HEIGHT, LEFT, RIGHT


def test_a_leaf_that_rises_between_two_nodes_is_filled_from_the_fuller_one() -> None:
    #   [100 … 103]            [100 … 103]                 [13 50]
    #   /               →      /               →           /     \
    # [10 … 13]              [10 … 13]               [10 11 12]  [100 … 103]
    #                             \ [50]
    for sign, expected in [
        (1, [[10, 11, 12], [13, 50], [100, 101, 102, 103]]),
        (-1, [[-103, -102, -101, -100], [-50, -13], [-12, -11, -10]]),
    ]:
        nodes, header = _fill_tree([sign * key for key in (100, 101, 102, 103, 10, 11, 12, 13, 50)], node_size=4)
        assert _keys_in_order(nodes, header) == expected
        check_ttree(nodes, header)


def test_a_full_node_passes_its_smallest_entry_to_the_bottom_of_its_left_side() -> None:
    nodes, header = _fill_tree([20, 30, 40, 10, 50, 25], node_size=3)
    #    [20 30 40]   10 and 50 become leaves   [25 30 40]
    #                           25 pushes 20 out  /     \
    #                                         [10 20]  [50]
    assert _keys_in_order(nodes, header) == [[10, 20], [25, 30, 40], [50]]
    check_ttree(nodes, header)


def test_a_node_below_the_minimum_borrows_the_previous_entry() -> None:
    nodes, header = _fill_tree([30, 40, 50, 60, 10, 20, 70], node_size=4)
    assert _keys_in_order(nodes, header) == [[10, 20], [30, 40, 50, 60], [70]]
    for key in (40, 50, 60):
        assert ttree.remove(nodes, header, key, key)
    assert _keys_in_order(nodes, header) == [[10], [20, 30], [70]]
    check_ttree(nodes, header)


def test_a_half_leaf_and_its_leaf_become_one_when_they_fit_with_room_to_spare() -> None:
    nodes, header = _fill_tree([30, 40, 50, 60, 10], node_size=4)
    for key in (40, 50):
        assert ttree.remove(nodes, header, key, key)
    assert _keys_in_order(nodes, header) == [[10], [30, 60]]
    assert ttree.remove(nodes, header, 60, 60)
    assert _keys_in_order(nodes, header) == [[10, 30]]
    check_ttree(nodes, header)


def _fill_tree(keys: list[int], node_size: int) -> tuple[Words, Words]:
    """A tree of these keys, each also its row."""
    nodes, header = np.empty(ttree.arena_words(len(keys), node_size), np.int64), np.empty(HEADER, np.int64)
    ttree.clear(nodes, header, node_size)
    for key in keys:
        ttree.insert(nodes, header, key, key)
    return nodes, header


def _keys_in_order(nodes: Words, header: Words) -> list[list[int]]:
    return [[key for key, _ in entries] for entries in nodes_in_order(nodes, header)]


def nodes_in_order(nodes: Words, header: Words) -> list[list[Entry]]:
    return [entries_at(nodes, header, node) for node in _nodes(nodes, int(header[ROOT]))]


def check_ttree(nodes: Words, header: Words) -> None:
    size, root = int(header[NODE_SIZE]), int(header[ROOT])
    found = _nodes(nodes, root)
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
            assert nodes[node + COUNT] + nodes[max(children) + COUNT] >= least + 1, (
                "occupancy of a half-leaf and its leaf"
            )
    words = 5 + 2 * size
    assert sorted(found + free_nodes(nodes, header, FREE)) == [5 + words * i for i in range(header[USED])], (
        "no node is lost"
    )
    assert header[USED] * words <= nodes.size, "the arena is large enough"
    if found:
        assert nodes[root + HEIGHT] <= 1.4405 * math.log2(len(found) + 2), "height"


def _nodes(nodes: Words, node: int) -> list[int]:
    if node == NONE:
        return []
    left, right = (_nodes(nodes, int(nodes[node + side])) for side in (LEFT, RIGHT))
    return [*left, node, *right]
