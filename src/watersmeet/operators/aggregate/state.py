"""State of an aggregation between batches: the rows of its windows, and the query's aggregation set.

A step changes the state in place. To return to an earlier state, keep its bytes (`aggregate.serialization`).

Values, groups and heap nodes are numbered in order of appearance. When most numbers belong to expired rows and groups,
a compaction gives the live ones new numbers. Everything that refers to them is rewritten, and the tables are rebuilt
from the windows. So state has the size of the windows and not of the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.aggregate.codes import Attributes, OrderCodes, ValueCodes, ValueNumbering
from watersmeet.operators.aggregate.config import AggregateConfig, MeasureLayout, build_layout
from watersmeet.operators.aggregate.encoding import encode_rows
from watersmeet.operators.aggregate.input_window import CountedWindow, InputWindow, TimeWindow
from watersmeet.operators.aggregate.result_set import SUM_COLUMNS, ResultSet
from watersmeet.operators.aggregate.tables import JoinTables
from watersmeet.operators.aggregate.window_rows import WindowRows
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join.admission import ReleasedRows
from watersmeet.operators.window_join.row_counter import RowCounter

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Compact when used numbers exceed live ones by more than this.
MAX_GARBAGE = 1 << 16


@dataclass
class InputState:
    """State of one input: its window, rows that wait to be counted, and the counter of a ROWS window."""

    window: InputWindow
    attributes: Attributes
    waiting: pa.Table | None = None
    counter: RowCounter | None = None


@dataclass
class AggregateState:
    """All inputs, the codes of their keys, the tables that join them, and the result.

    `row_times_us` are the instants still to be evaluated, if the query is evaluated at every row.
    """

    layout: MeasureLayout
    inputs: list[InputState]
    classes: list[ValueCodes]
    result: ResultSet
    tables: JoinTables
    evaluated_us: int = -FOREVER_US  # last instant with a final result
    largest_us: int = -FOREVER_US
    row_times_us: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def rows(self) -> int:
        """Number of rows in windows and waiting."""
        return sum(
            len(input_state.window) + (0 if input_state.waiting is None else input_state.waiting.num_rows)
            for input_state in self.inputs
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the windows' rows, of the tables that join them, and of the groups."""
        rows_bytes = sum(
            input_state.window.nbytes + (0 if input_state.waiting is None else input_state.waiting.nbytes)
            for input_state in self.inputs
        )
        return rows_bytes + self.tables.nbytes + self.result.nbytes


def empty_state(config: AggregateConfig) -> AggregateState:
    """Return the state before the first batch."""
    layout = build_layout(config)
    attributes = [Attributes(carried) for carried in config.carried]
    classes = [ValueCodes.for_type(kind) for kind in config.class_types]
    result = ResultSet(config, layout, attributes)
    inputs = []
    for source, own in zip(config.join.inputs, attributes, strict=True):
        nothing = InputBatch(source.fields.empty_table(), _no_times())
        rows = encode_rows(
            config,
            layout,
            source.number,
            ReleasedRows(nothing.table, nothing.times, None),
            classes,
            own,
            result.order_codes,
        )
        counter = None if source.row_limit is None else RowCounter(source.row_limit)
        kind = TimeWindow if counter is None else CountedWindow
        inputs.append(InputState(kind(config, source.number, rows), own, counter=counter))
    return AggregateState(layout, inputs, classes, result, JoinTables(config, layout, result.order_codes))


def load_relation(config: AggregateConfig, state: AggregateState, number: int, table: pa.Table) -> AggregateState:
    """Load the rows of a relation into the state. They never expire."""
    input_state = state.inputs[number]
    released = ReleasedRows(table, _no_times(table.num_rows), None)
    rows = encode_rows(
        config, state.layout, number, released, state.classes, input_state.attributes, state.result.order_codes
    )
    input_state.window.replace_rows(rows.with_entries(state.tables.load(number, rows)))
    return state


def rebuild_tables(config: AggregateConfig, state: AggregateState) -> AggregateState:
    """Rebuild the tables from the windows, for example under a new plan. The result is the same under every plan."""
    state.tables = JoinTables(config, state.layout, state.result.order_codes)
    for number, input_state in enumerate(state.inputs):
        input_state.window.load_entries(number, state.tables)
    return state


def _no_times(rows: int = 0) -> NDArray[np.int64]:
    return np.zeros(rows, np.int64)


def needs_compaction(state: AggregateState) -> bool:
    """Return whether most numbers belong to expired rows and groups."""
    result = state.result
    coders: list[ValueCodes | OrderCodes] = [*state.classes, *result.order_codes, *result.spanning_codes]
    numbered = [len(input_state.attributes) for input_state in state.inputs] + [result.group_numbering.used]
    numbered += [extremes.nodes.used for extremes in result.extremes.values()]
    numbered += [len(coder.numbering.known) for coder in coders if coder.numbering is not None]
    garbage = max(numbered) - MAX_GARBAGE - 4 * state.rows
    return garbage > 0 and garbage > 4 * int(np.count_nonzero(result.columns.ints[: result.group_numbering.used, 0]))


def compact_state(config: AggregateConfig, state: AggregateState) -> AggregateState:
    """Return the same state without anything that is not live."""
    fresh = empty_state(config)
    live = _find_live_groups(state.result)
    rows = [input_state.window.read_rows() for input_state in state.inputs]
    fresh.result.early_extremes = state.result.early_extremes
    groups_of = _renumber_attributes(state, fresh, rows, live)
    _renumber_keys(state, fresh, rows)
    codes_of = _renumber_extremes(state, fresh, rows)
    _move_result(state.result, fresh.result, live, groups_of, codes_of)
    for input_state, new, renumbered in zip(state.inputs, fresh.inputs, rows, strict=True):
        new.window.replace_rows(renumbered)
        new.waiting, new.counter = input_state.waiting, input_state.counter
    fresh.evaluated_us, fresh.largest_us, fresh.row_times_us = state.evaluated_us, state.largest_us, state.row_times_us
    return rebuild_tables(config, fresh)


