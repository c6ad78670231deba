"""How far apart in time two rows may be: sums of times and windows that stop at the ends of int64 instead of wrapping
round.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import piece

FIRST_US = np.int64(-(2**63))
LAST_US = np.int64(2**63 - 1)


@piece
def capped_reach(
    offsets: NDArray[np.int64], old: NDArray[np.int64], window_us: int, reach_us: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Per stream, how far its rows reach: its own window, never more than the window of all pairs. Refuses what no
    caller may pass.
    """
    if old.size < 2 or reach_us.size != old.size or offsets.size != old.size + 1:
        raise ValueError(
            "a window join takes two or more streams, with one reach, one count of old rows and one offset each"
        )
    reach = np.empty(old.size, np.int64)
    for stream in range(old.size):
        reach[stream] = min(window_us, reach_us[stream])
        if reach[stream] < 0:
            raise ValueError("a window cannot be shorter than zero")
    return reach


@piece
def before(time_us: int, reach_us: int) -> int:
    """The earliest time within reach. Asked before subtracting: the compiler takes it that a difference never wraps."""
    return FIRST_US if time_us < FIRST_US + reach_us else time_us - reach_us  # type: ignore[return-value] # numba's int


@piece
def after(time_us: int, reach_us: int) -> int:
    """The latest time within reach."""
    return LAST_US if time_us > LAST_US - reach_us else time_us + reach_us  # type: ignore[return-value] # numba's int
