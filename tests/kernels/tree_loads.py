"""Workloads for the B+tree and the T-tree: mixed operations, probes only, and updates only.

`run_on_sorted_list` defines the results that both trees must return.

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams". The weights P and I of the cost
model are fitted to the times of a probe-only and an update-only load.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

import numpy as np

from watersmeet.kernels import btree, ttree
from watersmeet.kernels.compile import IN_INT64, INT, OUT_INT64, kernel, subroutine
from watersmeet.kernels.tree_nodes import HEADER, Words

BTREE = 0
TTREE = 1

INSERT = 0  # key, row
REMOVE = 1  # key, row
PROBE = 2  # low, high
COUNT_RANGE = 3  # low, high


def run_on_sorted_list(
    entries: list[tuple[int, int]], operations: Iterable[tuple[int, int, int]]
) -> tuple[list[int], list[int]]:
    """Run operations on a sorted list; return the outcome of each and the rows that all probes found.

    The outcome of an insert is 0, of a remove 1 if the row was there, and of a probe or count the number of its rows.

    >>> inserts = [(INSERT, 5, 0), (INSERT, 3, 1), (INSERT, 5, 2)]
    >>> run_on_sorted_list([], [*inserts, (PROBE, 4, 5), (REMOVE, 5, 0), (COUNT_RANGE, 5, 5)])
    ([0, 0, 0, 2, 1, 1], [0, 2])
    """
    outcomes: list[int] = []
    found: list[int] = []
    for operation, first, second in operations:
        outcome = 0
        if operation == INSERT:
            insort(entries, (first, second))
        elif operation == REMOVE:
            place = bisect_left(entries, (first, second))
            if entries[place : place + 1] == [(first, second)]:
                del entries[place]
                outcome = 1
        else:
            rows = [
                row for _, row in entries[bisect_left(entries, (first,)) : bisect_right(entries, (second, math.inf))]
            ]
            found += rows if operation == PROBE else []
            outcome = len(rows)
        outcomes.append(outcome)
    return outcomes, found


@kernel(INT, INT, INT)
def empty_tree(tree: int, rows: int, node_size: int) -> tuple[Words, Words]:
    """Return arena and header of an empty tree, BTREE or TTREE, for at most `rows` rows at a time."""
    return _empty(tree, rows, node_size)  # type: ignore[no-any-return]


@kernel(INT, OUT_INT64, OUT_INT64, IN_INT64, IN_INT64, IN_INT64)
def run_on_tree(
    tree: int, nodes: Words, header: Words, operations: Words, firsts: Words, seconds: Words
) -> tuple[Words, Words]:
    """Run operations on a tree; return the same as `run_on_sorted_list`."""
    outcomes = np.zeros(operations.size, np.int64)
    found = np.empty(64, np.int64)
    at = 0
    for turn in range(operations.size):
        first, second = firsts[turn], seconds[turn]
        if operations[turn] == INSERT:
            _insert(tree, nodes, header, first, second)
        elif operations[turn] == REMOVE:
            outcomes[turn] = int(_remove(tree, nodes, header, first, second))
        else:
            outcomes[turn] = _count_range(tree, nodes, header, first, second)
            if operations[turn] == PROBE:
                if at + outcomes[turn] > found.size:
                    found = np.append(found, np.empty(at + outcomes[turn], np.int64))
                outcomes[turn] = _probe(tree, nodes, header, first, second, found, at) - at
                at += outcomes[turn]
    return outcomes, found[:at].copy()


@kernel(INT, OUT_INT64, OUT_INT64, IN_INT64, INT, INT)
def slide(tree: int, nodes: Words, header: Words, keys: Words, window_rows: int, start: int) -> None:
    """Insert `keys[start:]`, and remove the oldest row as soon as the window overflows.

    The number of a row is its index in `keys`. If `keys` fits into the window, this only builds the window. Otherwise
    the tree must have room for `window_rows` + 1 rows, because a new row enters before the oldest one leaves.
    """
    _slide(tree, nodes, header, keys, window_rows, start)


@kernel(INT, OUT_INT64, OUT_INT64, IN_INT64, IN_INT64, OUT_INT64)
def probe_many(tree: int, nodes: Words, header: Words, lows: Words, highs: Words, out: Words) -> int:
    """Run every probe, each overwriting `out` from its start; return how many rows all probes found."""
    return _probe_many(tree, nodes, header, lows, highs, out)  # type: ignore[no-any-return]


@kernel(INT, IN_INT64, IN_INT64, INT)
def probe_load(tree: int, keys_in_window: Words, probe_keys: Words, node_size: int) -> int:
    """Build a window, then probe every key; return the number of matches."""
    nodes, header = _empty(tree, keys_in_window.size, node_size)
    _slide(tree, nodes, header, keys_in_window, keys_in_window.size, 0)
    return _probe_many(tree, nodes, header, probe_keys, probe_keys, np.empty(keys_in_window.size, np.int64))  # type: ignore[no-any-return]


@kernel(INT, IN_INT64, INT, INT)
def update_load(tree: int, keys: Words, window_rows: int, node_size: int) -> Words:
    """Slide a window of `window_rows` rows over all keys; return the header with its counters."""
    nodes, header = _empty(tree, min(keys.size, window_rows + 1), node_size)
    _slide(tree, nodes, header, keys, window_rows, 0)
    return header  # type: ignore[no-any-return]


def btree_probe_load(keys_in_window: Words, probe_keys: Words, node_size: int) -> int:
    return probe_load(BTREE, keys_in_window, probe_keys, node_size)


def ttree_probe_load(keys_in_window: Words, probe_keys: Words, node_size: int) -> int:
    return probe_load(TTREE, keys_in_window, probe_keys, node_size)


def btree_update_load(keys: Words, window_rows: int, node_size: int) -> Words:
    return update_load(BTREE, keys, window_rows, node_size)


def ttree_update_load(keys: Words, window_rows: int, node_size: int) -> Words:
    return update_load(TTREE, keys, window_rows, node_size)


@subroutine
def _probe_many(tree: int, nodes: Words, header: Words, lows: Words, highs: Words, out: Words) -> int:
    matches = 0
    for turn in range(lows.size):
        matches += _probe(tree, nodes, header, lows[turn], highs[turn], out, 0)
    return matches


@subroutine
def _slide(tree: int, nodes: Words, header: Words, keys: Words, window_rows: int, start: int) -> None:
    for row in range(start, keys.size):
        _insert(tree, nodes, header, keys[row], row)
        if row >= window_rows:
            _remove(tree, nodes, header, keys[row - window_rows], row - window_rows)


@subroutine
def _empty(tree: int, rows: int, node_size: int) -> tuple[Words, Words]:
    header = np.empty(HEADER, np.int64)
    if tree == BTREE:
        nodes = np.empty(btree.arena_words(rows, node_size), np.int64)
        btree.clear(nodes, header, node_size)
    else:
        nodes = np.empty(ttree.arena_words(rows, node_size), np.int64)
        ttree.clear(nodes, header, node_size)
    return nodes, header


@subroutine
def _insert(tree: int, nodes: Words, header: Words, key: int, row: int) -> None:
    if tree == BTREE:
        btree.insert(nodes, header, key, row)
    else:
        ttree.insert(nodes, header, key, row)


@subroutine
def _remove(tree: int, nodes: Words, header: Words, key: int, row: int) -> bool:
    if tree == BTREE:
        return btree.remove(nodes, header, key, row)  # type: ignore[no-any-return]
    return ttree.remove(nodes, header, key, row)  # type: ignore[no-any-return]


@subroutine
def _probe(tree: int, nodes: Words, header: Words, low: int, high: int, out: Words, at: int) -> int:
    if tree == BTREE:
        return btree.probe(nodes, header, low, high, out, at)  # type: ignore[no-any-return]
    return ttree.probe(nodes, header, low, high, out, at)  # type: ignore[no-any-return]


@subroutine
def _count_range(tree: int, nodes: Words, header: Words, low: int, high: int) -> int:
    if tree == BTREE:
        return btree.count_range(nodes, header, low, high)  # type: ignore[no-any-return]
    return ttree.count_range(nodes, header, low, high)  # type: ignore[no-any-return]
