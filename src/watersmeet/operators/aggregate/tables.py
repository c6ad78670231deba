"""Tables of the AS join: the entries of all inputs, and the directories that find them.

Tables hold nothing that the windows do not hold. They are rebuilt from the windows when the plan changes, when state is
restored, and when most of their content is garbage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import (
    NEXT,
    NONE,
    AggregationCounters,
    AggregationCursors,
    AggregationEntries,
    AggregationSteps,
    EntryChanges,
    EntryConditions,
    EntryDirectories,
    JoinedResults,
)
from watersmeet.kernels.aggregation.as_join import as_join, net_changes
from watersmeet.kernels.aggregation.directories import find_nodes, rehash_nodes, remove_unused_nodes
from watersmeet.operators.aggregate.codes import Interner, OrderCodes
from watersmeet.operators.aggregate.config import AggregateConfig, ExtremeAggregate, MeasureLayout
from watersmeet.operators.aggregate.extremes import Extremes
from watersmeet.operators.aggregate.state_size import VALUE_BYTES, compute_state_sizes
from watersmeet.operators.aggregate.window_rows import WindowRows
from watersmeet.operators.window_join.tactics.nested_loops import OP_CODES

Int64s = NDArray[np.int64]

#: Unused directory nodes, identities and values of early entries stay until there are more than this of them.
_GARBAGE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class _AccessPath:
    """Access path to entries of an input: the key classes that must agree."""

    target: int
    classes: tuple[int, ...]


class JoinTables:
    """Entries, directories, and the entry of each identity."""

    def __init__(self, config: AggregateConfig, layout: MeasureLayout, order_codes: Sequence[OrderCodes]):
        self.config, self.layout = config, layout
        inputs = len(config.join.inputs)
        self._access_paths = list(
            dict.fromkeys(_AccessPath(step.target, step.key_classes) for order in config.join.orders for step in order)
        )
        self._spaces = list(dict.fromkeys(path.classes for path in self._access_paths))
        self.steps = _build_steps(config, self._access_paths)
        self._spaces_of_input = _list_spaces_of_inputs(config, self._access_paths, self._spaces, self.steps)
        self.conditions = _build_conditions(config)
        self._extremes = config.extreme_aggregates
        self._early_extremes = {
            place: (each, Extremes(order_codes[each.argument], each.largest, config.never_subtracts))
            for place, each in enumerate(self._extremes)
            if each.number in config.early_extremes
        }
        self._identities = [
            Interner(self._identity_width) if number in config.early else None for number in range(inputs)
        ]
        self._entry_of = [np.empty(0, np.int64) for _ in range(inputs)]
        self._free: Int64s = np.empty(0, np.int64)
        self._used = 0
        self.entries = _empty_entries(config, layout, 16)
        self.carried = np.zeros(16, np.int64)
        self.place_of = np.full(16, NONE, np.int64)  # scratch of `net_changes`, a place per entry
        self.directories = _empty_directories(config, self._access_paths, self._spaces, 16)
        self._checked_identities = self._checked_nodes = 0

    @property
    def live_entries(self) -> int:
        """Number of entries that count rows."""
        return int(np.count_nonzero(self.entries.rows))

    @property
    def nbytes(self) -> int:
        """Bytes of the entries, keys and identities in use, and of the values of early MIN and MAX."""
        sizes = compute_state_sizes(self.config, self.layout)
        values = sum(extremes.nodes.used for _, extremes in self._early_extremes.values())
        return (
            self._used * sizes.entry_bytes
            + int(self.directories.nodes.sum()) * sizes.node_bytes
            + sum(each.used for each in self._identities if each is not None) * sizes.identity_bytes
            + values * VALUE_BYTES
        )

    def needs_rebuild(self, window_rows: int) -> bool:
        """Return whether most identities and values belong to rows that have left the windows.

        Entries are counted only after many identities are new, because a count reads them all.
        """
        values = max((extremes.nodes.used for _, extremes in self._early_extremes.values()), default=0)
        if values > 4 * window_rows + _GARBAGE_ROWS:
            return True
        used = max((each.used for each in self._identities if each is not None), default=0)
        if used < self._checked_identities + max(_GARBAGE_ROWS, self._checked_identities // 4):
            return False
        self._checked_identities = used
        return used > 4 * self.live_entries + _GARBAGE_ROWS

    def remove_unused_nodes(self) -> None:
        """Remove the nodes of keys whose rows have left, once there are as many new nodes as entries."""
        used = int(self.directories.nodes.max(initial=0))
        if used < 2 * self._checked_nodes + _GARBAGE_ROWS:
            return
        is_used = self.entries.rows != 0
        for identities, entries in zip(self._identities, self._entry_of, strict=True):
            if identities is not None:
                is_used[entries] = True
        remove_unused_nodes(self.directories, is_used)
        self.directories.slots[:] = NONE
        rehash_nodes(self.directories)
        self._checked_nodes = int(self.directories.nodes.max(initial=0))

    def assign_entries(self, number: int, rows: WindowRows) -> Int64s:
        """Return the entry that counts each of these rows.

        A row has its own entry. If the input is aggregated early, rows of one identity share an entry.
        """
        identities = self._identities[number]
        if identities is None:
            taken = self._allocate_entries(len(rows))
            self._write_entries(number, rows, taken)
            return taken
        found = identities.intern(self._identity_words(rows))
        known = self._entry_of[number]
        if identities.used > known.size:
            fresh = self._allocate_entries(identities.used - known.size)
            _, first = np.unique(found[found >= known.size], return_index=True)
            self._write_entries(number, rows.take(np.flatnonzero(found >= known.size)[first]), fresh)
            self._entry_of[number] = known = np.concatenate([known, fresh])
        return known[found]

    def release_entries(self, number: int, entries: Int64s) -> None:
        """Release entries whose rows have left. An entry of an identity keeps its identity."""
        if self._identities[number] is None and entries.size:
            self._free = np.concatenate([self._free, entries])

    def forget_rows(self, number: int, forgotten: WindowRows) -> None:
        """Remove rows that can match no more, and leave their results in the groups."""
        if len(forgotten):
            at = np.zeros(len(forgotten), np.int64)
            self.apply(self.order_changes([self.build_changes(number, -1, forgotten, at)]))
            self.release_entries(number, forgotten.entry)

    def load(self, number: int, rows: WindowRows) -> Int64s:
        """Add rows to the tables without joining them; return their entries."""
        entries = self.assign_entries(number, rows)
        at = np.zeros(len(rows), np.int64)
        self.apply(self.order_changes([self.build_changes(number, 1, rows.with_entries(entries), at)]))
        return entries

    def build_changes(self, number: int, sign: int, rows: WindowRows, instants: Int64s) -> EntryChanges:
        """Return changes for rows that enter (+1) or leave (−1) their window at these instants."""
        pairs = np.zeros((len(rows), 2 * rows.floats.shape[1]), np.float64)
        pairs[:, ::2] = sign * rows.floats
        extremes = np.zeros((len(rows), 2 * len(self._extremes)), np.int64)
        for place, each in enumerate(self._extremes):
            if each.owner == number:
                extremes[:, 2 * place] = rows.extremes[:, each.argument]
                extremes[:, 2 * place + 1] = rows.has_extreme[:, each.argument]
        return EntryChanges(
            input=np.full(len(rows), number, np.int64),
            entry=rows.entry,
            rows=np.full(len(rows), sign, np.int64),
            instant=instants.astype(np.int64),
            ints=sign * rows.ints,
            approx=sign * rows.approx,
            pairs=pairs,
            extremes=extremes,
        )

    def order_changes(self, parts: Sequence[EntryChanges]) -> EntryChanges:
        """Return all changes by instant.

        Within an instant, rows leave first. Early aggregation nets all changes of an entry into one.
        """
        if not parts:
            return self._empty_changes()
        combined = EntryChanges._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(2 * combined.instant + (combined.rows > 0), kind="stable")
        ordered = EntryChanges._make(column[order] for column in combined)
        return self._net_per_entry(ordered) if self.config.early else ordered

    def _net_per_entry(self, changes: EntryChanges) -> EntryChanges:
        values = {place: self._select_values(changes, each) for place, (each, _) in self._early_extremes.items()}
        used = net_changes(changes, self.place_of)
        kept = EntryChanges._make(column[:used] for column in changes)
        matters = (kept.rows != 0) | np.any(kept.ints != 0, axis=1) | np.any(kept.pairs != 0, axis=1)
        for place, (each, extremes) in self._early_extremes.items():
            here = np.flatnonzero(kept.input == each.owner)
            now, before = extremes.add_values(
                *values[place], kept.instant[here], kept.entry[here], self.entries.rows.size
            )
            kept.extremes[here, 2 * place], kept.extremes[here, 2 * place + 1] = extremes.find_codes(now)
            matters[here] |= now != before
        return kept if matters.all() else EntryChanges._make(column[matters] for column in kept)

    def _select_values(
        self, changes: EntryChanges, aggregate: ExtremeAggregate
    ) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return entries, instants, codes and signs of the values that rows add to a MIN or MAX of their entry."""
        place = self._extremes.index(aggregate)
        here = np.flatnonzero((changes.input == aggregate.owner) & (changes.extremes[:, 2 * place + 1] == 1))
        return changes.entry[here], changes.instant[here], changes.extremes[here, 2 * place], changes.rows[here]

    def _empty_changes(self) -> EntryChanges:
        widths, nothing = self.layout.row_widths, np.empty(0, np.int64)
        ints, approx = np.empty((0, widths.ints), np.int64), np.empty((0, widths.approx))
        pairs, extremes = np.empty((0, 2 * widths.pairs)), np.empty((0, 2 * len(self._extremes)), np.int64)
        return EntryChanges(nothing, nothing, nothing, nothing, ints, approx, pairs, extremes)

    def copy_entries(self, number: int, entries: Int64s) -> EntryChanges:
        """Return changes that add the current content of entries of one input."""
        held = self.entries
        return EntryChanges(
            input=np.full(entries.size, number, np.int64),
            entry=entries,
            rows=held.rows[entries],
            instant=np.zeros(entries.size, np.int64),
            ints=held.ints[entries],
            approx=held.approx[entries],
            pairs=held.pairs[entries],
            extremes=held.extremes[entries],
        )

    def apply(self, changes: EntryChanges) -> None:
        """Update the entries without joining them."""
        inputs = len(self.config.inputs)
        uncounted = AggregationCounters(np.zeros((inputs, inputs), np.int64), np.zeros((inputs, inputs), np.int64))
        for _ in self.join(changes, uncounted, self.allocate_results(1), joins=False):
            pass

    def allocate_results(self, results: int) -> JoinedResults:
        """Allocate buffers for this many results."""
        widths = self.layout.result_widths
        return JoinedResults(
            change=np.empty(results, np.int64),
            entries=np.empty((results, len(self.config.inputs)), np.int64),
            ints=np.empty((results, 1 + widths.ints), np.int64),
            approx=np.empty((results, widths.approx), np.float64),
            pairs=np.empty((results, 2 * widths.pairs), np.float64),
            extremes=np.empty((results, 4 * len(self._extremes)), np.int64),
        )

    def join(
        self, changes: EntryChanges, work: AggregationCounters, out: JoinedResults, *, joins: bool = True
    ) -> Iterator[int]:
        """Apply changes; yield the number of results each time `out` is full, and once at the end."""
        inputs = len(self.config.inputs)
        cursors = AggregationCursors(
            np.full(inputs, NONE, np.int64),
            np.full(inputs, NONE, np.int64),
            np.array([0, NONE, 0], np.int64),
            np.zeros(2 * len(self._extremes), np.int64),
        )
        while cursors.position[NEXT] < changes.input.size:
            yield as_join(
                changes,
                self.entries,
                self.directories,
                self.steps,
                self.conditions,
                self.layout.columns,
                cursors,
                work,
                out,
                joins,
            )

    @property
    def _identifying_extremes(self) -> list[int]:
        """Arguments of MIN and MAX that no input computes early."""
        early = {each.argument for each, _ in self._early_extremes.values()}
        return [place for place in range(len(self.config.extremes)) if place not in early]

    @property
    def _identity_width(self) -> int:
        classes, ranges = len(self.config.join.classes.keys), _range_count(self.config)
        return classes + 1 + ranges + 2 * len(self._identifying_extremes)

    def _identity_words(self, rows: WindowRows) -> Int64s:
        """Return the words that identify an early entry: join keys, group keys and all else that affects results."""
        extremes = self._identifying_extremes
        values, present = rows.extremes[:, extremes], rows.has_extreme[:, extremes].astype(np.int64)
        return np.concatenate([rows.words, rows.carried[:, None], rows.ranges, values, present], axis=1)

    def _allocate_entries(self, count: int) -> Int64s:
        reused, self._free = self._free[:count], self._free[count:]
        first, self._used = self._used, self._used + count - reused.size
        if self._used > self.entries.rows.size:
            self._grow(max(self._used, 2 * self.entries.rows.size))
        return np.concatenate([reused, np.arange(first, self._used, dtype=np.int64)])

    def _grow(self, size: int) -> None:
        self.entries = AggregationEntries(*(_extend_rows(values, size) for values in self.entries))
        self.carried = _extend_rows(self.carried, size)
        self.place_of = np.full(size, NONE, np.int64)
        links = {
            name: _extend_columns(getattr(self.directories, name), size)
            for name in ("following", "preceding", "node_of")
        }
        self.directories = self.directories._replace(**links)

    def _write_entries(self, number: int, rows: WindowRows, entries: Int64s) -> None:
        self.entries.key_codes[entries] = rows.words
        self.entries.condition_codes[entries] = rows.ranges
        self.entries.times[entries] = rows.times
        self.carried[entries] = rows.carried
        self.find_nodes(number, entries)

    def find_nodes(self, number: int, entries: Int64s) -> None:
        """Find the nodes of new entries in every key space that their input uses."""
        most = int(self.directories.nodes.max(initial=0)) + entries.size
        if 2 * most > self.directories.slots.shape[1] or most > self.directories.head.shape[0]:
            self.directories = _grow_directories(self.directories, most)
        for space in self._spaces_of_input[number]:
            find_nodes(self.directories, self.entries.key_codes, entries, space)


