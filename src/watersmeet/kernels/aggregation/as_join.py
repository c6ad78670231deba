"""The AS join: each row that enters or leaves a window meets the entries of all other inputs, and every meeting is one signed result.

Rows come one at a time, so after each of them the results so far sum up to the aggregate of the join of the windows as they stand: nothing
is ever computed from a whole window. An entry of an input that aggregates early stands for many rows; what a result says of the others is
then multiplied by their number. This is the coalescing property: f(c, a) = a·c for SUM and c for COUNT.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", definitions 5 and 6, Figure 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import (
    COLUMNS,
    CONDITIONS,
    DIRECTORIES,
    ENTRIES,
    EVENTS,
    NONE,
    STEPS,
    WORK,
    Columns,
    Conditions,
    Directories,
    Entries,
    Events,
    Float64s,
    Int64s,
    Steps,
    Work,
)
from watersmeet.kernels.aggregation.double_double import add_pair, times_pair
from watersmeet.kernels.compile import BOOL, INT, kernel, piece
from watersmeet.kernels.loop_arguments import AT_LEAST, AT_MOST, EQUAL, LESS, MORE
from watersmeet.kernels.mixing import mix

Found = tuple[int, int, Int64s, Int64s, Int64s, Float64s, Float64s]


@kernel(EVENTS, ENTRIES, DIRECTORIES, STEPS, CONDITIONS, COLUMNS, WORK, INT, INT, BOOL)
def as_join(
    events: Events,
    entries: Entries,
    directories: Directories,
    steps: Steps,
    conditions: Conditions,
    columns: Columns,
    work: Work,
    start: int,
    enough: int,
    joins: bool,
) -> Found:
    """Lets events happen from `start` on, until all have or `enough` results are found.

    Returns how many results there are, the next event, and per result its event, the entry of every input, and what it adds: to the
    whole-number columns (the first is COUNT(*)), to their approximations, and to the sums of floats. With `joins` false the entries
    are kept up and nothing is looked up.
    """
    inputs = steps.target.shape[0]
    room = 1024
    of_event = np.empty(room, np.int64)
    met = np.empty((room, inputs), np.int64)
    ints = np.empty((room, 1 + columns.int_owner.size), np.int64)
    approx = np.empty((room, columns.approx_owner.size), np.float64)
    pairs = np.empty((room, 2 * columns.pair_owner.size), np.float64)
    chosen = np.full(inputs, NONE, np.int64)
    cursor = np.full(inputs, NONE, np.int64)
    found, at = 0, start
    while at < events.input.size and found < enough:
        origin, entry = events.input[at], events.entry[at]
        _change(entries, directories, events, at)
        if joins:
            chosen[:] = NONE
            chosen[origin] = entry
            level, opening = 0, True
            while level >= 0:
                if level == inputs - 1:
                    if found == room:
                        room *= 2
                        of_event = _longer(of_event, room)
                        met, ints = _taller(met, room), _taller(ints, room)
                        approx, pairs = _taller_floats(approx, room), _taller_floats(pairs, room)
                    of_event[found] = at
                    met[found] = chosen
                    _contribute(entries, events, columns, at, chosen, ints[found], approx[found], pairs[found])
                    found += 1
                    level, opening = level - 1, False
                    continue
                target, directory = steps.target[origin, level], steps.directory[origin, level]
                if opening:
                    candidate = _first(entries, directories, steps, origin, level, chosen)
                    work.probes[origin, target] += 1
                else:
                    candidate = directories.following[directory, cursor[level]]
                chosen[target] = candidate
                while candidate != NONE and not _holds(entries, conditions, target, chosen):
                    candidate = directories.following[directory, candidate]
                    chosen[target] = candidate
                cursor[level] = candidate
                if candidate == NONE:
                    level, opening = level - 1, False
                    continue
                work.touched[origin, target] += 1
                level, opening = level + 1, True
        at += 1
    return found, at, of_event[:found], met[:found], ints[:found], approx[:found], pairs[:found]


@kernel(DIRECTORIES)
def place_nodes(directories: Directories) -> None:
    """Fills larger directories with the nodes they have."""
    mask = directories.slots.shape[1] - 1
    for directory in range(directories.nodes.size):
        places = 0
        while places < directories.classes.shape[1] and directories.classes[directory, places] != NONE:
            places += 1
        for node in range(directories.nodes[directory]):
            bits = np.uint64(0)
            for place in range(places):
                bits = mix(np.int64(bits ^ np.uint64(directories.node_words[directory, node, place])))
            slot = np.int64(bits & np.uint64(mask))
            while directories.slots[directory, slot] != NONE:
                slot = (slot + 1) & mask
            directories.slots[directory, slot] = node


@piece
def _change(entries: Entries, directories: Directories, events: Events, at: int) -> None:
    """AS update of the entry: one row more or less. An entry of no rows is found no more, and its sums are exactly nothing."""
    entry, sign = events.entry[at], events.sign[at]
    entries.rows[entry] += sign
    if sign > 0 and entries.rows[entry] == 1:
        _link(entries, directories, events.input[at], entry)
    if entries.rows[entry] == 0:
        _unlink(directories, events.input[at], entry)
        entries.ints[entry, :] = 0
        entries.approx[entry, :] = 0.0
        entries.pairs[entry, :] = 0.0
        return
    for column in range(events.ints.shape[1]):
        entries.ints[entry, column] += sign * events.ints[at, column]
    for column in range(events.approx.shape[1]):
        entries.approx[entry, column] += sign * events.approx[at, column]
    for column in range(events.floats.shape[1]):
        high, low = entries.pairs[entry, 2 * column], entries.pairs[entry, 2 * column + 1]
        high, low = add_pair(high, low, sign * events.floats[at, column], 0.0)
        entries.pairs[entry, 2 * column] = high
        entries.pairs[entry, 2 * column + 1] = low


@piece
def _contribute(
    entries: Entries, events: Events, columns: Columns, at: int, chosen: Int64s, ints: Int64s, approx: Float64s, pairs: Float64s
) -> None:
    """What one result adds to each column: the owner's sum times the number of rows of all others, the origin's row standing for itself."""
    origin, sign = events.input[at], events.sign[at]
    ints[0] = sign * _rows_of_others(entries, chosen, origin, NONE)
    for column in range(columns.int_owner.size):
        owner, place = columns.int_owner[column], columns.int_place[column]
        if owner == NONE:
            ints[column + 1] = 0
        elif owner == origin:
            ints[column + 1] = ints[0] * events.ints[at, place]
        else:
            ints[column + 1] = sign * _rows_of_others(entries, chosen, origin, owner) * entries.ints[chosen[owner], place]
    for column in range(columns.approx_owner.size):
        owner, place = columns.approx_owner[column], columns.approx_place[column]
        if owner == NONE:
            approx[column] = 0.0
        elif owner == origin:
            approx[column] = float(ints[0]) * events.approx[at, place]
        else:
            approx[column] = float(sign * _rows_of_others(entries, chosen, origin, owner)) * entries.approx[chosen[owner], place]
    for column in range(columns.pair_owner.size):
        owner, place = columns.pair_owner[column], columns.pair_place[column]
        high, low = 0.0, 0.0
        if owner == origin:
            high, low = times_pair(events.floats[at, place], 0.0, float(ints[0]))
        elif owner != NONE:
            factor = float(sign * _rows_of_others(entries, chosen, origin, owner))
            high, low = times_pair(entries.pairs[chosen[owner], 2 * place], entries.pairs[chosen[owner], 2 * place + 1], factor)
        pairs[2 * column] = high
        pairs[2 * column + 1] = low


@piece
def _rows_of_others(entries: Entries, chosen: Int64s, origin: int, owner: int) -> int:
    rows = 1
    for other in range(chosen.size):
        if other not in (origin, owner):
            rows *= entries.rows[chosen[other]]
    return rows


@piece
def _first(entries: Entries, directories: Directories, steps: Steps, origin: int, level: int, chosen: Int64s) -> int:
    """The first entry of the step's target whose keys are those of the entries chosen so far."""
    directory = steps.directory[origin, level]
    bits = np.uint64(0)
    for place in range(directories.classes.shape[1]):
        key_class = directories.classes[directory, place]
        if key_class == NONE:
            break
        bits = mix(np.int64(bits ^ np.uint64(entries.words[chosen[steps.providers[origin, level, place]], key_class])))
    mask = directories.slots.shape[1] - 1
    slot = np.int64(bits & np.uint64(mask))
    while True:
        node = directories.slots[directory, slot]
        if node == NONE:
            return NONE
        same = True
        for place in range(directories.classes.shape[1]):
            key_class = directories.classes[directory, place]
            if key_class == NONE:
                break
            word = entries.words[chosen[steps.providers[origin, level, place]], key_class]
            if directories.node_words[directory, node, place] != word:
                same = False
                break
        if same:
            return directories.head[directory, node]  # type: ignore[no-any-return] # numba's int
        slot = (slot + 1) & mask


