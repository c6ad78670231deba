"""State as parts that are saved one by one: the panes of the windows, and everything else, which every batch changes.

The rows of ROWS windows are with the rest: later rows change their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.blobs import (
    SavedScope,
    deserialize_rows,
    deserialize_state,
    serialize_rows,
    serialize_state,
)
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.panes import AggregatePane
from watersmeet.operators.aggregate.rows import OUTSIDE, WindowRows, concat_window_rows
from watersmeet.operators.aggregate.state import AggregateState, rebuild_tables
from watersmeet.operators.window_join.serialization import SavedPart

PANE_PART, REST_PART = "pane", "rest"


@dataclass(frozen=True)
class AggregatePart:
    """A pane, or the rest. The rest is made anew each time, so no two of them are the same object."""

    number: int
    kind: str
    value: Any
    rows: int
    bytes: Callable[[], bytes]


def split_into_parts(state: AggregateState) -> list[AggregatePart]:
    """The rest first, then the panes by input, oldest first."""
    rest = serialize_state(state, SavedScope.REST)
    waiting = sum(0 if side.waiting is None else side.waiting.num_rows for side in state.sides)
    counted = sum(len(side.rows) for side in state.sides if side.counter is not None)
    parts = [AggregatePart(0, REST_PART, rest, waiting + counted, lambda: rest)]
    for number, side in enumerate(state.sides):
        if side.counter is None:
            parts += _build_pane_parts(number, side.rows, side.panes)
    return parts


def restore_from_parts(config: AggregateConfig, saved: Sequence[SavedPart]) -> AggregateState:
    """The inverse of `state_parts`, for the same query and any plan of it."""
    rest, *panes = saved
    if rest.kind != REST_PART or any(each.kind != PANE_PART for each in panes):
        raise InternalError("parts of an aggregation in another order")
    state = deserialize_state(config, bytes(rest.blob))
    for number, side in enumerate(state.sides):
        blobs = [each.blob for each in panes if each.number == number]
        if side.counter is None and blobs:
            whole = [deserialize_rows(side.rows, blob) for blob in blobs]
            live = [_drop_expired_rows(config, number, each, state.evaluated_us) for each in whole]
            side.rows, side.panes = concat_window_rows(live), [AggregatePane(len(each)) for each in live]
    return rebuild_tables(config, state)


def _build_pane_parts(number: int, rows: WindowRows, panes: list[AggregatePane]) -> list[AggregatePart]:
    starts = np.concatenate([[0], np.cumsum([pane.rows for pane in panes], dtype=np.int64)])
    if starts[-1] != len(rows):
        raise InternalError("a window whose panes are not its rows")
    return [_build_pane_part(number, rows, pane, int(start)) for pane, start in zip(panes, starts, strict=False)]


def _build_pane_part(number: int, rows: WindowRows, pane: AggregatePane, start: int) -> AggregatePart:
    return AggregatePart(
        number, PANE_PART, pane, pane.rows, lambda: serialize_rows(rows.take(np.arange(start, start + pane.rows)))
    )


def _drop_expired_rows(config: AggregateConfig, number: int, rows: WindowRows, evaluated_us: int) -> WindowRows:
    """Return the rows that had not left by the last evaluation. Those inside have entered by then; `rebuilt` finds
    their entries.
    """
    here = rows.take(rows.ends >= evaluated_us)
    entered = config.starts_of(number, here.times) <= evaluated_us
    inside = entered if config.inputs[number].is_stream else np.ones(len(here), np.bool_)
    return here.at(np.where(inside, 0, OUTSIDE))