def _find_live_groups(result: ResultSet) -> Int64s:
    """Return the groups that have rows, were last shown with rows, or changed since."""
    used, columns = result.group_numbering.used, result.columns
    return np.flatnonzero(
        (columns.ints[:used, 0] != 0) | (columns.emitted_ints[:used, 0] != 0) | columns.is_dirty[:used]
    )


def _renumber_attributes(
    state: AggregateState, fresh: AggregateState, rows: list[WindowRows], live: Int64s
) -> list[Int64s]:
    """Renumber combinations in the rows; return, by input, the new number of every old combination of group keys."""
    groups_of = []
    words = state.result.group_numbering.words[live]
    for number, (input_state, new) in enumerate(zip(state.inputs, fresh.inputs, strict=True)):
        old = input_state.attributes
        groups = (
            words[:, state.result.grouping_inputs.index(number)]
            if number in state.result.grouping_inputs
            else np.empty(0, np.int64)
        )
        kept = np.unique(np.concatenate([rows[number].carried, old.examples(groups)]))
        numbers = _copy_combinations(old, new.attributes, kept)
        rows[number] = replace(rows[number], carried=numbers[np.searchsorted(kept, rows[number].carried)])
        moved = np.full(max(len(old), 1), -1, np.int64)
        moved[old.groups(kept)] = new.attributes.groups(numbers)
        groups_of.append(moved)
    return groups_of


def _copy_combinations(old: Attributes, new: Attributes, kept: Int64s) -> Int64s:
    columns = [old.values.take(place, kept) for place in range(len(old.coders))]
    return new.number_rows(columns, kept.size)


def _renumber_keys(state: AggregateState, fresh: AggregateState, rows: list[WindowRows]) -> None:
    for key_class, (old, new) in enumerate(zip(state.classes, fresh.classes, strict=True)):
        if old.numbering is not None:
            kept = np.unique(np.concatenate([each.words[:, key_class] for each in rows]))
            new.numbering = _keep_values(old.numbering, kept)
            for each in rows:
                each.words[:, key_class] = np.searchsorted(kept, each.words[:, key_class])


def _renumber_extremes(state: AggregateState, fresh: AggregateState, rows: list[WindowRows]) -> dict[int, Int64s]:
    """Renumber the arguments of MIN and MAX in the rows; return, by extreme, the old codes that stay, in new order."""
    codes_of: dict[int, Int64s] = {}
    for place, (old, new) in enumerate(zip(state.result.order_codes, fresh.result.order_codes, strict=True)):
        if old.numbering is None:
            continue
        held = [
            each.nodes.words[:, 1]
            for aggregate, each in state.result.extremes.items()
            if state.result.extreme_of_aggregate[aggregate] == place
        ]
        kept = np.unique(np.concatenate([*held, *(each.extremes[:, place] for each in rows)]))
        new.numbering = _keep_values(old.numbering, kept[kept < len(old.numbering.known)])
        for each in rows:
            each.extremes[:, place] = np.searchsorted(kept, each.extremes[:, place])
        codes_of[place] = kept
    return codes_of


def _keep_values(old: ValueNumbering, kept: Int64s) -> ValueNumbering:
    values = old.values.take(kept[kept < len(old.known)]).to_pylist()
    return ValueNumbering(old.type, {value: number for number, value in enumerate(values)})


def _move_result(
    old: ResultSet, new: ResultSet, live: Int64s, groups_of: list[Int64s], codes_of: dict[int, Int64s]
) -> None:
    words = old.group_numbering.words[live].copy()
    for place, number in enumerate(old.grouping_inputs):
        words[:, place] = groups_of[number][words[:, place]]
    for place, (coder, fresh) in enumerate(zip(old.spanning_codes, new.spanning_codes, strict=True)):
        if coder.numbering is not None:
            column = len(old.grouping_inputs) + 2 * place
            kept = np.unique(words[:, column])
            fresh.numbering = _keep_values(coder.numbering, kept)
            words[:, column] = np.searchsorted(kept, words[:, column])
    spanning = [old.spanning_values.take(place, live) for place in range(len(old.spanning_codes))]
    new.restore(
        words, old.columns.is_dirty[live], {name: getattr(old.columns, name)[live] for name in SUM_COLUMNS}, spanning
    )
    group_of = np.full(max(old.group_numbering.used, 1), -1, np.int64)
    group_of[live] = np.arange(live.size)
    for aggregate, extremes in old.extremes.items():
        shown = np.full(live.size, -1, np.int64)
        here = live[live < extremes.shown.size]
        shown[: here.size] = extremes.shown[here]
        pairs, counts = extremes.nodes.words, extremes.heaps.multiplicity[: extremes.nodes.used]
        kept_nodes = np.unique(np.concatenate([np.flatnonzero(counts), shown[shown >= 0]]))
        moved = pairs[kept_nodes].copy()
        moved[:, 0] = group_of[moved[:, 0]]
        if old.extreme_of_aggregate[aggregate] in codes_of:
            moved[:, 1] = np.searchsorted(codes_of[old.extreme_of_aggregate[aggregate]], moved[:, 1])
        shown[shown >= 0] = np.searchsorted(kept_nodes, shown[shown >= 0])
        new.extremes[aggregate].restore(moved, counts[kept_nodes], shown)
