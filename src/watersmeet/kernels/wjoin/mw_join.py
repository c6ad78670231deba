"""MW-join: a plane sweep over time keeps in the buffers only rows within reach of one another.

So joining needs no window tests. Mode 1 advances the heads of the buffers until they are inside each other's windows:
the starting N-tuple. Its period ends at the first time that one of the heads no longer reaches. Mode 2 admits the rows
up to there in order of time, and each joins all rows that the other buffers hold. Then the head that ended the period
is dropped, and Mode 1 looks for the next starting N-tuple.

The law: a row is dropped only when another stream has no row left inside its window, or when every row not yet admitted
is beyond it. Either way, no combination still to be found contains it. And each combination is found when its last row
in the sweep is admitted: at that moment, and only then, all the others are in the buffers.

In some places the paper's text loses results, repeats them, blocks or is silent. This is what we do there:

1. *Lost at a restart.* When Mode 1 fetches a new row to complete the starting N-tuple, the paper verifies the predicate
   for the starting N-tuple only. The other buffers still hold rows behind their heads from the previous period, and the
   fetched row has to join those as well. Here a starting row is admitted like any other and joins whole buffers. (w =
   10, A = {3, 6}, B = {1, 12}: after 1 is dropped the starting pair is (3, 12); (6, 12) would be missing.)
2. *Lost if read literally.* "All the tuples beyond the starting N-tuples are dropped" can only mean those before them:
   rows behind the heads join rows of later periods.
3. *Repeated.* "For each new and already admitted tuple, Mode 2 performs a nested loop that includes the new tuple and
   all the tuples currently in the other streams' buffers": with two new rows in the buffers, each would find the other.
   Here a row joins only the rows admitted before it, in the order (time, stream, place). So equal times cannot repeat a
   combination either.
4. *Blocking.* Mode 2 ends "when the next tuple from each stream is to the right of the period". So a silent stream
   would keep the others' rows waiting, although they may join its earlier ones. Here the period ends when no row *of
   this call* is left inside it. A stream without rows left ends the call, because nothing can be completed without it.
   The others' rows still belong to the caller, and rows that arrive later join them in the next call.
5. *Rows out of order.* The paper's streams never step back, so it may forget dropped rows. Here a call may bring rows
   earlier than those of the calls before. Old rows take part in the sweep at their own times. Where the last row of a
   combination is an old one, some other row must be new. A drop is for this call only.
6. *Silent: the order of the nested loops.* The shortest buffer is outermost, which compares least; with equal rates it
   makes no difference. Rows that are admitted while some other buffer is empty join nothing and compare nothing. The
   order is ours. Where every stream is busy, all the saving in comparisons over NLW-join is due to it. Rows arrive in
   order of time, so NLW-join's buffers hold hardly anything outside the window either. In NLW-join's circular order,
   both compare the same rows. The sweep itself saves the window test per row. Where some stream is slow against the
   window, it also saves the rows that cannot complete a combination. With two streams there is no order to choose, and
   the sweep costs more than it saves.
7. *Silent: LCA.* The paper omits Mode 1 with a window per stream. Two rows of streams s and r have to be within the
   smaller of the two reaches, since a pair's window never exceeds the largest window of either stream. The period ends
   at the first head's time plus its own stream's reach. Buffers of streams with a longer reach may then hold rows too
   early for a given combination, so loops go from short to long reach. A row u chosen from a stream of reach w then
   bounds the rest from below, by u - w, and never from above. The reason: u is at most w before the row being admitted,
   and nothing in the buffers is after that. One search per loop finds where to start.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), sections 3.2 and
5.1, figures 6 and 10.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, INT, kernel, subroutine
from watersmeet.kernels.wjoin.buffers import LAST_US, latest_within
from watersmeet.kernels.wjoin.outputs import (
    SCANS,
    RecordedScans,
    ScannedRows,
    WindowJoinCounters,
    WindowJoinResult,
    build_result,
    empty_scans,
    new_columns,
    new_counters,
)
from watersmeet.kernels.wjoin.plane_sweep import (
    SWEEP_ROWS,
    PlaneSweep,
    SweepRows,
    has_partners,
    join_admitted_row,
    new_period_scan,
    start_sweep,
)

_NONE = -1


@kernel(SWEEP_ROWS, IN_INT64, INT, INT, IN_INT64)
def mw_join(
    sweep_rows: SweepRows,
    first_new: NDArray[np.int64],
    first_us: int,
    last_us: int,
    reach: NDArray[np.int64],
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, found by a sweep over time.

    Rows of stream s with a number from `first_new[s]` on are new. All of these are between two times. Rows of two
    streams may be as far apart as the shorter of their reaches.
    """
    rows, count, counters, _ = _run(sweep_rows, first_new, first_us, last_us, reach, empty_scans(reach.size))
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(SWEEP_ROWS, IN_INT64, INT, INT, IN_INT64, SCANS)
def mw_scans(
    sweep_rows: SweepRows,
    first_new: NDArray[np.int64],
    first_us: int,
    last_us: int,
    reach: NDArray[np.int64],
    scans: RecordedScans,
) -> ScannedRows:
    """Record the scans of `mw_join` without doing them."""
    _, _, counters, sweep = _run(sweep_rows, first_new, first_us, last_us, reach, scans)
    return ScannedRows(sweep.times, sweep.codes, sweep.rows, counters)


