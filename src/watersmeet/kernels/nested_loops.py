"""Multi-way joins as nested loops over sliding windows: the core that the papers' nested-loop joins share.

Windows hold rows in arrival order. A new row k of one window, the origin, joins the rows that arrived before it in
every other window. Each loop scans the whole window or the rows that an index on it returns. The loop orders, the place
of k in them, and the times of evaluation and expiration are arguments. The papers' algorithms are choices of these
arguments (`operators.window_join.tactics`).

Conditions are checked as soon as two rows of a combination are known. They are every time bound between the two rows,
and that each row is still valid at the latest time among them. So no result depends on when it is computed, and rows
that are expired late do no harm.

A predicate that is not a comparison of codes cannot be tested here. Where such a predicate binds between two loops, the
nest is cut into stages. A stage runs only its own loops and returns partial matches. The caller tests the predicate on
many partial matches at once, and the next stage continues from the survivors. Windows and indexes depend on arrivals
alone, not on matches. So every stage lets the same rows arrive and expire, and it finds each window as it was when the
partial match was made. A nest without such predicates is one stage.

References: Golab, Özsu, "Processing sliding window multi-joins in continuous queries over data streams", sections 3.2
to 3.6; Kang, Naughton, Viglas, "Evaluating window joins over unbounded streams", section 3.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import INT, inlined_subroutine, kernel
from watersmeet.kernels.loop_state import (
    ARRIVALS,
    AT_LEAST,
    AT_MOST,
    COUNTERS,
    EQUAL,
    HASH,
    HIGHEST,
    INDEXES,
    LESS,
    LEVEL,
    LOOPS,
    LOWEST,
    MORE,
    NEXT_ARRIVAL,
    NEXT_EVALUATION,
    NEXT_EXPIRATION,
    NEXT_PARTIAL,
    ORIGIN,
    OUT_ROWS,
    PENDING,
    PROGRESS,
    STAGE,
    STEPS,
    UNEQUAL,
    WINDOWS,
    LoopArrivals,
    LoopCounters,
    LoopCursors,
    LoopIndexes,
    LoopProgress,
    LoopStage,
    LoopSteps,
    LoopWindows,
    Rows,
    expire_rows,
    insert_row,
    probe_tree,
)

# Ways to find the rows of a loop without an index: all rows, or those equal to a key.
SCAN, SCAN_EQUAL = -1, 0

# Bounds on the rows of a loop: times, the time at which they must be valid, positions in the order of arrival.
FROM, UNTIL, LATEST, AFTER, BEFORE = 0, 1, 2, 3, 4


@kernel(WINDOWS, ARRIVALS, STEPS, INDEXES, PROGRESS, LOOPS, COUNTERS, INT, INT, STAGE, OUT_ROWS, allocates=False)
def join_arrivals(  # noqa: PLR0912, PLR0915 # one loop nest: see the docstring
    windows: LoopWindows,
    arrivals: LoopArrivals,
    steps: LoopSteps,
    indexes: LoopIndexes,
    progress: LoopProgress,
    loops: LoopCursors,
    counters: LoopCounters,
    evaluate_us: int,
    expire_us: int,
    stage: LoopStage,
    out: Rows,
) -> int:
    """Let rows arrive in order and join them; return the number of matches found.

    The call returns when `out` is full, partial matches run out, or all rows have arrived. The next call continues at
    the same position, inside the loops if necessary.

    A partial match has rows only for the windows of its stage and of earlier stages. After the windows' rows, `out` has
    the number of arrivals and the origin. With `evaluate_us` 0, every row is joined as it arrives; otherwise all rows
    of each interval are joined together. `expire_us` does the same for expiration.

    The function allocates nothing and all its subroutines are inlined, so the loops count no references.
    """
    order, access, conditions = steps.order, steps.access, steps.conditions
    op, column, bound, bound_column = steps.op, steps.column, steps.bound, steps.bound_column
    times, ends, ranks, offsets = windows.times, windows.ends, windows.ranks, windows.offsets
    values, column_at, later_by, keep = windows.values, windows.column_at, windows.later_by, windows.keep
    of_window, index_column, index_kind, index_size = indexes.of_window, indexes.column, indexes.kind, indexes.size
    bucket_at, heads, tails, placed_at = indexes.bucket_at, indexes.heads, indexes.tails, indexes.placed_at
    placed_row, placed_value, placed_bucket = indexes.placed_row, indexes.placed_value, indexes.placed_bucket
    nodes_at, nodes, headers = indexes.nodes_at, indexes.nodes, indexes.headers
    oldest, evaluated, tail, clock = progress.oldest, progress.evaluated, progress.tail, progress.clock
    chosen, cursor, stop, kind, key = loops.chosen, loops.cursor, loops.stop, loops.kind, loops.key
    bounds, candidates = loops.bounds, loops.candidates
    comparisons, passed = counters.comparisons, counters.touched
    arriving, arriving_row = arrivals.input, arrivals.row

    inputs = order.shape[0]
    first_level, last, room = stage.bounds[0], stage.bounds[1], out.shape[1]
    partials, partial_count, more_to_come, is_first = stage.partials, stage.bounds[2], stage.bounds[3], stage.bounds[4]
    used, at, total = 0, clock[NEXT_ARRIVAL], arriving.size
    while True:
        now = times[offsets[arriving[at]] + arriving_row[at]] if at < total else HIGHEST
        if clock[PENDING] and (evaluate_us == 0 or now >= clock[NEXT_EVALUATION]):
            origin, level, opening = clock[ORIGIN], clock[LEVEL], False
            while origin < inputs:
                if level < first_level and is_first:
                    if evaluated[origin] == tail[origin]:
                        origin += 1
                        continue
                    level, opening = 0, True
                elif level < first_level:
                    following = clock[NEXT_PARTIAL]
                    if following == partial_count and more_to_come:
                        clock[NEXT_ARRIVAL], clock[ORIGIN], clock[LEVEL] = at, origin, -1
                        return used
                    if (
                        following == partial_count
                        or partials[inputs, following] != at
                        or partials[inputs + 1, following] != origin
                    ):
                        origin += 1
                        continue
                    for loop in range(first_level):
                        chosen[loop] = partials[order[origin, loop], following]
                    clock[NEXT_PARTIAL] = following + 1
                    level, opening = first_level, True
                while level >= first_level:
                    window = order[origin, level]
                    if opening:
                        opening = False
                        way = _choose_access(order, access, conditions, index_kind, op, origin, level)
                        kind[level] = way
                        if way >= SCAN_EQUAL:
                            first = conditions[origin, level, 0]
                            outer = bound[first]
                            key[level] = values[column_at[order[origin, outer], bound_column[first]] + chosen[outer]]
                        if window == origin:
                            cursor[level], stop[level] = evaluated[window], tail[window]
                        elif way <= SCAN_EQUAL:
                            cursor[level], stop[level] = oldest[window], tail[window]
                        elif way == HASH:
                            index = access[origin, level]
                            bucket = bucket_at[index] + key[level] % index_size[index]
                            cursor[level], stop[level] = heads[bucket], tails[bucket]
                        else:
                            low, high = _find_key_range(
                                values,
                                column_at,
                                order,
                                conditions,
                                op,
                                column,
                                bound,
                                bound_column,
                                chosen,
                                origin,
                                level,
                            )
                            index = access[origin, level]
                            tree = nodes[nodes_at[index] : nodes_at[index + 1]]
                            found, compared = probe_tree(way, tree, headers[index], low, high, candidates[level])
                            cursor[level], stop[level] = 0, found
                            comparisons[origin, window] += compared
                        if way <= HASH and level > 0:
                            comparisons[origin, window] += stop[level] - cursor[level]
                        _set_bounds(times, ends, ranks, offsets, later_by, order, chosen, origin, level, bounds)
                    place, until, way, wanted = cursor[level], stop[level], kind[level], key[level]
                    since_us, until_us, latest_us = bounds[level, FROM], bounds[level, UNTIL], bounds[level, LATEST]
                    after, before = bounds[level, AFTER], bounds[level, BEFORE]
                    base = offsets[window]
                    start = column_at[window, column[conditions[origin, level, 0]]] if way == SCAN_EQUAL else 0
                    found_by_key = 1 if SCAN_EQUAL <= way <= HASH else 0
                    touched = 0
                    descend = full = False
                    while True:
                        if way == HASH:
                            place = _seek(placed_value, 0, place, until, wanted)
                        elif way == SCAN_EQUAL:
                            place = _seek(values, start, place, until, wanted)
                        if place >= until:
                            break
                        row = placed_row[place] if way == HASH else candidates[level, place] if way > HASH else place
                        here = base + row
                        place += 1
                        if not since_us <= times[here] <= until_us or ends[here] < latest_us:
                            continue
                        if evaluate_us > 0 and not after < ranks[here] < before:
                            continue
                        if not _satisfies_conditions(
                            values,
                            column_at,
                            order,
                            conditions,
                            op,
                            column,
                            bound,
                            bound_column,
                            chosen,
                            origin,
                            level,
                            row,
                            found_by_key,
                        ):
                            continue
                        if level == last and used == room:
                            full = True
                            place -= 1
                            break
                        touched += 1
                        chosen[level] = row
                        if level < last:
                            descend = True
                            break
                        for loop in range(last + 1):
                            out[order[origin, loop], used] = np.int32(chosen[loop])
                        out[inputs, used], out[inputs + 1, used] = np.int32(at), np.int32(origin)
                        used += 1
                    passed[origin, window] += touched
                    cursor[level] = place
                    if full:
                        clock[NEXT_ARRIVAL], clock[ORIGIN], clock[LEVEL] = at, origin, level
                        return used
                    opening = descend
                    level += 1 if descend else -1
                origin += is_first
            for joined in range(inputs):
                evaluated[joined] = tail[joined]
            clock[PENDING], clock[ORIGIN], clock[LEVEL] = 0, 0, -1
        if at == total:
            clock[NEXT_ARRIVAL] = at + 1
            return used
        if evaluate_us > 0 and now >= clock[NEXT_EVALUATION]:
            clock[NEXT_EVALUATION] = (now // evaluate_us + 1) * evaluate_us
        if expire_us == 0 or now >= clock[NEXT_EXPIRATION]:
            # Rows expire as of the instant, not of the arrival that reaches it, so that batches make no difference.
            # Rows that wait for evaluation came after the last evaluation instant: their possible matches must stay.
            horizon = now // expire_us * expire_us if expire_us > 0 else now
            if evaluate_us > 0:
                horizon = horizon // evaluate_us * evaluate_us
            for leaving in range(inputs):
                expire_rows(
                    times, ends, offsets, keep, values, column_at, of_window, index_column, index_kind, placed_at,
                    placed_bucket, heads, nodes_at, nodes, headers, oldest, evaluated, leaving, horizon
                )  # fmt: skip
            if expire_us > 0:
                clock[NEXT_EXPIRATION] = (now // expire_us + 1) * expire_us
        insert_row(
            values, column_at, of_window, index_column, index_kind, placed_at, placed_bucket, placed_row, placed_value,
            tails, nodes_at, nodes, headers, tail, arriving[at], arriving_row[at]
        )  # fmt: skip
        clock[PENDING] = 1
        at += 1


@inlined_subroutine
def _seek(values, start, place, until, wanted):  # type: ignore[no-untyped-def] # numba infers
    """Return the first place from here on whose value is the sought one, or `until`.

    It compares eight values at a time, which the compiler vectorizes.
    """
    while place + 8 <= until:
        hit = False
        for lane in range(8):
            hit |= values[start + place + lane] == wanted
        if hit:
            break
        place += 8
    while place < until and values[start + place] != wanted:
        place += 1
    return place


@inlined_subroutine
def _choose_access(order, access, conditions, index_kind, op, origin, level):  # type: ignore[no-untyped-def] # numba infers
    """Return how a loop finds its rows: by its index, or by a scan of the window or of the new rows.

    If the first condition is an equality, the scan looks for its key.
    """
    if order[origin, level] != origin and access[origin, level] >= 0:
        return index_kind[access[origin, level]]
    first = conditions[origin, level, 0]
    return SCAN_EQUAL if first < conditions[origin, level, 1] and op[first] == EQUAL else SCAN


@inlined_subroutine
def _find_key_range(values, column_at, order, conditions, op, column, bound, bound_column, chosen, origin, level):  # type: ignore[no-untyped-def] # numba infers
    """Return the range of values that all conditions on the indexed column allow.

    The first condition of the loop is on that column.
    """
    low, high = LOWEST, HIGHEST
    first = conditions[origin, level, 0]
    for condition in range(first, conditions[origin, level, 1]):
        if column[condition] != column[first]:
            continue
        outer = bound[condition]
        value = values[column_at[order[origin, outer], bound_column[condition]] + chosen[outer]]
        if op[condition] in (EQUAL, AT_LEAST):
            low = max(low, value)
        if op[condition] in (EQUAL, AT_MOST):
            high = min(high, value)
        if op[condition] == MORE:
            low = max(low, value + 1) if value < HIGHEST else HIGHEST
        if op[condition] == LESS:
            high = min(high, value - 1) if value > LOWEST else LOWEST
    return low, high


@inlined_subroutine
def _set_bounds(times, ends, ranks, offsets, later_by, order, chosen, origin, level, bounds):  # type: ignore[no-untyped-def] # numba infers
    """Set the times and ranks between which a loop's row must lie, given the rows bound so far.

    The bounds are every time bound towards the bound rows, the validity of each of them, and the latest time among
    them, at which the row must be valid. In each combination the origin's row is the last to have arrived.
    """
    window = order[origin, level]
    since, until, latest, after, before = LOWEST, HIGHEST, LOWEST, LOWEST, HIGHEST
    for loop in range(level):
        other = order[origin, loop]
        there = offsets[other] + chosen[loop]
        since = max(since, times[there] - later_by[window, other])
        until = min(until, times[there] + later_by[other, window], ends[there])
        latest = max(latest, times[there])
        if other == origin:
            before = ranks[there]
        elif window == origin:
            after = max(after, ranks[there])
    bounds[level, FROM], bounds[level, UNTIL], bounds[level, LATEST] = since, until, latest
    bounds[level, AFTER], bounds[level, BEFORE] = after, before


@inlined_subroutine
def _satisfies_conditions(  # type: ignore[no-untyped-def] # numba infers
    values, column_at, order, conditions, op, column, bound, bound_column, chosen, origin, level, row, found_by_key
):
    """Return whether a row satisfies every condition of its loop, except the equality it was found by."""
    for condition in range(conditions[origin, level, 0] + found_by_key, conditions[origin, level, 1]):
        left = values[column_at[order[origin, level], column[condition]] + row]
        right = values[column_at[order[origin, bound[condition]], bound_column[condition]] + chosen[bound[condition]]]
        if not compare_codes(op[condition], left, right):
            return False
    return True


@inlined_subroutine
def compare_codes(op: int, left: int, right: int) -> bool:
    """Evaluate `left op right` on order-preserving codes."""
    return (
        (op == EQUAL and left == right)
        or (op == UNEQUAL and left != right)
        or (op == LESS and left < right)
        or (op == AT_MOST and left <= right)
        or (op == MORE and left > right)
        or (op == AT_LEAST and left >= right)
    )
