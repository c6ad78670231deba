"""State of a window join between batches: panes of the base windows, rows waiting for the watermark, row counters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Pane, merge_panes
from watersmeet.operators.window_join.row_counter import RowCounter
from watersmeet.operators.window_join.segments import SEGMENT_ROWS, SegmentedPane, SegmentLog, start_segment

#: Panes up to this size are merged with a neighbour of similar size, so that n tiny batches leave O(log n) panes.
MERGE_ROWS = 1 << 16
_MAX_PANES = 12
#: Before a new pane is written to a checkpoint, its expired rows are evicted if the share of live rows is below this.
REWRITE_BELOW_SHARE = 0.8
#: Expired rows of a new pane are evicted at once if the share of live rows is below this. The access path must then be
#: rebuilt, but over so few rows that the next batch gains.
EVICT_BELOW_SHARE = 0.25


@dataclass(frozen=True)
class WindowState:
    """State of one input: panes, oldest first; unprojected rows waiting for release; the counter of a ROWS window.

    `segments` are the pieces in which the panes are saved; None if each pane is saved as a whole.
    """

    panes: tuple[Pane, ...] = ()
    waiting: pa.Table | None = None
    counter: RowCounter | None = None
    segments: SegmentLog | None = None

    @property
    def rows(self) -> int:
        return sum(len(pane) for pane in self.panes) + (self.waiting.num_rows if self.waiting is not None else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows, without access paths."""
        return sum(pane.nbytes for pane in self.panes) + (self.waiting.nbytes if self.waiting is not None else 0)

    def add_pane(self, pane: Pane, retention_us: int, future_us: int) -> WindowState:
        """Return the state with a pane added, panes that can no longer match evicted, and small panes merged."""
        stored = [each for each in self.segmented_panes() if each.pane.last_use_us(retention_us) >= future_us]
        if len(pane) and pane.last_use_us(retention_us) >= future_us:
            live = _drop_expired(pane, retention_us, future_us, EVICT_BELOW_SHARE)
            stored.append(SegmentedPane(live, ()) if self.segments is None else start_segment(live, retention_us))
        merged = _compact_panes(stored, retention_us, future_us)
        segments = None if self.segments is None else self.segments.detach(stored, merged)
        return replace(self, panes=tuple(each.pane for each in stored), segments=segments)

    def segmented_panes(self) -> list[SegmentedPane]:
        """Return the panes with their segments; without any if each pane is saved as a whole."""
        if self.segments is None:
            return [SegmentedPane(pane, ()) for pane in self.panes]
        return self.segments.attach(self.panes)

    def restore_panes(self, panes: list[Pane], retention_us: int) -> WindowState:
        """Return the state with saved panes. Segments stay as they were saved, and are merged in memory only."""
        if self.segments is None:
            return replace(self, panes=tuple(panes))
        stored: list[SegmentedPane] = []
        for pane in panes:
            stored.append(start_segment(pane, retention_us))
            while len(stored) > 1 and _should_merge(stored):
                older, newer = stored[-2:]
                stored[-2:] = [SegmentedPane(merge_panes([older.pane, newer.pane]), (*older.segments, *newer.segments))]
        return replace(self, panes=tuple(each.pane for each in stored), segments=self.segments.detach(stored))

    def start_batch(self) -> WindowState:
        """Return the state at the start of a batch: the host has saved it."""
        return self if self.segments is None else replace(self, segments=self.segments.forget_merged())


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
    retention_us = config.inputs[number].retention_us
    stored = [
        each if id(each.pane) in known else _trim_new_pane(each, retention_us, future_us)
        for each in state.segmented_panes()
    ]
    panes = tuple(each.pane for each in stored)
    if state.segments is not None:
        segments = replace(state.segments, by_pane=tuple(each.segments for each in stored))
        return replace(state, panes=panes, segments=segments.drop_expired(future_us))
    unchanged = all(now is then for now, then in zip(panes, state.panes, strict=True))
    return state if unchanged else replace(state, panes=panes)


def _trim_new_pane(stored: SegmentedPane, retention_us: int, future_us: int) -> SegmentedPane:
    """Evict expired rows of a pane that is saved for the first time. Segments that were saved before stay the same."""
    if len(stored.segments) > 1:
        return stored
    live = _drop_expired(stored.pane, retention_us, future_us, REWRITE_BELOW_SHARE)
    if live is stored.pane:
        return stored
    return start_segment(live, retention_us) if stored.segments and len(live) else SegmentedPane(live, stored.segments)


def _drop_expired(pane: Pane, retention_us: int, future_us: int, share: float) -> Pane:
    """Return the live rows of a pane if their share is below `share`, and the pane itself otherwise."""
    live = pane.live_mask(retention_us, future_us)
    return pane.take(live) if np.count_nonzero(live) < share * len(pane) else pane


def empty_state(config: JoinConfig, *, in_segments: bool = False) -> JoinState:
    """Return the state before the first batch. With `in_segments`, panes are saved in segments."""
    return JoinState(tuple(_empty_window(each, in_segments=in_segments) for each in config.inputs))


def _empty_window(source: JoinInput, *, in_segments: bool) -> WindowState:
    if source.row_limit is not None:  # later rows change the ends of its rows, so nothing is saved only once
        return WindowState(counter=RowCounter(source.row_limit))
    return WindowState(segments=SegmentLog() if in_segments and source.is_stream else None)


def _compact_panes(stored: list[SegmentedPane], retention_us: int, future_us: int) -> list[SegmentedPane]:
    """Merge neighbours in place while the newer one is at least half as large as the older one; return those merged.

    Each row is then merged O(log n) times.
    """
    merged: list[SegmentedPane] = []
    while len(stored) > 1 and _should_merge(stored):
        both = stored[-2:]
        live = [each.pane.take(each.pane.live_mask(retention_us, future_us)) for each in both]
        pane = merge_panes(live)
        if both[0].segments and 0 < len(pane) <= SEGMENT_ROWS:
            stored[-2:] = [start_segment(pane, retention_us)]
        else:
            stored[-2:] = [SegmentedPane(pane, (*both[0].segments, *both[1].segments))]
            merged += both
    return merged


def _should_merge(stored: list[SegmentedPane]) -> bool:
    older, newer = len(stored[-2].pane), len(stored[-1].pane)
    return older <= 2 * newer and (older + newer <= MERGE_ROWS or len(stored) > _MAX_PANES)
