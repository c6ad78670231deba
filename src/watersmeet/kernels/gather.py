"""Values by row number.

NumPy's own indexing takes three to four times as long with 32-bit row numbers, because it converts and checks them. Row
numbers come from our own kernels and panes and are always in range, so they are not checked here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT32, IN_INT64, INT, OUT_INT64, kernel


@kernel(IN_INT64, IN_INT32)
def gather_int64(values: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return `values[rows]`."""
    found = np.empty(rows.size, np.int64)
    for at in range(rows.size):
        found[at] = values[rows[at]]
    return found


@kernel(IN_INT32, IN_INT32)
def gather_int32(values: NDArray[np.int32], rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return `values[rows]`."""
    found = np.empty(rows.size, np.int32)
    for at in range(rows.size):
        found[at] = values[rows[at]]
    return found


@kernel(IN_INT64, INT, INT, OUT_INT64, OUT_INT64, allocates=False)
def tighten_bounds(
    times: NDArray[np.int64], before_us: int, after_us: int, low: NDArray[np.int64], high: NDArray[np.int64]
) -> None:
    """Raise `low` to `times - before_us` and lower `high` to `times + after_us`, in place.

    `tighten_bounds_definition` is the law.
    """
    for at in range(times.size):
        low[at] = max(low[at], times[at] - before_us)
        high[at] = min(high[at], times[at] + after_us)


def tighten_bounds_definition(
    times: NDArray[np.int64], before_us: int, after_us: int, low: NDArray[np.int64], high: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.maximum(low, times - before_us), np.minimum(high, times + after_us)
