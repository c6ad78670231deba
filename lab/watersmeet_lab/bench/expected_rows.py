"""The rows a workload must return, identified by their count and an order-independent sum of hashes.

The time of a system counts only if its rows match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import WatersmeetError
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.keys import encode_keys
from watersmeet.operators.row_identity import hash_rows
from watersmeet_lab.bench.join_workloads import JoinWorkload


class DifferentRowsError(WatersmeetError):
    """Two systems return different rows, so there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Expected rows of a workload, from a run over finite input.

    A streaming system emits only finished windows of an aggregation, so its rows may be a prefix of these in time
    order. For that check, `rows_by_time` holds the rows of an aggregation in time order.

    >>> given = ExpectedRows(2, 7, pa.schema([]))
    >>> given.check("flink", 3, 7)
    Traceback (most recent call last):
    watersmeet_lab.bench.expected_rows.DifferentRowsError: flink gives 3 rows with checksum 7, expected 2 with 7
    """

    rows: int
    checksum: int
    schema: pa.Schema
    rows_by_time: pa.Table | None = None

    @classmethod
    def from_result(cls, workload: JoinWorkload, found: pa.Table) -> ExpectedRows:
        """Build the expectation from the rows of a finite run."""
        schema = pa.schema(
            [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in found.schema]
        )
        rows_by_time = found.sort_by("as_of") if workload.join.aggregates else None
        return cls(found.num_rows, row_checksum(found), schema, rows_by_time)

    def check(self, name: str, rows: int, checksum: int) -> None:
        """Raise `DifferentRowsError` if the row count or the checksum of a system differs."""
        expected = self.checksum
        if self.rows_by_time is not None and rows <= self.rows:
            expected = row_checksum(self.rows_by_time.slice(0, rows))
        if (rows, checksum) != (self.rows if self.rows_by_time is None else min(rows, self.rows), expected):
            part = f" for the first {rows:,} of them" if self.rows_by_time is not None and rows < self.rows else ""
            raise DifferentRowsError(
                f"{name} gives {rows:,} rows with checksum {checksum}, expected {self.rows:,} with {expected}{part}"
            )

    def check_table(self, name: str, found: pa.Table) -> None:
        """Check the rows of a table.

        Ignore windows after the last expected one, because the embedded engine does not emit the window in which the
        input ends.
        """
        if self.rows_by_time is not None:
            last_us = pc.max(self.rows_by_time["as_of"]).cast(pa.int64())
            found = found.filter(pc.less_equal(found["as_of"].cast(pa.int64()), last_us))
        self.check(name, found.num_rows, row_checksum(found))


def row_checksum(rows: pa.Table) -> int:
    """Sum the lower 32 bits of each row's Spark hash.

    The hash reads the columns in the order of their names.
    """
    return int((hash_rows(rows.select(sorted(rows.column_names))) & 0xFFFFFFFF).sum())


def have_same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Return whether two tables of fixed-width columns hold the same bag of rows.

    The tables are compared by row count and by the sum of a hash per row.
    """
    return (
        left.num_rows == right.num_rows
        and left.column_names == right.column_names
        and _code_checksum(left) == _code_checksum(right)
    )


def _code_checksum(table: pa.Table) -> int:
    total = 0
    for batch in table.to_batches(max_chunksize=1 << 20):
        codes = np.zeros(batch.num_rows, np.int64)
        for column in batch.columns:
            codes = combine_codes(codes, encode_keys(column))
        total += int(codes.view(np.uint64).sum(dtype=np.uint64))
    return total % 2**64
