"""Tables of the AS join: the entries of all inputs, and the directories that find them.

Tables hold nothing that the windows do not hold. They are rebuilt from the windows when the plan changes, when state is
restored, and when most of their content is garbage.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from watersmeet.kernels.aggregation.as_join import as_join
from watersmeet.kernels.aggregation.directories import rehash_nodes
from watersmeet.operators.aggregate.codes import Interner
from watersmeet.operators.aggregate.config import AggregateConfig, MeasureLayout
from watersmeet.operators.aggregate.window_rows import WindowRows
from watersmeet.operators.window_join.tactics.nested_loops import OP_CODES

Int64s = NDArray[np.int64]

#: Rebuild the tables when directory nodes and early entries exceed live entries by more than this.
_GARBAGE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class _AccessPath:
    """Access path to entries of an input: the key classes that must agree."""

    target: int
    classes: tuple[int, ...]


class JoinTables:
    """Entries, directories, and the entry of each identity."""

    def __init__(self, config: AggregateConfig, layout: MeasureLayout):
        self.config, self.layout = config, layout
        inputs = len(config.join.inputs)
        self._access_paths = list(
            dict.fromkeys(_AccessPath(step.target, step.key_classes) for order in config.join.orders for step in order)
        )
        self.steps = _build_steps(config, self._access_paths)
        self.conditions = _build_conditions(config)
        self._identities = [
            Interner(self._identity_width) if number in config.early else None for number in range(inputs)
        ]
        self._entry_of = [np.empty(0, np.int64) for _ in range(inputs)]
        self._free: Int64s = np.empty(0, np.int64)
        self._used = 0
        self.entries = _empty_entries(config, layout, 16)
        self.carried = np.zeros(16, np.int64)
        self.extremes = np.zeros((16, len(config.extremes)), np.int64)
        self.has_extreme = np.zeros((16, len(config.extremes)), np.bool_)
        self.place_of = np.full(16, NONE, np.int64)  # scratch of `net_changes`, a place per entry
        self.directories = _empty_directories(config, self._access_paths, 16)
        self._checked_nodes = 0

    @property
    def live_entries(self) -> int:
        """Number of entries that count rows."""
        return int(np.count_nonzero(self.entries.rows))

    @property
    def needs_rebuild(self) -> bool:
        """Whether most nodes and identities belong to entries without rows.

        Entries are counted only after many nodes are new, because a count reads them all.
        """
        used = max(
            int(self.directories.nodes.max(initial=0)), *(each.used for each in self._identities if each is not None), 0
        )
        if used < self._checked_nodes + max(_GARBAGE_ROWS, self._checked_nodes // 4):
            return False
        self._checked_nodes = used
        return used > 4 * self.live_entries + _GARBAGE_ROWS

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
            self._apply(build_changes(number, -1, forgotten, np.zeros(len(forgotten), np.int64)))
            self.release_entries(number, forgotten.entry)

    def reserve_directories(self, entering: int) -> None:
        """Reserve room in the directories for this many more rows."""
        most = int(self.directories.nodes.max(initial=0)) + entering
        if 2 * most > self.directories.slots.shape[1] or most > self.directories.head.shape[1]:
            self.directories = _grow_directories(self.directories, most)

    def load(self, number: int, rows: WindowRows) -> Int64s:
        """Add rows to the tables without joining them; return their entries."""
        entries = self.assign_entries(number, rows)
        self.reserve_directories(len(rows))
        changes = build_changes(number, 1, rows.with_entries(entries), np.zeros(len(rows), np.int64))
        self._apply(changes)
        return entries

    def _apply(self, changes: EntryChanges) -> None:
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
        )

    def join(
        self, changes: EntryChanges, work: AggregationCounters, out: JoinedResults, *, joins: bool = True
    ) -> Iterator[int]:
        """Apply changes; yield the number of results each time `out` is full, and once at the end."""
        inputs = len(self.config.inputs)
        cursors = AggregationCursors(
            np.full(inputs, NONE, np.int64), np.full(inputs, NONE, np.int64), np.array([0, NONE, 0], np.int64)
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
    def _identity_width(self) -> int:
        classes, ranges, extremes = (
            len(self.config.join.classes.keys),
            _range_count(self.config),
            len(self.config.extremes),
        )
        return classes + 1 + ranges + 2 * extremes

    def _identity_words(self, rows: WindowRows) -> Int64s:
        """Return the words that identify an early entry: join keys, group keys and all else that affects results."""
        return np.concatenate(
            [rows.words, rows.carried[:, None], rows.ranges, rows.extremes, rows.has_extreme.astype(np.int64)], axis=1
        )

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
        self.extremes, self.has_extreme = _extend_rows(self.extremes, size), _extend_rows(self.has_extreme, size)
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
        self.extremes[entries] = rows.extremes
        self.has_extreme[entries] = rows.has_extreme


def build_changes(number: int, sign: int, rows: WindowRows, instants: Int64s) -> EntryChanges:
    """Return changes for rows that enter (+1) or leave (−1) their window at these instants."""
    pairs = np.zeros((len(rows), 2 * rows.floats.shape[1]), np.float64)
    pairs[:, ::2] = sign * rows.floats
    return EntryChanges(
        input=np.full(len(rows), number, np.int64),
        entry=rows.entry,
        rows=np.full(len(rows), sign, np.int64),
        instant=instants.astype(np.int64),
        ints=sign * rows.ints,
        approx=sign * rows.approx,
        pairs=pairs,
    )


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
    return AggregationSteps(target, directory, providers)


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
    )


def _empty_directories(config: AggregateConfig, paths: list[_AccessPath], size: int) -> EntryDirectories:
    count, places, inputs = len(paths), max((len(path.classes) for path in paths), default=0), len(config.join.inputs)
    classes = np.full((count, places), NONE, np.int64)
    mine: list[list[int]] = [[] for _ in range(inputs)]
    for number, path in enumerate(paths):
        classes[number, : len(path.classes)] = path.classes
        mine[path.target].append(number)
    input_directories = np.full((inputs, max(map(len, mine))), NONE, np.int64)
    for number, directories in enumerate(mine):
        input_directories[number, : len(directories)] = directories
    return EntryDirectories(
        classes=classes,
        input_directories=input_directories,
        slots=np.full((count, 64), NONE, np.int64),
        node_codes=np.zeros((count, 16, places), np.int64),
        head=np.full((count, 16), NONE, np.int64),
        nodes=np.zeros(count, np.int64),
        following=np.full((count, size), NONE, np.int64),
        preceding=np.full((count, size), NONE, np.int64),
        node_of=np.full((count, size), NONE, np.int64),
    )


def _grow_directories(directories: EntryDirectories, nodes: int) -> EntryDirectories:
    room = max(nodes, 2 * directories.head.shape[1])
    codes = np.zeros((directories.node_codes.shape[0], room, directories.node_codes.shape[2]), np.int64)
    codes[:, : directories.node_codes.shape[1]] = directories.node_codes
    slots = np.full((directories.slots.shape[0], 1 << int(2 * room).bit_length()), NONE, np.int64)
    larger = directories._replace(slots=slots, node_codes=codes, head=_extend_columns(directories.head, room))
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