@subroutine
def _run(
    sweep_rows: SweepRows,
    first_new: NDArray[np.int64],
    first_us: int,
    last_us: int,
    reach: NDArray[np.int64],
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], np.int64, WindowJoinCounters, PlaneSweep]:
    n = reach.size
    if n < 2 or first_new.size != n or reach.min() < 0:
        raise ValueError("a window join takes two or more streams, with a window of zero or more each")
    sweep = start_sweep(sweep_rows, reach, first_us, last_us)
    scan = new_period_scan(reach, first_new)
    counters, rows, count = new_counters(n), new_columns(n), np.int64(0)
    while _find_starting_tuple(sweep, reach, counters):
        ends_at, until_us = _period_end(sweep, reach)
        stream = _next_in_period(sweep, until_us)
        while stream != _NONE:
            place = sweep.tail[stream]
            if has_partners(sweep, scan, stream, place):
                rows, count = join_admitted_row(sweep, scan, stream, place, counters, rows, count, scans)
            _admit(sweep, stream, place, first_new, counters)
            stream = _next_in_period(sweep, until_us)
        if until_us == LAST_US:
            break  # a window without end: all rows have been admitted
        _drop_head(sweep, ends_at, counters)
    return rows, count, counters, sweep


@subroutine
def _find_starting_tuple(sweep: PlaneSweep, reach: NDArray[np.int64], counters: WindowJoinCounters) -> bool:
    """Run Mode 1: drop heads until all of them are inside each other's windows.

    Return false if a stream runs out first or all rows are admitted.
    """
    n = reach.size
    to_come = False
    for stream in range(n):
        if sweep.head[stream] == sweep.stop[stream]:
            return False
        to_come |= sweep.tail[stream] < sweep.stop[stream]
    settled = not to_come
    while not settled:
        settled = True
        for stream in range(n):
            for other in range(n):
                needed_us = sweep.times[sweep.head[other]]
                while latest_within(sweep.times[sweep.head[stream]], min(reach[stream], reach[other])) < needed_us:
                    _drop_head(sweep, stream, counters)
                    settled = False
                    if sweep.head[stream] == sweep.stop[stream]:
                        return False
    return to_come


@subroutine
def _drop_head(sweep: PlaneSweep, stream: int, counters: WindowJoinCounters) -> None:
    """Drop the head of a stream. A head that was never admitted is skipped without entering a buffer."""
    if sweep.head[stream] < sweep.tail[stream]:
        counters.expirations[stream] += 1
    else:
        sweep.tail[stream] += 1
    sweep.head[stream] += 1


@subroutine
def _period_end(sweep: PlaneSweep, reach: NDArray[np.int64]) -> tuple[int, int]:
    """Return the stream whose head reaches least far, and how far."""
    ends_at, until_us = 0, LAST_US
    for stream in range(reach.size):
        reached_us = latest_within(sweep.times[sweep.head[stream]], reach[stream])
        if reached_us < until_us:
            ends_at, until_us = stream, reached_us
    return ends_at, until_us  # type: ignore[return-value] # numba's int


@subroutine
def _next_in_period(sweep: PlaneSweep, until_us: int) -> int:
    """Return the stream whose row the sweep meets next, if that row is inside the period, or NONE."""
    chosen, chosen_us = _NONE, until_us
    for stream in range(sweep.head.size):
        place = sweep.tail[stream]
        if place < sweep.stop[stream]:
            time_us = sweep.times[place]
            if time_us < chosen_us or (chosen == _NONE and time_us == chosen_us):
                chosen, chosen_us = stream, time_us
    return chosen


@subroutine
def _admit(sweep: PlaneSweep, stream: int, place: int, old: NDArray[np.int64], counters: WindowJoinCounters) -> None:
    sweep.tail[stream] = place + 1
    if sweep.rows[place] >= old[stream]:
        sweep.fresh[stream] = place
        counters.inserts[stream] += 1
