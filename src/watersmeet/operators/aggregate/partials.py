"""Parts of groups that are summed in several places: what one place shows of them, for another to add up.

A place sends signed rows. Of a group that has changed, what it showed before leaves and what it has now enters, with
its sums as they are (not as values: a part may overflow where the whole does not) and its own MIN and MAX. Sums add up;
of all places' MINs the first is the MIN, so the place that merges keeps them as it would keep values of rows
(`aggregate.merging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.operators.aggregate.outputs import aggregate_name, key_name

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

AS_OF_US, SIGN = "as of", "sign"

#: The matrices of a group's sums, as `result_set.Sums` has them.
SUM_MATRICES = ("ints", "approx", "pairs")


def build_partial_batch(
    as_of_us: Int64s,
    sign: int,
    keys: Sequence[pa.Array],
    sums: tuple[Int64s, Float64s, Float64s],
    firsts: Sequence[pa.Array],
) -> pa.RecordBatch:
    """One signed row per group and instant: its keys, its sums, and per MIN or MAX the value it shows."""
    columns: dict[str, Any] = {AS_OF_US: pa.array(as_of_us), SIGN: pa.array(np.full(as_of_us.size, sign, np.int8))}
    columns |= {key_name(number): values for number, values in enumerate(keys)}
    columns |= {
        f"{name} {place}": pa.array(np.ascontiguousarray(matrix[:, place]))
        for name, matrix in zip(SUM_MATRICES, sums, strict=True)
        for place in range(matrix.shape[1])
    }
    columns |= {aggregate_name(number): values for number, values in enumerate(firsts)}
    return pa.RecordBatch.from_pydict(columns)


def read_partial_keys(rows: pa.Table, count: int) -> list[pa.Array]:
    """The values of the group keys in partial rows."""
    return [rows.column(key_name(number)).combine_chunks() for number in range(count)]


def read_partial_extremes(rows: pa.Table, count: int) -> list[pa.Array]:
    return [rows.column(aggregate_name(number)).combine_chunks() for number in range(count)]


def read_partial_sums(rows: pa.Table, name: str, width: int) -> NDArray[Any]:
    """One of the matrices of sums, with the sign in it."""
    signs = rows.column(SIGN).to_numpy()
    matrix = np.zeros((rows.num_rows, width), np.int64 if name == "ints" else np.float64)
    for place in range(width):
        matrix[:, place] = rows.column(f"{name} {place}").to_numpy() * signs
    return matrix