@piece
def _node(entries: Entries, directories: Directories, directory: int, entry: int) -> int:
    """The node of the entry's keys, made when there is none."""
    bits = np.uint64(0)
    places = 0
    for place in range(directories.classes.shape[1]):
        key_class = directories.classes[directory, place]
        if key_class == NONE:
            break
        bits = mix(np.int64(bits ^ np.uint64(entries.words[entry, key_class])))
        places += 1
    mask = directories.slots.shape[1] - 1
    slot = np.int64(bits & np.uint64(mask))
    while True:
        node = directories.slots[directory, slot]
        if node == NONE:
            break
        same = True
        for place in range(places):
            if directories.node_words[directory, node, place] != entries.words[entry, directories.classes[directory, place]]:
                same = False
                break
        if same:
            return node  # type: ignore[no-any-return] # numba's int
        slot = (slot + 1) & mask
    node = directories.nodes[directory]
    directories.nodes[directory] += 1
    directories.slots[directory, slot] = node
    directories.head[directory, node] = NONE
    for place in range(places):
        directories.node_words[directory, node, place] = entries.words[entry, directories.classes[directory, place]]
    return node  # type: ignore[no-any-return] # numba's int


@piece
def _link(entries: Entries, directories: Directories, number: int, entry: int) -> None:
    for place in range(directories.of_input.shape[1]):
        directory = directories.of_input[number, place]
        if directory == NONE:
            break
        node = _node(entries, directories, directory, entry)
        first = directories.head[directory, node]
        directories.node_of[directory, entry] = node
        directories.preceding[directory, entry] = NONE
        directories.following[directory, entry] = first
        if first != NONE:
            directories.preceding[directory, first] = entry
        directories.head[directory, node] = entry


