"""State of a window join between batches: panes of the base windows, rows waiting for the watermark, row counters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Pane, merge_panes
from watersmeet.operators.window_join.row_counter import RowCounter

#: Panes up to this size are merged with a neighbour of similar size, so that n tiny batches leave O(log n) panes.
_MERGE_ROWS = 1 << 16
_MAX_PANES = 12
#: Before a new pane is written to a checkpoint, its expired rows are evicted if the share of live rows is below this.
REWRITE_BELOW_SHARE = 0.8
#: Expired rows of a new pane are evicted at once if the share of live rows is below this. The access path must then be
#: rebuilt, but over so few rows that the next batch gains.
EVICT_BELOW_SHARE = 0.25


@dataclass(frozen=True)
class WindowState:
    """State of one input: panes, oldest first; unprojected rows waiting for release; the counter of a ROWS window."""

    panes: tuple[Pane, ...] = ()
    waiting: pa.Table | None = None
    counter: RowCounter | None = None

    @property
    def rows(self) -> int:
        return sum(len(pane) for pane in self.panes) + (self.waiting.num_rows if self.waiting is not None else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows, without access paths."""
        return sum(pane.nbytes for pane in self.panes) + (self.waiting.nbytes if self.waiting is not None else 0)

    def add_pane(self, pane: Pane, retention_us: int, future_us: int) -> WindowState:
        """Return the state with a pane added, panes that can no longer match evicted, and small panes merged."""
        panes = [each for each in self.panes if each.last_use_us(retention_us) >= future_us]
        if len(pane) and pane.last_use_us(retention_us) >= future_us:
            panes.append(_drop_expired(pane, retention_us, future_us, EVICT_BELOW_SHARE))
        return replace(self, panes=_compact_panes(panes, retention_us, future_us))


@dataclass(frozen=True)
class JoinState:
    """The state of a window join. A value: a batch creates a new state and leaves the old one unchanged.

    `derived` is data that a tactic computed from these inputs and can compute again. It is never checkpointed.
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
    """Evict expired rows from panes that are new since `before`, where the rows to evict are a large share.

    Otherwise a pane is evicted as a whole, when its last row expires. Most rows of a pane that spans more time than its
    window have expired when it is created, and a checkpoint would contain them. A pane that was already written stays
    unchanged, so that it is not written again.
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
    """Return the live rows of a pane if their share is below `share`, and the pane itself otherwise."""
    live = pane.live_mask(retention_us, future_us)
    return pane.take(live) if np.count_nonzero(live) < share * len(pane) else pane


def empty_state(config: JoinConfig) -> JoinState:
    """Return the state before the first batch."""
    return JoinState(tuple(_empty_window(each) for each in config.inputs))


def _empty_window(source: JoinInput) -> WindowState:
    return WindowState(counter=None if source.row_limit is None else RowCounter(source.row_limit))


def _compact_panes(panes: list[Pane], retention_us: int, future_us: int) -> tuple[Pane, ...]:
    """Merge neighbours while the newer one is at least half as large as the older one.

    Each row is then merged O(log n) times.
    """
    while len(panes) > 1 and _should_merge(panes):
        live = [pane.take(pane.live_mask(retention_us, future_us)) for pane in panes[-2:]]
        panes = [*panes[:-2], merge_panes(live)]
    return tuple(panes)


def _should_merge(panes: list[Pane]) -> bool:
    older, newer = len(panes[-2]), len(panes[-1])
    return older <= 2 * newer and (older + newer <= _MERGE_ROWS or len(panes) > _MAX_PANES)
