"""The AS join: each change of a window joins the entries of all other inputs, and every match is one signed result.

Changes are applied one at a time. After each of them, the results so far sum up to the aggregate of the join of the
current windows. So nothing is ever computed from a whole window. An entry of an input that aggregates early counts
many rows; a result multiplies the amounts of the other inputs by their number. This is the coalescing property: f(c, a)
= a·c for SUM and c for COUNT.

`net_changes` aggregates changes early: all rows that enter and leave an entry at one instant are one change. A window's
content between two instants is never emitted, so only the difference counts. A change then costs as much as its entry's
matches, once per instant, however many rows it combines.

The loops allocate nothing and all their subroutines are inlined, so they count no references.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", definitions 5 and 6,
Figure 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import (
    CHANGES,
    COLUMNS,
    CONDITIONS,
    COUNTERS,
    CURSORS,
    DIRECTORIES,
    ENTRIES,
    JOINED_RESULTS,
    LEVEL,
    NEXT,
    NONE,
    OPENING,
    STEPS,
    AggregationColumns,
    AggregationCounters,
    AggregationCursors,
    AggregationEntries,
    AggregationSteps,
    EntryChanges,
    EntryConditions,
    EntryDirectories,
    Int64s,
    JoinedResults,
)
from watersmeet.kernels.aggregation.directories import find_first_entry, link_entry, unlink_entry
from watersmeet.kernels.aggregation.double_double import add_pair, scale_pair
from watersmeet.kernels.compile import BOOL, OUT_INT64, inlined_subroutine, kernel
from watersmeet.kernels.loop_state import AT_LEAST, AT_MOST, EQUAL, LESS, MORE


@kernel(
    CHANGES, ENTRIES, DIRECTORIES, STEPS, CONDITIONS, COLUMNS, CURSORS, COUNTERS, JOINED_RESULTS, BOOL, allocates=False
)
def as_join(  # noqa: PLR0912, PLR0915 # one loop nest: see the module's docstring
    changes: EntryChanges,
    entries: AggregationEntries,
    directories: EntryDirectories,
    steps: AggregationSteps,
    conditions: EntryConditions,
    columns: AggregationColumns,
    loops: AggregationCursors,
    work: AggregationCounters,
    out: JoinedResults,
    joins: bool,
) -> int:
    """Apply changes until all are applied or `out` is full of results; return the number of results.

    The next call continues inside the loops. A result has its change, the entry of every input, and the amounts it
    adds. It adds to the integer columns (the first is COUNT(*)), to their approximations, and to the sums of floats.
    With `joins` false, the entries are updated and nothing is probed.
    """
    change_input, change_entry, change_rows = changes.input, changes.entry, changes.rows
    change_ints, change_approx, change_pairs = changes.ints, changes.approx, changes.pairs
    change_extremes, extremes, out_extremes = changes.extremes, entries.extremes, out.extremes
    rows, key_codes, condition_codes, times = entries.rows, entries.key_codes, entries.condition_codes, entries.times
    sums, approx, pairs = entries.ints, entries.approx, entries.pairs
    classes, input_directories, slots, node_codes = (
        directories.classes,
        directories.input_directories,
        directories.slots,
        directories.node_codes,
    )
    head, following, preceding = directories.head, directories.following, directories.preceding
    node_of, space_of = directories.node_of, directories.space_of
    targets, ways, providers, single_provider = steps.target, steps.directory, steps.providers, steps.single_provider
    op, left, left_column, right, right_column = (
        conditions.op,
        conditions.left,
        conditions.left_column,
        conditions.right,
        conditions.right_column,
    )
    later_by = conditions.later_by
    int_owner, int_place = columns.int_owner, columns.int_place
    approx_owner, approx_place = columns.approx_owner, columns.approx_place
    pair_owner, pair_place, extreme_owner = columns.pair_owner, columns.pair_place, columns.extreme_owner
    chosen, cursor, position, before_change = loops.chosen, loops.cursor, loops.position, loops.before
    probes, matched = work.probes, work.matched
    out_change, out_entries, out_ints, out_approx, out_pairs = out.change, out.entries, out.ints, out.approx, out.pairs
    inputs, room, found = targets.shape[0], out_change.size, 0
    last = inputs - 1
    places = classes.shape[1]
    mask = slots.shape[1] - 1

    while position[NEXT] < change_input.size:
        at = position[NEXT]
        origin, entry, weight = change_input[at], change_entry[at], change_rows[at]
        level, opening = position[LEVEL], position[OPENING] == 1
        if level == NONE:
            before = rows[entry]
            rows[entry] += weight
            if before == 0 and rows[entry] != 0:
                for place in range(input_directories.shape[1]):
                    directory = input_directories[origin, place]
                    if directory == NONE:
                        break
                    link_entry(head, following, preceding, node_of[space_of[directory], entry], directory, entry)
            if rows[entry] == 0:
                if before != 0:
                    for place in range(input_directories.shape[1]):
                        directory = input_directories[origin, place]
                        if directory == NONE:
                            break
                        unlink_entry(head, following, preceding, node_of[space_of[directory], entry], directory, entry)
                for column in range(sums.shape[1]):
                    sums[entry, column] = 0
                for column in range(approx.shape[1]):
                    approx[entry, column] = 0.0
                for column in range(pairs.shape[1]):
                    pairs[entry, column] = 0.0
            else:
                for column in range(sums.shape[1]):
                    sums[entry, column] += change_ints[at, column]
                for column in range(approx.shape[1]):
                    approx[entry, column] += change_approx[at, column]
                for column in range(0, pairs.shape[1], 2):
                    high, low = add_pair(
                        pairs[entry, column],
                        pairs[entry, column + 1],
                        change_pairs[at, column],
                        change_pairs[at, column + 1],
                    )
                    pairs[entry, column] = high
                    pairs[entry, column + 1] = low
            for column in range(extremes.shape[1]):
                before_change[column] = extremes[entry, column]
                extremes[entry, column] = change_extremes[at, column] if rows[entry] != 0 else 0
            if not joins:
                position[NEXT] += 1
                continue
            for number in range(inputs):
                chosen[number] = NONE
            chosen[origin] = entry
            level, opening = 0, True
        while level >= 0:
            if level == last:
                if found == room:
                    position[LEVEL], position[OPENING] = level, 1 if opening else 0
                    return found
                others = 1
                for number in range(inputs):
                    out_entries[found, number] = chosen[number]
                    if number != origin:
                        others *= rows[chosen[number]]
                out_change[found] = at
                out_ints[found, 0] = weight * others
                for column in range(int_owner.size):
                    owner = int_owner[column]
                    value = 0
                    if owner == origin:
                        value = others * change_ints[at, int_place[column]]
                    elif owner != NONE:
                        value = (
                            weight
                            * _count_other_rows(rows, chosen, origin, owner)
                            * sums[chosen[owner], int_place[column]]
                        )
                    out_ints[found, column + 1] = value
                for column in range(approx_owner.size):
                    owner = approx_owner[column]
                    approximation = 0.0
                    if owner == origin:
                        approximation = float(others) * change_approx[at, approx_place[column]]
                    elif owner != NONE:
                        factor = float(weight * _count_other_rows(rows, chosen, origin, owner))
                        approximation = factor * approx[chosen[owner], approx_place[column]]
                    out_approx[found, column] = approximation
                for column in range(pair_owner.size):
                    owner, place = pair_owner[column], 2 * pair_place[column]
                    high, low = 0.0, 0.0
                    if owner == origin:
                        high, low = scale_pair(change_pairs[at, place], change_pairs[at, place + 1], float(others))
                    elif owner != NONE:
                        factor = float(weight * _count_other_rows(rows, chosen, origin, owner))
                        high, low = scale_pair(pairs[chosen[owner], place], pairs[chosen[owner], place + 1], factor)
                    out_pairs[found, 2 * column] = high
                    out_pairs[found, 2 * column + 1] = low
                for number in range(extreme_owner.size):
                    owner, code, held = extreme_owner[number], 2 * number, 2 * number + 1
                    taken, lost, added, gained = 0, 0, 0, 0
                    if owner == origin:
                        added = extremes[entry, code]
                        if extremes[entry, held] == 1:
                            gained = rows[entry] * others
                        if before_change[held] == 1:
                            taken, lost = before_change[code], (weight - rows[entry]) * others
                            if gained != 0 and taken == added:
                                gained, lost = gained + lost, 0
                    elif owner != NONE and extremes[chosen[owner], held] == 1:
                        added, gained = extremes[chosen[owner], code], weight * others
                    out_extremes[found, 4 * number] = taken
                    out_extremes[found, 4 * number + 1] = lost
                    out_extremes[found, 4 * number + 2] = added
                    out_extremes[found, 4 * number + 3] = gained
                found += 1
                level, opening = level - 1, False
                continue
            target, directory = targets[origin, level], ways[origin, level]
            if opening:
                provider, space = single_provider[origin, level], space_of[directory]
                if provider != NONE:
                    candidate = head[node_of[space, chosen[provider]], directory]
                else:
                    candidate = find_first_entry(
                        classes,
                        slots,
                        node_codes,
                        head,
                        key_codes,
                        providers,
                        chosen,
                        origin,
                        level,
                        directory,
                        space,
                        places,
                        mask,
                    )
                probes[origin, target] += 1
            else:
                candidate = following[directory, cursor[level]]
            while candidate != NONE:
                chosen[target] = candidate
                if satisfies_conditions(
                    condition_codes, times, op, left, left_column, right, right_column, later_by, target, chosen
                ):
                    break
                candidate = following[directory, candidate]
            chosen[target] = candidate
            cursor[level] = candidate
            if candidate == NONE:
                level, opening = level - 1, False
            else:
                matched[origin, target] += 1
                level, opening = level + 1, True
        position[NEXT] += 1
        position[LEVEL] = NONE
    return found


def as_join_definition(
    changes: Sequence[tuple[int, int, int, int]], inputs: int, matches: Callable[[tuple[int, ...]], bool]
) -> list[tuple[int, tuple[int, ...], int, tuple[int, ...]]]:
    """Join each change of an entry with every matching choice of one entry per other input that has rows then: the law.

    A change is its input, its entry, the rows it adds or removes, and the amount it adds to the entry's sum of some
    measure. A result is its change, its entries by input, its number of rows, and the sum of each input's measure over
    those rows. Such a sum is the number of rows of all other inputs times the input's own sum.

    >>> matches = lambda entries: True
    >>> as_join_definition([(0, 7, 2, 50), (1, 9, 3, 4)], 2, matches)
    [(1, (7, 9), 6, (150, 8))]
    """
    current: list[dict[int, tuple[int, int]]] = [{} for _ in range(inputs)]
    results = []
    for number, (origin, entry, rows, measure) in enumerate(changes):
        before = current[origin].pop(entry, (0, 0))
        if before[0] + rows:
            current[origin][entry] = before[0] + rows, before[1] + measure
        others = [{entry: (rows, measure)} if each == origin else current[each] for each in range(inputs)]
        for chosen in product(*others):
            if matches(chosen):
                counts = [others[each][chosen[each]][0] for each in range(inputs)]
                sums = [
                    others[each][chosen[each]][1] * prod(counts[:each] + counts[each + 1 :]) for each in range(inputs)
                ]
                results.append((number, chosen, prod(counts), tuple(sums)))
    return results


@inlined_subroutine
def _count_other_rows(rows: Int64s, chosen: Int64s, origin: int, owner: int) -> int:
    product = 1
    for number in range(chosen.size):
        if number != origin and number != owner:  # noqa: PLR1714 # not a tuple: Numba would make one
            product *= rows[chosen[number]]
    return product


@inlined_subroutine
def satisfies_conditions(  # noqa: PLR0912 # a function per comparison would be called for every candidate
    condition_codes: Int64s,
    times: Int64s,
    op: Int64s,
    left: Int64s,
    left_column: Int64s,
    right: Int64s,
    right_column: Int64s,
    later_by: Int64s,
    target: int,
    chosen: Int64s,
) -> bool:
    """Return whether the target's entry fits the entries chosen so far, beyond equal keys.

    It checks comparisons between codes and bounds between times.
    """
    fits = True
    for each in range(op.size):
        one, two = left[each], right[each]
        if (one == target or two == target) and chosen[one] != NONE and chosen[two] != NONE:  # noqa: PLR1714 # as above
            a, b = condition_codes[chosen[one], left_column[each]], condition_codes[chosen[two], right_column[each]]
            kind = op[each]
            if kind == EQUAL:
                fits = a == b
            elif kind == LESS:
                fits = a < b
            elif kind == AT_MOST:
                fits = a <= b
            elif kind == MORE:
                fits = a > b
            elif kind == AT_LEAST:
                fits = a >= b
            else:
                fits = a != b
            if not fits:
                break
    if fits:
        for other in range(later_by.shape[0]):
            if other != target and chosen[other] != NONE:
                later = times[chosen[target]] - times[chosen[other]]
                if later > later_by[other, target] or -later > later_by[target, other]:
                    fits = False
                    break
    return fits


@kernel(CHANGES, OUT_INT64, allocates=False)
def net_changes(changes: EntryChanges, place_of: NDArray[np.int64]) -> int:
    """Add the changes of one entry at one instant together, in place; return how many remain.

    Changes are sorted by instant. The extremes are those of the first change: the caller knows those of an entry of
    many rows. `place_of` has a place per entry. Values from earlier calls do no harm: a place
    counts only where the same entry is.
    """
    change_input, entry, rows = changes.input, changes.entry, changes.rows
    ints, approx, pairs, instant = changes.ints, changes.approx, changes.pairs, changes.instant
    extremes = changes.extremes
    used = 0
    for at in range(entry.size):
        place = place_of[entry[at]]
        if place != NONE and place < used and entry[place] == entry[at] and instant[place] == instant[at]:
            rows[place] += rows[at]
            for column in range(ints.shape[1]):
                ints[place, column] += ints[at, column]
            for column in range(approx.shape[1]):
                approx[place, column] += approx[at, column]
            for column in range(0, pairs.shape[1], 2):
                high, low = add_pair(
                    pairs[place, column], pairs[place, column + 1], pairs[at, column], pairs[at, column + 1]
                )
                pairs[place, column] = high
                pairs[place, column + 1] = low
            continue
        place_of[entry[at]] = used
        change_input[used], entry[used], rows[used], instant[used] = change_input[at], entry[at], rows[at], instant[at]
        for column in range(ints.shape[1]):
            ints[used, column] = ints[at, column]
        for column in range(approx.shape[1]):
            approx[used, column] = approx[at, column]
        for column in range(pairs.shape[1]):
            pairs[used, column] = pairs[at, column]
        for column in range(extremes.shape[1]):
            extremes[used, column] = extremes[at, column]
        used += 1
    return used


def net_changes_definition(changes: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """Sum (instant, entry, rows) by instant and entry: the law, for rows alone.

    >>> net_changes_definition([(0, 7, 1), (0, 7, -1), (1, 7, 1)])
    {(0, 7): 0, (1, 7): 1}
    """
    found: dict[tuple[int, int], Any] = {}
    for instant, entry, rows in changes:
        found[instant, entry] = found.get((instant, entry), 0) + rows
    return found
