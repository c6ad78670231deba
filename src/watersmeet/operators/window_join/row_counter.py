"""ROWS windows: which row leaves the last C rows of its stream or partition, and when.

The counter sees rows in ≺ order, before the WHERE clause: a row that fails it is still one of the last C.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.windows import RowLimit
from watersmeet.kernels.last_rows import NONE, push_rows
from watersmeet.operators.ordering import PartitionKey, group_by_partition

Int64s = NDArray[np.int64]


def _no_numbers() -> Int64s:
    return np.empty(0, np.int64)


@dataclass
class RowCounter:
    """The last `limit.count` rows per partition, as sequence numbers."""

    limit: RowLimit
    partitions: dict[PartitionKey, int] = field(default_factory=dict)
    oldest: Int64s = field(default_factory=_no_numbers)
    newest: Int64s = field(default_factory=_no_numbers)
    held: Int64s = field(default_factory=_no_numbers)
    node_seq: Int64s = field(default_factory=_no_numbers)
    node_next: Int64s = field(default_factory=_no_numbers)
    nodes: int = 0
    next_seq: int = 0

    def push(self, table: pa.Table) -> tuple[Int64s, Int64s]:
        """Count rows in ≺ order; return their sequence numbers and the number of the row each pushes out, or −1."""
        numbers = self._partition_numbers(table)
        self._reserve(numbers)
        first = self.next_seq
        leaving, self.nodes = push_rows(
            numbers,
            first,
            self.limit.count,
            self.oldest,
            self.newest,
            self.held,
            self.node_seq,
            self.node_next,
            self.nodes,
        )
        self.next_seq = first + table.num_rows
        return np.arange(first, self.next_seq, dtype=np.int64), leaving

    def copy(self) -> RowCounter:
        return RowCounter(
            self.limit,
            dict(self.partitions),
            self.oldest.copy(),
            self.newest.copy(),
            self.held.copy(),
            self.node_seq.copy(),
            self.node_next.copy(),
            self.nodes,
            self.next_seq,
        )

    def _partition_numbers(self, table: pa.Table) -> Int64s:
        columns = [table.column(name).combine_chunks() for name in self.limit.partition_by]
        groups, values = group_by_partition(columns, table.num_rows)
        known = np.array([self.partitions.setdefault(value, len(self.partitions)) for value in values], np.int64)
        return known[groups] if known.size else np.empty(0, np.int64)

    def _reserve(self, numbers: Int64s) -> None:
        """Reserve room for every partition and for all the new rows in addition to those held now."""
        count = len(self.partitions)
        self.oldest, self.newest = _enlarge(self.oldest, count, NONE), _enlarge(self.newest, count, NONE)
        self.held = _enlarge(self.held, count, 0)
        room = self.nodes + numbers.size
        self.node_seq, self.node_next = _enlarge(self.node_seq, room, NONE), _enlarge(self.node_next, room, NONE)


def _enlarge(values: Int64s, size: int, filler: int) -> Int64s:
    if values.size >= size:
        return values
    grown = np.full(max(size, 2 * values.size), filler, np.int64)
    grown[: values.size] = values
    return grown
