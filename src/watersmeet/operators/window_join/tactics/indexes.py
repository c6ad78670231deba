"""Lays out the indexes of nested loops: hash buckets as stretches in arrival order, trees as node arenas, filled with
the old rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from watersmeet.kernels import btree, ttree
from watersmeet.kernels.loop_state import BTREE, HASH, TTREE, Indexes, Progress, Steps, Windows, fill_tree
from watersmeet.kernels.tree_header import HEADER
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.pane import Int64s

if TYPE_CHECKING:
    from watersmeet.operators.window_join.tactics.nested_loops import Loops


KINDS = {"hash": HASH, "btree": BTREE, "ttree": TTREE}


def build_indexes(
    config: MeetConfig, loops: Loops, levels: range, steps: Steps, windows: Windows, progress: Progress
) -> tuple[Indexes, Steps]:
    """Build every index that some loop at these levels probes, with the rows that are already there; tell the steps
    which is theirs.
    """
    wanted = _wanted(config, loops, levels)
    window_of = [window for window, _ in wanted]
    sizes = [loops.indexes[window].size for window in window_of]
    kinds = [KINDS[loops.indexes[window].kind] for window in window_of]
    rows = [int(windows.offsets[window + 1] - windows.offsets[window]) for window in window_of]
    buckets = [size if kind == HASH else 0 for size, kind in zip(sizes, kinds, strict=True)]
    placed = [count if kind == HASH else 0 for count, kind in zip(rows, kinds, strict=True)]
    nodes = [_nodes(kind, count, size) for kind, count, size in zip(kinds, rows, sizes, strict=True)]
    indexes = Indexes(
        of_window=np.searchsorted(window_of, np.arange(len(config.inputs) + 1)).astype(np.int64),
        column=np.array([column for _, column in wanted], np.int64),
        kind=np.array(kinds, np.int64),
        size=np.array(sizes, np.int64),
        bucket_at=_starts(buckets)[:-1],
        heads=np.zeros(sum(buckets), np.int64),
        tails=np.zeros(sum(buckets), np.int64),
        placed_at=_starts(placed)[:-1],
        placed_row=np.empty(sum(placed), np.int64),
        placed_value=np.empty(sum(placed), np.int64),
        placed_bucket=np.empty(sum(placed), np.int64),
        nodes_at=_starts(nodes),
        nodes=np.zeros(sum(nodes), np.int64),
        headers=np.zeros((len(wanted), HEADER), np.int64),
    )
    for index in range(len(wanted)):
        _fill(indexes, index, window_of[index], windows, progress)
    return indexes, _with_access(config, loops, levels, steps, wanted)


def _wanted(config: MeetConfig, loops: Loops, levels: range) -> list[tuple[int, int]]:
    """(window, column) of every index that some loop at these levels probes."""
    found = set()
    for origin, order in enumerate(loops.orders):
        for level in levels if order else ():
            column = loops.probed_column(config, origin, level)
            if column is not None:
                found.add((order[level], column))
    return sorted(found)


def _with_access(config: MeetConfig, loops: Loops, levels: range, steps: Steps, wanted: list[tuple[int, int]]) -> Steps:
    for origin, order in enumerate(loops.orders):
        for level in levels if order else ():
            column = loops.probed_column(config, origin, level)
            if column is not None:
                steps.access[origin, level] = wanted.index((order[level], column))
    return steps


def _starts(sizes: list[int]) -> Int64s:
    return np.cumsum([0, *sizes]).astype(np.int64)


def _nodes(kind: int, rows: int, size: int) -> int:
    if kind == HASH:
        return 0
    return int(btree.nodes_size(rows, size) if kind == BTREE else ttree.nodes_size(rows, size))


def _fill(indexes: Indexes, index: int, window: int, windows: Windows, progress: Progress) -> None:
    start = windows.column_at[window, indexes.column[index]]
    values = windows.values[start : start + windows.offsets[window + 1] - windows.offsets[window]]
    old = int(progress.tail[window])
    if indexes.kind[index] == HASH:
        _fill_buckets(indexes, index, values, old)
    else:
        nodes = indexes.nodes[indexes.nodes_at[index] : indexes.nodes_at[index + 1]]
        fill_tree(int(indexes.kind[index]), nodes, indexes.headers[index], values[:old], int(indexes.size[index]))


def _fill_buckets(indexes: Indexes, index: int, values: Int64s, old: int) -> None:
    """Every row, old and new, gets its place in its bucket now; a bucket's tail stands behind its old rows and moves as
    rows arrive.
    """
    size, first = int(indexes.size[index]), int(indexes.bucket_at[index])
    base = int(indexes.placed_at[index])
    bucket = values % size
    order = np.argsort(bucket, kind="stable")
    indexes.placed_row[base : base + values.size] = order
    indexes.placed_value[base : base + values.size] = values[order]
    indexes.placed_bucket[base : base + values.size] = first + bucket
    starts = base + np.searchsorted(bucket[order], np.arange(size))
    indexes.heads[first : first + size] = starts
    indexes.tails[first : first + size] = starts + np.bincount(bucket[:old], minlength=size)