def _range_count(config: AggregateConfig) -> int:
    return sum(len(each.ranges) for each in config.join.inputs)


def _build_steps(config: AggregateConfig, paths: list[_AccessPath]) -> AggregationSteps:
    inputs, places = len(config.join.inputs), max((len(path.classes) for path in paths), default=0)
    target, directory = (np.full((inputs, max(inputs - 1, 0)), NONE, np.int64) for _ in range(2))
    providers = np.full((inputs, max(inputs - 1, 0), places), NONE, np.int64)
    for origin, order in enumerate(config.join.orders):
        for place, step in enumerate(order):
            target[origin, place] = step.target
            directory[origin, place] = paths.index(_AccessPath(step.target, step.key_classes))
            providers[origin, place, : len(step.providers)] = step.providers
    single = np.full((inputs, max(inputs - 1, 0)), NONE, np.int64)
    for origin, order in enumerate(config.join.orders):
        for place, step in enumerate(order):
            if len(set(step.providers)) <= 1:
                single[origin, place] = step.providers[0] if step.providers else origin
    return AggregationSteps(target, directory, providers, single)


def _list_spaces_of_inputs(
    config: AggregateConfig, paths: list[_AccessPath], spaces: list[tuple[int, ...]], steps: AggregationSteps
) -> list[list[int]]:
    """Return, by input, the key spaces of its own directories, and of probes for which it provides all keys."""
    found: list[set[int]] = [set() for _ in config.join.inputs]
    for path in paths:
        found[path.target].add(spaces.index(path.classes))
    for provider, directory in zip(steps.single_provider.ravel(), steps.directory.ravel(), strict=True):
        if provider != NONE:
            found[provider].add(spaces.index(paths[directory].classes))
    return [sorted(each) for each in found]


