"""What an aggregation remembers between batches: the rows of its windows, and the query's aggregation set.

A step changes the state it is given; whoever wants to go back keeps its bytes (`aggregate.blobs`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US, RowsWindow
from watersmeet.operators.aggregate.attributes import Attributes
from watersmeet.operators.aggregate.codes import ValueCodes
from watersmeet.operators.aggregate.config import AggregateConfig, MeasureLayout, build_layout
from watersmeet.operators.aggregate.encoding import encode_rows
from watersmeet.operators.aggregate.result_set import ResultSet
from watersmeet.operators.aggregate.tables import JoinTables
from watersmeet.operators.aggregate.window_rows import AggregatePane, WindowRows, merge_to_limit
from watersmeet.operators.window_join.admission import InputBatch, ReleasedRows
from watersmeet.operators.window_join.row_counter import RowCounter


@dataclass
class InputState:
    """One input: its rows inside and before its window, what waits to be counted, and the counter of a ROWS window.

    `panes` says which rows are saved together; a side that counts its rows has none.
    """

    rows: WindowRows
    attributes: Attributes
    panes: list[AggregatePane] = field(default_factory=list)
    waiting: pa.Table | None = None
    counter: RowCounter | None = None


@dataclass
class AggregateState:
    """All inputs, the codes of their keys, the tables they are joined by, and the result."""

    layout: MeasureLayout
    inputs: list[InputState]
    classes: list[ValueCodes]
    result: ResultSet
    tables: JoinTables
    evaluated_us: int = -FOREVER_US  # the last instant at which the result is final
    largest_us: int = -FOREVER_US
    row_times_us: NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # still to be evaluated at, row by row

    @property
    def rows(self) -> int:
        return sum(len(side.rows) + (0 if side.waiting is None else side.waiting.num_rows) for side in self.inputs)

    @property
    def nbytes(self) -> int:
        """Bytes of the windows' rows, without the tables made from them."""
        return sum(side.rows.nbytes + (0 if side.waiting is None else side.waiting.nbytes) for side in self.inputs)


def empty_state(config: AggregateConfig) -> AggregateState:
    layout = build_layout(config)
    attributes = [Attributes(carried) for carried in config.carried]
    classes = [ValueCodes.for_type(kind) for kind in config.class_types]
    result = ResultSet(config, layout, attributes)
    sides = []
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
        sides.append(
            InputState(rows, own, counter=RowCounter(source.window) if isinstance(source.window, RowsWindow) else None)
        )
    return AggregateState(layout, sides, classes, result, JoinTables(config, layout))


def load_relation(config: AggregateConfig, state: AggregateState, number: int, table: pa.Table) -> AggregateState:
    """The state with a relation's rows in it: they are inside for ever."""
    side = state.inputs[number]
    released = ReleasedRows(table, _no_times(table.num_rows), None)
    rows = encode_rows(config, state.layout, number, released, state.classes, side.attributes, state.result.order_codes)
    side.rows = rows.with_entries(state.tables.load(number, rows))
    side.panes = merge_to_limit([AggregatePane(len(rows))])
    return state


def rebuild_tables(config: AggregateConfig, state: AggregateState) -> AggregateState:
    """The state under another plan: the tables made anew from the windows. The result is the same, whatever the plan."""
    state.tables = JoinTables(config, state.layout)
    for number, side in enumerate(state.inputs):
        inside = side.rows.entry >= 0
        entries = side.rows.entry.copy()
        entries[inside] = state.tables.load(number, side.rows.take(inside))
        side.rows = side.rows.with_entries(entries)
    return state


def _no_times(rows: int = 0) -> NDArray[np.int64]:
    return np.zeros(rows, np.int64)
