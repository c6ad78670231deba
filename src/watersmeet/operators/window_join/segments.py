"""Segments: the rows of a window in the pieces in which a host saves them.

Panes are merged in memory, so that a probe has few of them to look at. A merged pane would be a new part of the state,
and a host would write all its rows again. A segment keeps its identity when its pane is merged, so its rows are written
once. Only small segments are merged on their own account: otherwise tiny batches would leave thousands of them.

A host that saves the state after every batch asks for segments (`WindowJoinOperator.saved_every_batch`). Without them,
each pane is a part of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from watersmeet.errors import InternalError
from watersmeet.operators.window_join.pane import Pane

#: A merged pane up to this size becomes one segment. A larger one keeps the segments of the panes it was merged from.
SEGMENT_ROWS = 1 << 13


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Rows that are saved together. Two segments are the same only if they are the same object.

    No row of it can match a new row after `last_use_us`.
    """

    rows: int
    last_use_us: int


class SegmentedPane(NamedTuple):
    """A pane and its segments, oldest first. Rows of the pane that expired may be left in the segments."""

    pane: Pane
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class SegmentLog:
    """Segments of the panes of one input, in the order of the panes.

    `merged` are the rows of segments that this batch created and then merged into a larger pane. The host writes them
    after the batch, so the next batch forgets them.
    """

    by_pane: tuple[tuple[Segment, ...], ...] = ()
    merged: tuple[tuple[Segment, Pane], ...] = ()

    def attach(self, panes: Sequence[Pane]) -> list[SegmentedPane]:
        return [SegmentedPane(*each) for each in zip(panes, self.by_pane, strict=True)]

    def detach(self, stored: Sequence[SegmentedPane], merged: Sequence[SegmentedPane] = ()) -> SegmentLog:
        """Return the log of these panes; `merged` were swallowed by larger ones."""
        swallowed = ((each.segments[0], each.pane) for each in merged if len(each.segments) == 1)
        return SegmentLog(tuple(each.segments for each in stored), (*self.merged, *swallowed))

    def forget_merged(self) -> SegmentLog:
        """Return the log at the start of the next batch: the host has saved everything."""
        return replace(self, merged=()) if self.merged else self

    def drop_expired(self, future_us: int) -> SegmentLog:
        """Return the log without segments that cannot match a row at or after `future_us`."""
        live = tuple(tuple(each for each in own if each.last_use_us >= future_us) for own in self.by_pane)
        return self if live == self.by_pane else replace(self, by_pane=live)

    def content(self, segment: Segment, stored: SegmentedPane) -> Pane:
        """Return the rows of a segment that was not saved before."""
        if stored.segments == (segment,):
            return stored.pane
        for known, pane in self.merged:
            if known is segment:
                return pane
        raise InternalError("a segment is saved after the batch that created it, or never")


def start_segment(pane: Pane, retention_us: int) -> SegmentedPane:
    """Return a pane as one new segment."""
    return SegmentedPane(pane, (Segment(len(pane), pane.last_use_us(retention_us)),))
