"""State of an aggregation between batches: the rows of its windows, and the query's aggregation set.

A step changes the state in place. To return to an earlier state, keep its bytes (`aggregate.serialization`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.aggregate.attributes import Attributes
from watersmeet.operators.aggregate.codes import ValueCodes
from watersmeet.operators.aggregate.config import AggregateConfig, MeasureLayout, build_layout
from watersmeet.operators.aggregate.encoding import encode_rows
from watersmeet.operators.aggregate.result_set import ResultSet
from watersmeet.operators.aggregate.tables import JoinTables
from watersmeet.operators.aggregate.window_rows import AggregatePane, WindowRows, merge_small_panes
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join.admission import ReleasedRows
from watersmeet.operators.window_join.row_counter import RowCounter


@dataclass
class InputState:
    """State of one input: its rows, rows that wait to be counted, and the counter of a ROWS window.

    `rows` holds the rows inside the window and those that enter it later. `panes` says which rows are saved together.
    An input that counts its rows has no panes.

    """

    rows: WindowRows
    attributes: Attributes
    panes: list[AggregatePane] = field(default_factory=list)
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
            len(input_state.rows) + (0 if input_state.waiting is None else input_state.waiting.num_rows)
            for input_state in self.inputs
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the windows' rows, without the tables derived from them."""
        return sum(
            input_state.rows.nbytes + (0 if input_state.waiting is None else input_state.waiting.nbytes)
            for input_state in self.inputs
        )


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
        inputs.append(InputState(rows, own, counter=None if source.row_limit is None else RowCounter(source.row_limit)))
    return AggregateState(layout, inputs, classes, result, JoinTables(config, layout))


def load_relation(config: AggregateConfig, state: AggregateState, number: int, table: pa.Table) -> AggregateState:
    """Load the rows of a relation into the state. They never expire."""
    input_state = state.inputs[number]
    released = ReleasedRows(table, _no_times(table.num_rows), None)
    rows = encode_rows(
        config, state.layout, number, released, state.classes, input_state.attributes, state.result.order_codes
    )
    input_state.rows = rows.with_entries(state.tables.load(number, rows))
    input_state.panes = merge_small_panes([AggregatePane(len(rows))])
    return state


def rebuild_tables(config: AggregateConfig, state: AggregateState) -> AggregateState:
    """Rebuild the tables from the windows, for example under a new plan. The result is the same under every plan."""
    state.tables = JoinTables(config, state.layout)
    for number, input_state in enumerate(state.inputs):
        inside = input_state.rows.entry >= 0
        entries = input_state.rows.entry.copy()
        entries[inside] = state.tables.load(number, input_state.rows.take(inside))
        input_state.rows = input_state.rows.with_entries(entries)
    return state


def _no_times(rows: int = 0) -> NDArray[np.int64]:
    return np.zeros(rows, np.int64)
