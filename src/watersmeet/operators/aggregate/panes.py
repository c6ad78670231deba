"""Which rows of a window are kept together where state is saved: a pane is a run of neighbouring rows that came in one
batch.

Rows of a pane leave one by one, and their order stays. What is saved of a pane is what it was when it came: the rows
that have left since are told by their ends. So a window is not written again with every batch; a pane is written once,
and deleted when its last row is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]

#: Neighbours are put together when a window has more panes than this, so that tiny batches do not leave thousands.
MAX_PANES = 16


@dataclass(eq=False)
class AggregatePane:
    """A run of so many rows. Its identity tells whether it is saved already; what it has lost since does not matter."""

    rows: int


def evict_from_panes(panes: list[AggregatePane], gone: Bools) -> list[AggregatePane]:
    """The panes that are left when these rows of the window are gone.

    >>> [pane.rows for pane in evict_from_panes([AggregatePane(2), AggregatePane(1), AggregatePane(2)], np.array([True, False, True, False, False]))]
    [1, 2]
    """
    before = np.concatenate([[0], np.cumsum(~gone)])
    start = 0
    for pane in panes:
        start, end = start + pane.rows, start
        pane.rows = int(before[start] - before[end])
    return [pane for pane in panes if pane.rows]


def merge_to_limit(panes: list[AggregatePane]) -> list[AggregatePane]:
    """The same rows in a bounded number of panes: the two neighbours with the fewest rows become one, as often as is
    needed.
    """
    panes = [pane for pane in panes if pane.rows]
    while len(panes) > MAX_PANES:
        at = min(range(len(panes) - 1), key=lambda place: panes[place].rows + panes[place + 1].rows)
        panes[at : at + 2] = [AggregatePane(panes[at].rows + panes[at + 1].rows)]
    return panes
