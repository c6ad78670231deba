"""Indexes on the windows of nested loops, kept between batches: hash buckets, B+trees and T-trees.

The kernel inserts each row as it arrives, and removes it when it expires. Between batches, buckets get room for the new
rows. A batch may bring rows earlier than those of the batch before, so rows that have expired too early for them return
to the indexes. `LiveRows` decides when a row is out of use for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from watersmeet.algebra.plan import Index
from watersmeet.kernels import btree, ttree
from watersmeet.kernels.buckets import make_room
from watersmeet.kernels.loop_state import (
    BTREE,
    HASH,
    TTREE,
    LoopIndexes,
    fill_tree,
    insert_into_tree,
    renumber_tree,
)
from watersmeet.kernels.tree_nodes import HEADER
from watersmeet.operators.window_join.pane import Int64s
from watersmeet.operators.window_join.tactics.live_rows import LiveRows

INDEX_KINDS = {"hash": HASH, "btree": BTREE, "ttree": TTREE}

_NO_VALUES: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True)
class LiveIndexes:
    """Indexes by (window, column), with the ranges of their buckets. `arena_at` tells where those of an index begin."""

    rows: LiveRows
    probed: tuple[tuple[int, int], ...]
    arrays: LoopIndexes
    arena_at: Int64s
    starts: Int64s
    limits: Int64s
    incoming: Int64s
    used: Int64s
    placed_time: Int64s  # as long as `placed_row`, or empty if nothing reads times by place

    def fill(self, oldest: Int64s, tail: Int64s) -> None:
        """Build every index over the rows from `oldest` up to `tail`; buckets get room for the rows behind these."""
        for index, (window, _) in enumerate(self.probed):
            if self.arrays.kind[index] == HASH:
                self._note_buckets(index, 0, int(self.rows.tail[window]))
                self._fill_buckets(index, int(oldest[window]), int(tail[window]))
            else:
                nodes, header = self._tree(index)
                fill_tree(int(self.arrays.kind[index]), nodes, header, _NO_VALUES, int(self.arrays.size[index]))
                insert_into_tree(
                    int(self.arrays.kind[index]),
                    nodes,
                    header,
                    self._values(index),
                    int(oldest[window]),
                    int(tail[window]),
                )

    def drop_front(self, dropped: Int64s) -> None:
        """Renumber the rows of windows that dropped rows from their front."""
        for index, (window, _) in enumerate(self.probed):
            count = int(dropped[window])
            if not count:
                continue
            if self.arrays.kind[index] == HASH:
                self.arrays.placed_row[self.arena_at[index] : self.used[index]] -= count
                buckets = self._bucket_of_row(index)
                stop = int(self.rows.tail[window])
                buckets[:stop] = buckets[count : count + stop]
            else:
                renumber_tree(int(self.arrays.kind[index]), *self._tree(index), count)

    def take_back(self, window: int, first: int, oldest: int) -> None:
        """Insert the rows from `first` up to `oldest` again, which have expired before."""
        for index in np.flatnonzero([each == window for each, _ in self.probed]).tolist():
            if self.arrays.kind[index] == HASH:
                np.subtract.at(self.arrays.heads, self._bucket_of_row(index)[first:oldest], 1)
            else:
                insert_into_tree(int(self.arrays.kind[index]), *self._tree(index), self._values(index), first, oldest)

    def drop_released(self, before: Int64s) -> None:
        """Remove the rows that have been released since each window's first row was this one."""
        for index, (window, _) in enumerate(self.probed):
            released = self._bucket_of_row(index)[int(before[window]) : int(self.rows.first[window])]
            np.add.at(self.arrays.heads, released, 1)

    def make_room(self, oldest: Int64s, tail: Int64s) -> None:
        """Give the buckets room for the rows from `tail` on."""
        for index, (window, _) in enumerate(self.probed):
            first, stop = int(tail[window]), int(self.rows.tail[window])
            if self.arrays.kind[index] != HASH or first == stop:
                continue
            self._note_buckets(index, first, stop)
            arrays, used = self.arrays, self.used[index : index + 1]
            if not make_room(
                self._bucket_of_row(index)[first:stop],
                self.incoming,
                self.starts,
                self.limits,
                arrays.heads,
                arrays.tails,
                arrays.placed_row,
                arrays.placed_value,
                self.placed_time,
                used,
                int(self.arena_at[index + 1]),
                int(self.rows.first[window]),
            ):
                self._fill_buckets(index, int(oldest[window]), first)

    def _note_buckets(self, index: int, first: int, stop: int) -> None:
        values = self._values(index)[first:stop]
        self._bucket_of_row(index)[first:stop] = self.arrays.bucket_at[index] + values % self.arrays.size[index]

    def _fill_buckets(self, index: int, oldest: int, tail: int) -> None:
        """Place all rows again. Each bucket gets room for half as many rows again, at least two.

        Rows behind `tail` have room in their bucket and are not part of it yet.
        """
        window, _ = self.probed[index]
        first, stop = int(self.rows.first[window]), int(self.rows.tail[window])
        buckets = slice(int(self.arrays.bucket_at[index]), int(self.arrays.bucket_at[index] + self.arrays.size[index]))
        size, bucket = buckets.stop - buckets.start, self._bucket_of_row(index)[first:stop] - buckets.start
        counts = np.bincount(bucket, minlength=size)
        ranges = _offsets(counts + counts // 2 + 2) + self.arena_at[index]
        order = np.argsort(bucket, kind="stable")
        places = ranges[bucket[order]] + np.arange(order.size) - np.repeat(_offsets(counts)[:-1], counts)
        self.arrays.placed_row[places] = first + order
        self.arrays.placed_value[places] = self._values(index)[first:stop][order]
        if self.placed_time.size:
            times = self.rows.times[self.rows.offsets[window] + first : self.rows.offsets[window] + stop]
            self.placed_time[places] = times[order]
        self.starts[buckets], self.limits[buckets] = ranges[:-1], ranges[1:]
        self.arrays.heads[buckets] = ranges[:-1] + np.bincount(bucket[: oldest - first], minlength=size)
        self.arrays.tails[buckets] = ranges[:-1] + np.bincount(bucket[: tail - first], minlength=size)
        self.used[index] = ranges[-1]

    def _tree(self, index: int) -> tuple[Int64s, Int64s]:
        arrays = self.arrays
        return arrays.nodes[arrays.nodes_at[index] : arrays.nodes_at[index + 1]], arrays.headers[index]

    def _bucket_of_row(self, index: int) -> Int64s:
        return self.views[index][0]

    def _values(self, index: int) -> Int64s:
        return self.views[index][1]

    @cached_property
    def views(self) -> list[tuple[Int64s, Int64s]]:
        """The bucket and the indexed value of each row of an index's window."""
        found = []
        for index, (window, column) in enumerate(self.probed):
            room = int(self.rows.offsets[window + 1] - self.rows.offsets[window])
            start, at = int(self.arrays.placed_at[index]), int(self.rows.column_at[window, column])
            found.append((self.arrays.placed_bucket[start : start + room], self.rows.values[at : at + room]))
        return found


def allocate_indexes(
    rows: LiveRows, probed: tuple[tuple[int, int], ...], chosen: tuple[Index, ...], *, with_times: bool = False
) -> LiveIndexes:
    """Allocate the indexes on these (window, column) pairs for all rows that their windows have room for.

    With `with_times`, buckets also hold the times of their rows.
    """
    window_of = [window for window, _ in probed]
    sizes = [chosen[window].size for window in window_of]
    kinds = [INDEX_KINDS[chosen[window].kind] for window in window_of]
    room = [int(rows.offsets[window + 1] - rows.offsets[window]) for window in window_of]
    buckets = [size if kind == HASH else 0 for size, kind in zip(sizes, kinds, strict=True)]
    placed = [count if kind == HASH else 0 for count, kind in zip(room, kinds, strict=True)]
    arenas = [2 * (count + size) for count, size in zip(placed, buckets, strict=True)]
    nodes = [_tree_size(kind, count, size) for kind, count, size in zip(kinds, room, sizes, strict=True)]
    starts, limits, incoming, heads, tails = (np.zeros(sum(buckets), np.int64) for _ in range(5))
    arrays = LoopIndexes(
        of_window=np.searchsorted(window_of, np.arange(len(chosen) + 1)).astype(np.int64),
        column=np.array([column for _, column in probed], np.int64),
        kind=np.array(kinds, np.int64),
        size=np.array(sizes, np.int64),
        bucket_at=_offsets(buckets)[:-1],
        heads=heads,
        tails=tails,
        placed_at=_offsets(placed)[:-1],
        placed_row=np.empty(sum(arenas), np.int64),
        placed_value=np.empty(sum(arenas), np.int64),
        placed_bucket=np.empty(sum(placed), np.int64),
        nodes_at=_offsets(nodes),
        nodes=np.zeros(sum(nodes), np.int64),
        headers=np.zeros((len(probed), HEADER), np.int64),
    )
    arena_at = _offsets(arenas)
    placed_time = np.empty(sum(arenas) if with_times else 0, np.int64)
    return LiveIndexes(rows, probed, arrays, arena_at, starts, limits, incoming, arena_at[:-1].copy(), placed_time)


def _offsets(sizes: list[int] | Int64s) -> Int64s:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _tree_size(kind: int, rows: int, size: int) -> int:
    if kind == HASH:
        return 0
    return int(btree.arena_words(rows, size) if kind == BTREE else ttree.arena_words(rows, size))
