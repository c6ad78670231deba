"""What a workload's rows are, by count and by a sum of hashes that no order changes. No time counts before they are
found the same.
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
    """Two systems do not give the same rows, so there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The rows of a finite run. Streams do not end, so of an aggregation they show the windows that are over, and
    `rows_by_time` has the rows in order of time.

    >>> given = ExpectedRows(2, 7, pa.schema([]))
    >>> given.check("flink", 3, 7)
    Traceback (most recent call last):
    watersmeet_lab.bench.expected_rows.DifferentRowsError: flink gives 3 rows with checksum 7, not 2 with 7, so there is
    nothing to compare
    """

    rows: int
    checksum: int
    schema: pa.Schema
    rows_by_time: pa.Table | None = None

    @classmethod
    def from_result(cls, workload: JoinWorkload, found: pa.Table) -> ExpectedRows:
        schema = pa.schema(
            [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in found.schema]
        )
        rows_by_time = found.sort_by("as_of") if workload.join.aggregates else None
        return cls(found.num_rows, row_checksum(found), schema, rows_by_time)

    def check(self, name: str, rows: int, found: int) -> None:
        """Refuses the figures of a system with other rows."""
        wanted = self.checksum
        if self.rows_by_time is not None and rows <= self.rows:
            wanted = row_checksum(self.rows_by_time.slice(0, rows))
        if (rows, found) != (self.rows if self.rows_by_time is None else min(rows, self.rows), wanted):
            raise DifferentRowsError(
                f"{name} gives {rows:,} rows with checksum {found}, not {self.rows:,} with {wanted}, so there is nothing to compare"
            )

    def check_table(self, name: str, found: pa.Table) -> None:
        """The same for rows at hand. The window in which the input ends is not over for us, so it is left out."""
        if self.rows_by_time is not None:
            last_us = pc.max(self.rows_by_time["as_of"]).cast(pa.int64())
            found = found.filter(pc.less_equal(found["as_of"].cast(pa.int64()), last_us))
        self.check(name, found.num_rows, row_checksum(found))


def row_checksum(rows: pa.Table) -> int:
    """The sum over all rows of the lower half of Spark's own hash of a row, its columns in the order of their names."""
    return int((hash_rows(rows.select(sorted(rows.column_names))) & 0xFFFFFFFF).sum())


def have_same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables of fixed-width columns hold the same bag of rows, by count and by the sum of a hash per row."""
    return (
        left.num_rows == right.num_rows
        and left.column_names == right.column_names
        and _key_checksum(left) == _key_checksum(right)
    )


def _key_checksum(table: pa.Table) -> int:
    total = 0
    for batch in table.to_batches(max_chunksize=1 << 20):
        codes = np.zeros(batch.num_rows, np.int64)
        for column in batch.columns:
            codes = combine_codes(codes, encode_keys(column))
        total += int(codes.view(np.uint64).sum(dtype=np.uint64))
    return total % 2**64