def _build_conditions(config: AggregateConfig) -> EntryConditions:
    first = len(config.join.classes.keys)
    rows = [
        (OP_CODES[t.op], t.left, t.left_column - first, t.right, t.right_column - first) for t in config.join.thetas
    ]
    table = np.array(rows, np.int64).reshape(-1, 5)
    later_by = np.empty((0, 0), np.int64) if config.later_by_us is None else np.array(config.later_by_us, np.int64)
    op, left, left_column, right, right_column = (np.ascontiguousarray(table[:, column]) for column in range(5))
    return EntryConditions(op, left, left_column, right, right_column, later_by)


def _empty_entries(config: AggregateConfig, layout: MeasureLayout, size: int) -> AggregationEntries:
    widths = layout.row_widths
    return AggregationEntries(
        rows=np.zeros(size, np.int64),
        key_codes=np.zeros((size, len(config.join.classes.keys)), np.int64),
        condition_codes=np.zeros((size, _range_count(config)), np.int64),
        times=np.zeros(size, np.int64),
        ints=np.zeros((size, widths.ints), np.int64),
        approx=np.zeros((size, widths.approx), np.float64),
        pairs=np.zeros((size, 2 * widths.pairs), np.float64),
        extremes=np.zeros((size, 2 * len(config.extreme_aggregates)), np.int64),
    )


