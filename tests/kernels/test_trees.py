"""The B+tree and the T-tree against a sorted list, their laws after any history, and their counters."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.test_btree import Entry, check_btree, leaves_in_order
from tests.kernels.test_ttree import check_ttree, nodes_in_order
from tests.kernels.tree_loads import (
    BTREE,
    COUNT_RANGE,
    INSERT,
    PROBE,
    REMOVE,
    TTREE,
    btree_probe_load,
    btree_update_load,
    empty_tree,
    probe_many,
    run_on_sorted_list,
    run_on_tree,
    slide,
    ttree_probe_load,
    ttree_update_load,
)
from tests.volume import scale_volume
from watersmeet.errors import InternalError
from watersmeet.kernels import btree, ttree
from watersmeet.kernels.compile import subroutine
from watersmeet.kernels.tree_nodes import COMPARISONS, HEADER, INSERTS, PROBES, REMOVES, TOUCHED, Words

LOWEST, HIGHEST = -(2**63), 2**63 - 1
KEYS = (
    st.integers(0, 3)
    | st.integers(-30, 30)
    | st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST])
    | st.integers(LOWEST, HIGHEST)
)
NODE_SIZES = st.integers(2, 8) | st.just(100)
BOTH = pytest.mark.parametrize("tree", [BTREE, TTREE], ids=["btree", "ttree"])
Operation = tuple[int, int, int]
Step = tuple[str, int, int]

#: (kind, key, number): the number is the width of a probed range, or picks the row to remove.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "insert", "oldest", "oldest", "any", "absent", "equal", "range", "count"]),
        KEYS,
        KEYS,
    ),
    max_size=120,
)


#: Words of untouched array on both sides of an arena and a header under test.
WIDTH = 512
_UNTOUCHED = 0x5EA1


def clear_fenced_tree(tree: int, rows: int, node_size: int) -> tuple[Words, Words, list[Words]]:
    """Return an empty tree in slices of larger arrays, and those arrays; its arena is exactly as large as required."""
    size = (btree if tree == BTREE else ttree).arena_words(rows, node_size)
    around_nodes, around_header = (np.full(words + 2 * WIDTH, _UNTOUCHED, np.int64) for words in (size, HEADER))
    nodes, header = around_nodes[WIDTH:-WIDTH], around_header[WIDTH:-WIDTH]
    (btree if tree == BTREE else ttree).clear(nodes, header, node_size)
    return nodes, header, [around_nodes, around_header]


def fences_are_intact(arrays: list[Words]) -> bool:
    return all(bool((fence == _UNTOUCHED).all()) for array in arrays for fence in (array[:WIDTH], array[-WIDTH:]))


def check_invariants(tree: int, nodes: Words, header: Words) -> None:
    entries = entries_of(tree, nodes, header)
    assert entries == sorted(set(entries)), "entries are in order, each once"
    assert len(entries) == header[INSERTS] - header[REMOVES]
    (check_btree if tree == BTREE else check_ttree)(nodes, header)


def entries_of(tree: int, nodes: Words, header: Words) -> list[Entry]:
    in_order = leaves_in_order if tree == BTREE else nodes_in_order
    return [entry for entries in in_order(nodes, header) for entry in entries]


def _operations(steps: list[Step]) -> tuple[list[Operation], int]:
    """Steps as operations, and the most rows held at a time."""
    held: list[tuple[int, int]] = []
    operations: list[Operation] = []
    most = 0
    for row, (kind, key, number) in enumerate(steps):
        if kind == "insert":
            held.append((key, row))
            operations.append((INSERT, key, row))
        elif kind in {"oldest", "any"} and held:
            operations.append((REMOVE, *held.pop(0 if kind == "oldest" else number % len(held))))
        elif kind == "absent":
            operations.append((REMOVE, key, -1 - row))
        else:
            low, high = (key, key) if kind == "equal" else (key, number)
            operations.append((COUNT_RANGE if kind == "count" else PROBE, low, high))
        most = max(most, len(held))
    return operations, most


def _run(tree: int, nodes: Words, header: Words, operations: list[Operation]) -> tuple[list[int], list[int]]:
    kinds, firsts, seconds = (np.array(column, np.int64) for column in zip(*operations, strict=True))
    outcomes, found = run_on_tree(tree, nodes, header, kinds, firsts, seconds)
    return outcomes.tolist(), found.tolist()


@BOTH
@given(steps=STEPS, node_size=NODE_SIZES)
@settings(max_examples=scale_volume(30))
def test_every_operation_does_what_a_sorted_list_does_and_keeps_the_law(
    tree: int, steps: list[tuple[str, int, int]], node_size: int
) -> None:
    operations, most = _operations(steps)
    nodes, header, arena = clear_fenced_tree(tree, most, node_size)
    plain: list[tuple[int, int]] = []
    for operation in operations:
        assert _run(tree, nodes, header, [operation]) == run_on_sorted_list(plain, [operation])
        check_invariants(tree, nodes, header)
    assert entries_of(tree, nodes, header) == plain
    assert fences_are_intact(arena)


@BOTH
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8), seed=st.integers(0, 999), node_size=st.integers(2, 8)
)
@settings(max_examples=scale_volume(20))
def test_a_window_that_grows_and_shrinks_stays_inside_its_arena(
    tree: int, sizes: list[int], seed: int, node_size: int
) -> None:
    rng = np.random.default_rng(seed)
    nodes, header, arena = clear_fenced_tree(tree, max(sizes), node_size)
    held: list[tuple[int, int]] = []
    row = 0
    for size in sizes:
        operations: list[Operation] = []
        while len(held) != size:
            if len(held) < size:
                held.append((int(rng.integers(0, 40)), row))
                operations.append((INSERT, *held[-1]))
                row += 1
            else:
                operations.append((REMOVE, *held.pop(int(rng.integers(0, len(held))))))
        if operations:
            _run(tree, nodes, header, operations)
        check_invariants(tree, nodes, header)
        assert entries_of(tree, nodes, header) == sorted(held)
        probes: list[Operation] = [(PROBE, key, key + width) for key in range(-1, 41) for width in (0, 5)]
        assert _run(tree, nodes, header, probes) == run_on_sorted_list(sorted(held), probes)
    assert fences_are_intact(arena)


KEY_ORDERS = {
    "ascending": np.arange(6000),
    "descending": np.arange(6000)[::-1].copy(),
    "all equal": np.zeros(6000, np.int64),
    "few distinct": np.random.default_rng(1).integers(0, 5, 6000),
    "shuffled": np.random.default_rng(2).permutation(6000),
    "sawtooth": np.arange(6000) % 701 * (1 - np.arange(6000) // 701 % 2 * 2),
}


@BOTH
@pytest.mark.parametrize("node_size", [2, 3, 4, 7, 100])
@pytest.mark.parametrize("order", KEY_ORDERS)
def test_a_sliding_window_holds_its_last_rows_and_keeps_the_law(tree: int, node_size: int, order: str) -> None:
    keys, window_rows = KEY_ORDERS[order], 2000
    nodes, header, arena = clear_fenced_tree(tree, window_rows + 1, node_size)
    done = 0
    for upto in (1, 50, 1999, 2000, 2001, 2777, 4000, 5003, 6000):
        slide(tree, nodes, header, keys[:upto], window_rows, done)
        done = upto
        check_invariants(tree, nodes, header)
        held = sorted((int(keys[row]), row) for row in range(max(0, upto - window_rows), upto))
        assert entries_of(tree, nodes, header) == held
        probes: list[Operation] = [(PROBE, int(key), int(key) + width) for key in keys[::601] for width in (0, 50)]
        assert _run(tree, nodes, header, probes) == run_on_sorted_list(held, probes)
    leaving: list[Operation] = [(REMOVE, int(keys[row]), row) for row in range(4000, 6000)]
    assert _run(tree, nodes, header, leaving) == ([1] * 2000, [])
    assert entries_of(tree, nodes, header) == []
    check_invariants(tree, nodes, header)
    assert fences_are_intact(arena)


@BOTH
def test_a_range_over_all_keys_finds_the_smallest_and_the_largest_int64(tree: int) -> None:
    nodes, header, _ = clear_fenced_tree(tree, 4, 2)
    inserts: list[Operation] = [(INSERT, key, row) for row, key in enumerate([HIGHEST, 0, LOWEST, HIGHEST])]
    probes: list[Operation] = [
        (PROBE, LOWEST, HIGHEST),
        (PROBE, HIGHEST, HIGHEST),
        (PROBE, LOWEST, LOWEST),
        (PROBE, HIGHEST, LOWEST),
    ]
    assert _run(tree, nodes, header, inserts + probes) == ([0, 0, 0, 0, 4, 2, 1, 0], [2, 1, 0, 3, 0, 3, 2])


@BOTH
def test_rows_of_one_key_come_out_in_the_order_of_their_numbers(tree: int) -> None:
    nodes, header, _ = clear_fenced_tree(tree, 50, 4)
    operations: list[Operation] = [(INSERT, 7, row * 13 % 50) for row in range(50)]
    assert _run(tree, nodes, header, [*operations, (PROBE, 7, 7)])[1] == list(range(50))


@pytest.mark.parametrize(
    ("tree", "of_inserts", "of_probe", "of_removes", "of_count"),
    [
        (BTREE, 0 + 1 + 1, 2 + 3, (2 + 1) + (2 + 1), 2 + 1),
        (TTREE, 0 + 2 + 2, 2 + 2 + 3, (2 + 2 + 1) + (2 + 2 + 1), 1 + 1),
    ],
)
def test_every_comparison_is_counted(tree: int, of_inserts: int, of_probe: int, of_removes: int, of_count: int) -> None:
    # One node of three entries. Probing the B+tree takes two to find 20, then the node's last key, 20 itself and 30;
    # removing takes two to find the place and one to see whether the row is there. The T-tree compares with one or both
    # ends before, and is done there when the entry belongs outside.
    nodes, header, _ = clear_fenced_tree(tree, 3, 4)
    _run(tree, nodes, header, [(INSERT, key, row) for row, key in enumerate([10, 20, 30])])
    made = of_inserts
    assert header[COMPARISONS] == made
    assert probe_many(tree, nodes, header, np.array([20]), np.array([20]), np.empty(3, np.int64)) == 1
    made += of_probe
    assert header[COMPARISONS] == made
    assert _run(tree, nodes, header, [(REMOVE, 20, 1), (REMOVE, 20, 1)])[0] == [1, 0]
    made += of_removes
    assert header[COMPARISONS] == made
    assert _run(tree, nodes, header, [(COUNT_RANGE, 0, 99)])[0] == [2]
    made += of_count
    assert header[COMPARISONS] == made
    assert (header[INSERTS], header[REMOVES], header[PROBES], header[TOUCHED]) == (3, 1, 2, 3)


@BOTH
def test_comparisons_of_a_probe_grow_with_the_logarithm_of_the_window(tree: int) -> None:
    equal: list[float] = []
    wide: list[float] = []
    for rows in (10**2, 10**3, 10**4, 10**5, 10**6):
        nodes, header = empty_tree(tree, rows, 100)
        slide(tree, nodes, header, np.random.default_rng(rows).permutation(rows), rows, 0)
        for costs, matches in [(equal, 1), (wide, 40)]:
            each = _comparisons_beyond_matches(tree, nodes, header, rows, matches)
            assert max(each) <= 2 * math.log2(rows) + 12
            costs.append(sum(each) / len(each))
    for costs in (equal, wide):
        steps = np.diff(costs)
        assert max(steps) <= 2 * math.log2(10) + 1.5, "ten times the rows cost a constant more"
    assert equal[4] <= 2 * equal[1] + 2, "the square of the rows costs twice as much"


def _comparisons_beyond_matches(tree: int, nodes: Words, header: Words, rows: int, matches: int) -> list[int]:
    """Of 300 probes: the comparisons each makes less the entries it finds."""
    out = np.empty(matches, np.int64)
    each = []
    for low in np.random.default_rng(matches).integers(0, rows - matches, 300):
        before = int(header[COMPARISONS] - header[TOUCHED])
        assert probe_many(tree, nodes, header, np.array([low]), np.array([low + matches - 1]), out) == matches
        each.append(int(header[COMPARISONS] - header[TOUCHED]) - before)
    return each


@BOTH
def test_an_update_among_equal_keys_costs_a_logarithm_too(tree: int) -> None:
    rows = 20_000
    nodes, header = empty_tree(tree, rows + 1, 100)
    slide(tree, nodes, header, np.zeros(rows, np.int64), rows, 0)
    before = int(header[COMPARISONS])
    slide(tree, nodes, header, np.zeros(2 * rows, np.int64), rows, rows)
    assert (int(header[COMPARISONS]) - before) / (2 * rows) <= 2 * math.log2(rows)


def test_loads_count_matches_and_updates() -> None:
    rng = np.random.default_rng(5)
    keys, probes = rng.integers(0, 500, 3000), rng.integers(0, 500, 1000)
    expected = int((keys[:, None] == probes[None, :]).sum())
    for probe_load, update_load in [(btree_probe_load, btree_update_load), (ttree_probe_load, ttree_update_load)]:
        assert probe_load(keys, probes, 16) == expected
        header = update_load(keys, 1000, 16)
        assert (header[INSERTS], header[REMOVES]) == (3000, 2000)


@subroutine
def _count_in_both(keys: Words, low: int, high: int) -> tuple[int, int]:
    b_size, t_size = btree.arena_words(keys.size, 4), ttree.arena_words(keys.size, 4)
    nodes, header = np.empty(b_size + t_size, np.int64), np.empty(2 * HEADER, np.int64)
    b_nodes, b_header = nodes[:b_size], header[:HEADER]
    t_nodes, t_header = nodes[b_size:], header[HEADER:]
    btree.clear(b_nodes, b_header, 4)
    ttree.clear(t_nodes, t_header, 4)
    for row in range(keys.size):
        btree.insert(b_nodes, b_header, keys[row], row)
        ttree.insert(t_nodes, t_header, keys[row], row)
    return btree.count_range(b_nodes, b_header, low, high), ttree.count_range(t_nodes, t_header, low, high)


def test_two_trees_live_in_slices_of_one_array_inside_a_larger_kernel() -> None:
    assert _count_in_both(np.random.default_rng(6).permutation(100), 10, 19) == (10, 10)


@pytest.mark.parametrize("arena_words", [btree.arena_words, ttree.arena_words])
def test_a_node_must_hold_two_entries(arena_words: Callable[[int, int], int]) -> None:
    with pytest.raises(InternalError, match="at least two entries"):
        arena_words(10, 1)


@BOTH
def test_a_compiled_caller_gets_the_same_error(tree: int) -> None:
    with pytest.raises(InternalError, match="at least two entries"):
        empty_tree(tree, 10, 1)
