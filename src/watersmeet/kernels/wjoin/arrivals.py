"""The new rows of a call in arrival order, and which rows none of those still to come can reach.

The law: new rows arrive by (time, stream, row number), after all old rows. Each joins what arrived before it, so a
combination comes out when its last row arrives, and only then, whatever the times say: equal times, or old rows later
than new ones, cannot repeat it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import piece
from watersmeet.kernels.wjoin.reach import LAST_US, before

NONE = -1


class Arrivals(NamedTuple):
    """Per stream: its next new row, where its rows stop, the time before which none of those still to come can be, and
    if any are.
    """

    next_row: NDArray[np.int64]
    stop: NDArray[np.int64]
    last_us: NDArray[np.int64]
    to_come: NDArray[np.bool_]


@piece
def arrivals_of(times: NDArray[np.int64], offsets: NDArray[np.int64], old: NDArray[np.int64]) -> Arrivals:
    n = old.size
    arrivals = Arrivals(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.bool_))
    for stream in range(n):
        arrivals.next_row[stream] = offsets[stream] + old[stream]
        arrivals.stop[stream] = offsets[stream + 1]
    first = next_stream(times, arrivals)
    for stream in range(n):
        leave(arrivals, stream)
        if first != NONE:
            arrivals.last_us[stream] = times[arrivals.next_row[first]]
    return arrivals


@piece
def next_stream(times: NDArray[np.int64], arrivals: Arrivals) -> int:
    """The stream whose new row arrives next, or NONE."""
    chosen, chosen_us = NONE, LAST_US
    for stream in range(arrivals.next_row.size):
        row = arrivals.next_row[stream]
        if row < arrivals.stop[stream] and (chosen == NONE or times[row] < chosen_us):
            chosen, chosen_us = stream, times[row]
    return chosen


@piece
def arrive(times: NDArray[np.int64], arrivals: Arrivals, stream: int) -> int:
    """Takes the stream's next row: the paper's "update V"."""
    row: int = arrivals.next_row[stream]
    arrivals.next_row[stream] = row + 1
    arrivals.last_us[stream] = times[row]
    return row


@piece
def leave(arrivals: Arrivals, stream: int) -> None:
    """Once its last new row has been joined, a stream no longer holds back the others' buffers: nothing of it is to
    come in this call.
    """
    arrivals.to_come[stream] = arrivals.next_row[stream] < arrivals.stop[stream]


@piece
def out_before(arrivals: Arrivals, reach: NDArray[np.int64], stream: int) -> int:
    """The paper's IsOut as a bound: rows of the stream before it are farther than its reach from the last row of every
    other stream.
    """
    bound_us = LAST_US
    for other in range(reach.size):
        if other != stream and arrivals.to_come[other]:
            bound_us = min(bound_us, before(arrivals.last_us[other], reach[stream]))
    return bound_us  # type: ignore[return-value] # numba's int
