"""Whole results of an aggregation: all groups that are shown, at every evaluation.

The result set reports changes by instant. The builder keeps the row of each shown group, applies the changes in order,
and emits all rows at each instant that is due. Its content follows from the sums in the state, so it is not saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.config import AS_OF_TYPE

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Row number of a group that is not shown.
HIDDEN = -1


@dataclass(frozen=True)
class _GroupChanges:
    """Changed groups by instant. `rows` numbers their rows in `table`; a hidden group has none."""

    as_of_us: Int64s
    groups: Int64s
    rows: Int64s
    table: pa.Table


@dataclass
class _PendingChanges:
    """Changes in the order of their instants; those before `applied` are in `row_of_group`."""

    as_of_us: Int64s
    groups: Int64s
    rows: Int64s
    row_of_group: Int64s
    applied: int = 0

    @property
    def next_us(self) -> int | None:
        """Instant of the next change; None after the last."""
        return int(self.as_of_us[self.applied]) if self.applied < self.as_of_us.size else None

    def apply_until(self, instant_us: int) -> None:
        """Apply the changes up to and including this instant."""
        end = int(np.searchsorted(self.as_of_us, instant_us, side="right"))
        chosen = slice(self.applied, end)
        self.row_of_group[self.groups[chosen]] = self.rows[chosen]  # numpy keeps the last value per index
        self.applied = max(self.applied, end)


@dataclass
class SnapshotBuilder:
    """Rows of the shown groups, and the changes that are not applied yet; `schema` is that of the result."""

    schema: pa.Schema
    is_started: bool = False
    _shown: pa.Table | None = None
    _row_of_group: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    _changes: list[_GroupChanges] = field(default_factory=list)

    def start(self) -> None:
        """Start with no group shown."""
        self.is_started = True
        self._shown, self._changes = self._outputs.empty_table(), []
        self._row_of_group = np.empty(0, np.int64)

    def record(self, as_of_us: Int64s, groups: Int64s, shown: Bools, outputs: list[pa.Array[Any]]) -> None:
        """Record changed groups by instant, in order; `outputs` has a row for each that is shown."""
        rows = np.where(shown, np.cumsum(shown) - 1, HIDDEN)
        table = pa.Table.from_arrays(outputs, schema=self._outputs)
        self._changes.append(_GroupChanges(as_of_us, groups, rows, table))

    def emit_at(self, instants_us: Int64s) -> Iterator[pa.RecordBatch]:
        """Apply the recorded changes and yield all rows at each of these instants, which are in order."""
        changes = self._collect_changes()
        for instant_us in instants_us.tolist():
            changes.apply_until(instant_us)
            yield from self._build_batch(instant_us)
        changes.apply_until(FOREVER_US)
        self._drop_hidden_rows()

    def emit_every(self, every_us: int, after_us: int, until_us: int) -> Iterator[pa.RecordBatch]:
        """Apply the recorded changes and yield all rows at each multiple of `every_us` in `(after_us, until_us]`.

        Multiples at which no group is shown yield nothing, so they are skipped up to the next change.
        """
        changes = self._collect_changes()
        instant_us = (after_us // every_us + 1) * every_us
        while instant_us <= until_us:
            changes.apply_until(instant_us)
            if np.all(self._row_of_group == HIDDEN):
                if changes.next_us is None:
                    break
                instant_us = max(instant_us + every_us, -(-changes.next_us // every_us) * every_us)
                continue
            yield from self._build_batch(instant_us)
            instant_us += every_us
        changes.apply_until(FOREVER_US)
        self._drop_hidden_rows()

    def _collect_changes(self) -> _PendingChanges:
        """Append the rows of all changes to the shown ones, and return the changes with their rows in that table."""
        if self._shown is None:
            raise InternalError("snapshots were not started")
        tables, numbers, first = [self._shown], [np.empty(0, np.int64)], self._shown.num_rows
        for each in self._changes:
            numbers.append(np.where(each.rows == HIDDEN, HIDDEN, each.rows + first))
            tables.append(each.table)
            first += each.table.num_rows
        as_of_us, groups = (
            np.concatenate([np.empty(0, np.int64), *(getattr(each, name) for each in self._changes)])
            for name in ("as_of_us", "groups")
        )
        self._shown, self._changes = pa.concat_tables(tables), []
        used = int(groups.max(initial=-1)) + 1
        if used > self._row_of_group.size:
            larger = np.full(used, HIDDEN, np.int64)
            larger[: self._row_of_group.size] = self._row_of_group
            self._row_of_group = larger
        return _PendingChanges(as_of_us, groups, np.concatenate(numbers), self._row_of_group)

    def _build_batch(self, instant_us: int) -> Iterator[pa.RecordBatch]:
        if self._shown is None:
            raise InternalError("snapshots were not started")
        shown = self._row_of_group[self._row_of_group != HIDDEN]
        if not shown.size:
            return
        as_of = pa.array(np.full(shown.size, instant_us, np.int64)).cast(AS_OF_TYPE)
        whole = self._shown.take(shown).append_column(self.schema.field(len(self.schema) - 1), as_of)
        yield from whole.combine_chunks().to_batches()

    def _drop_hidden_rows(self) -> None:
        if self._shown is None:
            raise InternalError("snapshots were not started")
        shown = np.flatnonzero(self._row_of_group != HIDDEN)
        self._shown = self._shown.take(self._row_of_group[shown]).combine_chunks()
        self._row_of_group[shown] = np.arange(shown.size)

    @property
    def _outputs(self) -> pa.Schema:
        """Schema of the groups' rows, without the instant."""
        return self.schema.remove(len(self.schema) - 1)
