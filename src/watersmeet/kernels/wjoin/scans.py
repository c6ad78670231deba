"""Scans that a window join would do, recorded instead of done.

Which rows the buffers hold when a row arrives depends on arrivals alone, not on matches. So a kernel can write down,
per arriving row, the streams in the order of its loops and the stretch of each that is scanned, and the loops can run
later, one depth at a time, with predicates tested in between (`extend`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from watersmeet.kernels.compile import piece
from watersmeet.kernels.wjoin.outputs import Counters


class Scans(NamedTuple):
    """Per recorded row: its stream and number, the streams its loops go over, and from where to where each is scanned.

    `fresh_by` is the last loop that has new rows to offer where the row itself is an old one (MW-join). `used[0]` rows
    are recorded. Without room nothing is recorded: the join is done.
    """

    origin: NDArray[np.int32]
    row: NDArray[np.int32]
    fresh_by: NDArray[np.int32]
    loops: NDArray[np.int32]  # 2-D: [recorded row, depth]
    start: NDArray[np.int32]  # 2-D: [recorded row, stream]
    stop: NDArray[np.int32]  # 2-D
    used: NDArray[np.int64]


_INT32S = types.Array(types.int32, 1, "C")
_INT32S_2D = types.Array(types.int32, 2, "C")
SCANS = types.BaseTuple.from_types([*[_INT32S] * 3, *[_INT32S_2D] * 3, types.Array(types.int64, 1, "C")], Scans)  # type: ignore[no-untyped-call]


class Scanned(NamedTuple):
    """The rows as the scans number them, and the work that does not depend on matches: insertions and expirations."""

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    numbers: NDArray[np.int32]
    counters: Counters


@piece
def no_scans(streams: int) -> Scans:
    nothing, nothing_2d = np.empty(0, np.int32), np.empty((0, streams), np.int32)
    return Scans(nothing, nothing, nothing, nothing_2d, nothing_2d, nothing_2d, np.zeros(1, np.int64))


def room_for_scans(rows: int, streams: int) -> Scans:
    """Room for so many rows. Called by whoever calls a kernel, so not compiled."""
    origin, row, fresh_by = (np.empty(rows, np.int32) for _ in range(3))
    loops, start, stop = (np.empty((rows, streams), np.int32) for _ in range(3))
    return Scans(origin, row, fresh_by, loops, start, stop, np.zeros(1, np.int64))
