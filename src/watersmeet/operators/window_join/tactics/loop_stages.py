"""Nested loops in stages: predicates that no kernel evaluates are tested between loops, on many matches at once.

A predicate over several inputs is bound at the innermost loop of those it reads. The nest is split there. The loops up
to it produce partial matches, the predicate is tested on them, and the inner loops continue with the matches that pass.
Matches flow from stage to stage in pieces of bounded size.

References: Golab, Özsu, "Processing sliding window multi-joins in continuous queries over data streams", section 3: a
predicate is tested in the first loop in which it can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr, sources_of
from watersmeet.kernels.loop_state import (
    NEXT_ARRIVAL,
    NEXT_PARTIAL,
    LoopArrivals,
    LoopCounters,
    LoopCursors,
    LoopIndexes,
    LoopProgress,
    LoopStage,
    LoopSteps,
    LoopWindows,
    Rows,
)
from watersmeet.kernels.nested_loops import join_arrivals
from watersmeet.operators.expressions import maybe_true
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PartialMatches, gather_column
from watersmeet.operators.window_join.tactics.live_rows import RowFinder
from watersmeet.operators.window_join.tactics.tactic import Reach
from watersmeet.operators.window_join.work_counters import WorkCounters

#: The maximum number of matches that a kernel call returns, so that memory stays bounded.
MAX_MATCHES = 1 << 16


@dataclass(frozen=True)
class StageRunner:
    """Consecutive loop levels, with their own indexes and progress.

    Rows enter and leave their windows as in every other stage.
    """

    levels: range
    windows: LoopWindows
    arrivals: LoopArrivals
    steps: LoopSteps
    indexes: LoopIndexes
    progress: LoopProgress
    nest: LoopCursors
    counters: LoopCounters

    def run(self, partials: Iterator[Rows] | None, evaluate_us: int, expire_us: int) -> Iterator[Rows]:
        """Yield the matches of these levels in pieces.

        `partials` are the matches of the outer levels, None for the outermost stage.
        """
        clock = self.progress.clock
        inputs = self.windows.keep.size
        out = np.empty((inputs + 2, MAX_MATCHES), np.int32)
        partial, more = np.empty((inputs + 2, 0), np.int32), partials is not None
        while clock[NEXT_ARRIVAL] <= self.arrivals.input.size:
            if partials is not None and clock[NEXT_PARTIAL] == partial.shape[1]:
                following = next(partials, None) if more else None
                if following is not None:
                    partial, clock[NEXT_PARTIAL] = following, 0
                else:
                    more = False  # the other rows of the batch still arrive and expire
            bounds = np.array([self.levels[0], self.levels[-1], partial.shape[1], more, partials is None], np.int64)
            used = join_arrivals(
                self.windows,
                self.arrivals,
                self.steps,
                self.indexes,
                self.progress,
                self.nest,
                self.counters,
                evaluate_us,
                expire_us,
                LoopStage(bounds, partial),
                out,
            )
            if used:
                yield out[:, :used].copy()


@dataclass
class StagedPredicates:
    """Predicates of a search by the loop that binds them, for each origin's order, and the outcome of testing them.

    `raised` are predicates that raised on a partial match. Such matches stay, and complete matches are tested again:
    only they decide whether the error counts.
    """

    config: JoinConfig
    orders: tuple[tuple[int, ...], ...]
    reach: Reach
    finders: list[RowFinder]
    tally: WorkCounters
    dropped: NDArray[np.int64] = field(init=False)  # by origin and window of the loop after which they were tested
    raised: dict[Expr, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dropped = np.zeros((len(self.orders), len(self.orders)), np.int64)

    def filter_matches(self, matches: Iterator[Rows], level: int) -> Iterator[Rows]:
        """Yield the partial matches of the loops up to `level` that fail no predicate bound there."""
        for rows in matches:
            keep = np.ones(rows.shape[1], np.bool_)
            for origin in _list_origins(rows):
                checks = self._predicates_at(origin, level)
                if checks:
                    at = np.flatnonzero(rows[-1] == origin)
                    keep[at] = False
                    keep[self._test(origin, level, rows, at, checks)] = True
            if keep.any():
                yield rows if keep.all() else np.ascontiguousarray(rows[:, keep])

    def split_by_origin(self, rows: Rows, level: int) -> Iterator[tuple[int, PartialMatches]]:
        """Yield (origin, matches of that origin) over the inputs bound so far."""
        for origin in _list_origins(rows):
            yield origin, self._select_matches(origin, level, rows, np.flatnonzero(rows[-1] == origin))[0]

    def final_predicates(self, origin: int) -> tuple[Expr, ...]:
        """Return the predicates to test on complete matches of an origin."""
        return tuple(dict.fromkeys((*self._predicates_at(origin, len(self.orders) - 1), *self.raised)))

    def _test(
        self, origin: int, level: int, rows: Rows, at: NDArray[np.int64], checks: tuple[Expr, ...]
    ) -> NDArray[np.int64]:
        """Return those of the positions whose matches fail no predicate."""
        matches, at = self._select_matches(origin, level, rows, at)
        test = maybe_true(checks, lambda column: gather_column(self.config, self.reach, matches, column), len(matches))
        self.raised |= dict.fromkeys(test.raised)
        self.tally.tested[origin] += len(matches)
        self.dropped[origin, self.orders[origin][level]] += len(matches) - np.count_nonzero(test.keep)
        return at[test.keep]

    def _select_matches(
        self, origin: int, level: int, rows: Rows, at: NDArray[np.int64]
    ) -> tuple[PartialMatches, NDArray[np.int64]]:
        """Return the matches at these positions, with the inputs that the origin's loops up to a level have bound.

        Matches with a row that has left the panes are left out: they are in no result. The positions of the others come
        second.
        """
        found = {i: self.finders[i].find(rows[i][at]) for i in self.orders[origin][: level + 1]}
        there = np.logical_and.reduce([hit for _, hit in found.values()])
        if there.all():
            return PartialMatches({i: own for i, (own, _) in found.items()}, {}, None, None), at
        return PartialMatches({i: own[there] for i, (own, _) in found.items()}, {}, None, None), at[there]

    def _predicates_at(self, origin: int, level: int) -> tuple[Expr, ...]:
        return tuple(
            check for check in self.config.residuals if _binding_level(self.config, self.orders[origin], check) == level
        )


def list_stage_levels(config: JoinConfig, orders: tuple[tuple[int, ...], ...]) -> list[range]:
    """List the ranges of loop levels without a predicate to test in between."""
    last = len(orders) - 1
    levels = {_binding_level(config, order, check) for order in orders if order for check in config.residuals}
    return [
        range(start, stop)
        for start, stop in pairwise([0, *sorted(level + 1 for level in levels if level < last), last + 1])
    ]


def _binding_level(config: JoinConfig, order: tuple[int, ...], check: Expr) -> int:
    """Return the innermost loop whose input the predicate reads."""
    return max(order.index(config.aliases[alias]) for alias in sources_of(check))


def _list_origins(rows: Rows) -> list[int]:
    return np.flatnonzero(np.bincount(rows[-1])).tolist()