@piece
def _unlink(directories: Directories, number: int, entry: int) -> None:
    for place in range(directories.of_input.shape[1]):
        directory = directories.of_input[number, place]
        if directory == NONE:
            break
        before, after = directories.preceding[directory, entry], directories.following[directory, entry]
        if before == NONE:
            directories.head[directory, directories.node_of[directory, entry]] = after
        else:
            directories.following[directory, before] = after
        if after != NONE:
            directories.preceding[directory, after] = before


@piece
def _holds(entries: Entries, conditions: Conditions, target: int, chosen: Int64s) -> bool:
    """Whether the target's entry fits the entries chosen so far: comparisons between codes, and bounds between times."""
    for each in range(conditions.op.size):
        left, right = conditions.left[each], conditions.right[each]
        if target in (left, right) and chosen[left] != NONE and chosen[right] != NONE:
            a = entries.ranges[chosen[left], conditions.left_column[each]]
            b = entries.ranges[chosen[right], conditions.right_column[each]]
            if not _compares(conditions.op[each], a, b):
                return False
    for other in range(conditions.later_by.shape[0]):
        if other != target and chosen[other] != NONE:
            later = entries.times[chosen[target]] - entries.times[chosen[other]]
            if later > conditions.later_by[other, target] or -later > conditions.later_by[target, other]:
                return False
    return True


@piece
def _compares(op: int, a: int, b: int) -> bool:
    if op == EQUAL:
        return a == b
    if op == LESS:
        return a < b
    if op == AT_MOST:
        return a <= b
    if op == MORE:
        return a > b
    if op == AT_LEAST:
        return a >= b
    return a != b


@piece
def _longer(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    grown = np.empty(size, np.int64)
    grown[: values.size] = values
    return grown


@piece
def _taller(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    grown = np.empty((size, values.shape[1]), np.int64)
    grown[: values.shape[0]] = values
    return grown


@piece
def _taller_floats(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    grown = np.empty((size, values.shape[1]), np.float64)
    grown[: values.shape[0]] = values
    return grown
