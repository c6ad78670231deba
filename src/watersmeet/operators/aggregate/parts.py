"""State as parts that are saved one by one: the panes of the windows, and everything else, which every batch changes.

The rows of ROWS windows are with the rest: later rows change their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.blobs import Saved, rows_bytes, rows_from_bytes, state_bytes, state_from_bytes
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.panes import Pane
from watersmeet.operators.aggregate.rows import OUTSIDE, WindowRows, together
from watersmeet.operators.aggregate.state import AggregateState, rebuilt
from watersmeet.operators.window_join.serialization import SavedPart

PANE, REST = "pane", "rest"


@dataclass(frozen=True)
class Part:
    """A pane, or the rest. The rest is made anew each time, so no two of them are the same object."""

    number: int
    kind: str
    value: Any
    rows: int
    bytes: Callable[[], bytes]


def state_parts(state: AggregateState) -> list[Part]:
    """The rest first, then the panes by input, oldest first."""
    rest = state_bytes(state, Saved.REST)
    waiting = sum(0 if side.waiting is None else side.waiting.num_rows for side in state.sides)
    counted = sum(len(side.rows) for side in state.sides if side.counter is not None)
    parts = [Part(0, REST, rest, waiting + counted, lambda: rest)]
    for number, side in enumerate(state.sides):
        if side.counter is None:
            parts += _panes(number, side.rows, side.panes)
    return parts


def state_from_parts(config: AggregateConfig, saved: Sequence[SavedPart]) -> AggregateState:
    """The inverse of `state_parts`, for the same query and any plan of it."""
    rest, *panes = saved
    if rest.kind != REST or any(each.kind != PANE for each in panes):
        raise InternalError("parts of an aggregation in another order")
    state = state_from_bytes(config, bytes(rest.blob))
    for number, side in enumerate(state.sides):
        blobs = [each.blob for each in panes if each.number == number]
        if side.counter is None and blobs:
            whole = [rows_from_bytes(side.rows, blob) for blob in blobs]
            live = [_still_here(config, number, each, state.evaluated_us) for each in whole]
            side.rows, side.panes = together(live), [Pane(len(each)) for each in live]
    return rebuilt(config, state)


def _panes(number: int, rows: WindowRows, panes: list[Pane]) -> list[Part]:
    starts = np.concatenate([[0], np.cumsum([pane.rows for pane in panes], dtype=np.int64)])
    if starts[-1] != len(rows):
        raise InternalError("a window whose panes are not its rows")
    return [_pane(number, rows, pane, int(start)) for pane, start in zip(panes, starts, strict=False)]


def _pane(number: int, rows: WindowRows, pane: Pane, start: int) -> Part:
    return Part(number, PANE, pane, pane.rows, lambda: rows_bytes(rows.take(np.arange(start, start + pane.rows))))


def _still_here(config: AggregateConfig, number: int, rows: WindowRows, evaluated_us: int) -> WindowRows:
    """Return the rows that had not left by the last evaluation. Those inside have entered by then; `rebuilt` finds
    their entries.
    """
    here = rows.take(rows.ends >= evaluated_us)
    entered = config.starts_of(number, here.times) <= evaluated_us
    inside = entered if config.inputs[number].is_stream else np.ones(len(here), np.bool_)
    return here.at(np.where(inside, 0, OUTSIDE))
