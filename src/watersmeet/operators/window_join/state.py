"""What a meet remembers between batches: the panes of its base windows, rows that wait for the watermark, and row
counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.algebra.windows import RowsWindow
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Pane, merge_panes
from watersmeet.operators.window_join.row_counter import RowCounter

#: Panes up to this size are merged with a neighbour of similar size, so that a stream of tiny batches leaves a
#: logarithm of panes.
_MERGE_ROWS = 1 << 16
_MAX_PANES = 12
#: A pane with a smaller share of living rows is cut to them before it is written down.
REWRITE_BELOW_SHARE = 0.8
#: A new pane with a smaller one is cut at once: its access path is made anew, over so few rows that the next batch
#: gains by it.
EVICT_BELOW_SHARE = 0.25


@dataclass(frozen=True)
class WindowState:
    """One input's panes, oldest first; whole rows that wait to be released; the counter of a ROWS window."""

    panes: tuple[Pane, ...] = ()
    waiting: pa.Table | None = None
    counter: RowCounter | None = None

    @property
    def rows(self) -> int:
        return sum(len(pane) for pane in self.panes) + (self.waiting.num_rows if self.waiting is not None else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the kept rows themselves, without access paths."""
        return sum(pane.nbytes for pane in self.panes) + (self.waiting.nbytes if self.waiting is not None else 0)

    def add_pane(self, pane: Pane, retention_us: int, future_us: int) -> WindowState:
        """The state with a pane added, without the panes nothing can meet any more, and with small panes merged."""
        panes = [each for each in self.panes if each.last_use_us(retention_us) >= future_us]
        if len(pane) and pane.last_use_us(retention_us) >= future_us:
            panes.append(_drop_expired(pane, retention_us, future_us, EVICT_BELOW_SHARE))
        return replace(self, panes=_compact_panes(panes, retention_us, future_us))


@dataclass(frozen=True)
class JoinState:
    """The state of a meet. A value: a step makes a new one and leaves the old one as it was.

    `derived` is what a tactic made of these inputs and would have to make again without it; it is never written down.
    """

    inputs: tuple[WindowState, ...]
    derived: object = field(default=None, compare=False, repr=False)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.inputs)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.inputs)


def evict_expired_rows(config: JoinConfig, state: JoinState, before: JoinState, future_us: int) -> JoinState:
    """The state with those panes cut to their living rows that are new since `before` and would leave much behind.

    A pane goes when its last row does. One that spans more time than its window is mostly dead when it is made, and
    whoever writes state down would write that; one that was written already stays as it is.
    """
    return replace(
        state,
        inputs=tuple(
            _evict_from_window(config, i, each, before.inputs[i], future_us) for i, each in enumerate(state.inputs)
        ),
    )


def _evict_from_window(
    config: JoinConfig, number: int, state: WindowState, before: WindowState, future_us: int
) -> WindowState:
    known = {id(pane) for pane in before.panes}
    panes = [
        pane
        if id(pane) in known
        else _drop_expired(pane, config.inputs[number].retention_us, future_us, REWRITE_BELOW_SHARE)
        for pane in state.panes
    ]
    return (
        state
        if all(now is then for now, then in zip(panes, state.panes, strict=True))
        else replace(state, panes=tuple(panes))
    )


def _drop_expired(pane: Pane, retention_us: int, future_us: int, share: float) -> Pane:
    """The pane, cut to its living rows where they are a smaller share of it."""
    alive = pane.live_mask(retention_us, future_us)
    return pane.take(alive) if np.count_nonzero(alive) < share * len(pane) else pane


def empty_state(config: JoinConfig) -> JoinState:
    return JoinState(tuple(_empty_window(each) for each in config.inputs))


def _empty_window(source: JoinInput) -> WindowState:
    return WindowState(counter=RowCounter(source.window) if isinstance(source.window, RowsWindow) else None)


def _compact_panes(panes: list[Pane], retention_us: int, future_us: int) -> tuple[Pane, ...]:
    """Merges neighbours while the newer one is at least half as large as the older: each row is then merged a logarithm
    of times.
    """
    while len(panes) > 1 and _should_merge(panes):
        alive = [pane.take(pane.live_mask(retention_us, future_us)) for pane in panes[-2:]]
        panes = [*panes[:-2], merge_panes(alive)]
    return tuple(panes)


def _should_merge(panes: list[Pane]) -> bool:
    older, newer = len(panes[-2]), len(panes[-1])
    return older <= 2 * newer and (older + newer <= _MERGE_ROWS or len(panes) > _MAX_PANES)