def _empty_directories(
    config: AggregateConfig, paths: list[_AccessPath], spaces: list[tuple[int, ...]], size: int
) -> EntryDirectories:
    count, places, inputs = len(paths), max(map(len, spaces), default=0), len(config.join.inputs)
    classes = np.full((len(spaces), places), NONE, np.int64)
    for number, space in enumerate(spaces):
        classes[number, : len(space)] = space
    mine: list[list[int]] = [[] for _ in range(inputs)]
    for number, path in enumerate(paths):
        mine[path.target].append(number)
    input_directories = np.full((inputs, max(map(len, mine))), NONE, np.int64)
    for number, directories in enumerate(mine):
        input_directories[number, : len(directories)] = directories
    return EntryDirectories(
        classes=classes,
        space_of=np.array([spaces.index(path.classes) for path in paths], np.int64),
        input_directories=input_directories,
        slots=np.full((len(spaces), 64), NONE, np.int64),
        node_codes=np.zeros((len(spaces), 16, places), np.int64),
        head=np.full((16, count), NONE, np.int64),
        nodes=np.zeros(len(spaces), np.int64),
        following=np.full((count, size), NONE, np.int64),
        preceding=np.full((count, size), NONE, np.int64),
        node_of=np.full((len(spaces), size), NONE, np.int64),
    )


def _grow_directories(directories: EntryDirectories, nodes: int) -> EntryDirectories:
    used, room = directories.head.shape[0], max(nodes, 2 * directories.head.shape[0])
    codes = np.empty((directories.node_codes.shape[0], room, directories.node_codes.shape[2]), np.int64)
    codes[:, :used] = directories.node_codes
    head = np.empty((room, directories.head.shape[1]), np.int64)
    head[:used] = directories.head
    slots = np.full((directories.slots.shape[0], 1 << int(2 * room).bit_length()), NONE, np.int64)
    larger = directories._replace(slots=slots, node_codes=codes, head=head)
    rehash_nodes(larger)
    return larger


def _extend_rows(values: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros((size, *values.shape[1:]), values.dtype)
    grown[: values.shape[0]] = values
    return grown


def _extend_columns(values: Int64s, size: int) -> Int64s:
    grown = np.full((values.shape[0], size), NONE, np.int64)
    grown[:, : values.shape[1]] = values
    return grown
