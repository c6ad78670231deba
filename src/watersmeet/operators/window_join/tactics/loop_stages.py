"""Nested loops in stages: predicates that no kernel evaluates are tested between loops, on many partial matches at
once.

A predicate over several inputs is bound at the innermost loop of those it reads. The nest is cut there: loops up to it
make partial matches, the predicate is tested on them, and the loops behind it go on from the survivors. Matches flow
from stage to stage in bounded pieces.

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
    LEVEL,
    NEXT_ARRIVAL,
    NEXT_PARTIAL,
    Arrivals,
    Counters,
    Indexes,
    Loops,
    Progress,
    Rows,
    Stage,
    Steps,
    Windows,
)
from watersmeet.kernels.nested_loops import join_arrivals
from watersmeet.operators.expressions import maybe_true
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PartialMatches, gather_column
from watersmeet.operators.window_join.tactics.tactic import Reach
from watersmeet.operators.window_join.work_counters import WorkCounters

#: Matches a kernel call returns at most, so that derived stays bounded.
MAX_MATCHES = 1 << 16


@dataclass(frozen=True)
class LoopStage:
    """Some levels of the loops, with windows and indexes of their own that rows enter and leave as in every other
    stage.
    """

    levels: range
    windows: Windows
    arrivals: Arrivals
    steps: Steps
    indexes: Indexes
    progress: Progress
    nest: Loops
    counters: Counters

    def run(self, partials: Iterator[Rows] | None, evaluate_us: int, expire_us: int) -> Iterator[Rows]:
        """Yield the matches of these levels, in pieces; `partials` are those of the levels before, None for the
        outermost.
        """
        clock = self.progress.clock
        inputs = self.windows.keep.size
        out = np.empty((inputs + 2, MAX_MATCHES), np.int32)
        given, more = np.empty((inputs + 2, 0), np.int32), partials is not None
        while clock[NEXT_ARRIVAL] <= self.arrivals.input.size:
            if partials is not None and clock[NEXT_PARTIAL] == given.shape[1]:
                following = next(partials, None) if more else None
                if following is not None:
                    given, clock[NEXT_PARTIAL] = following, 0
                elif clock[LEVEL] < self.levels[0]:
                    return  # no partial match is left, and no loop is open
                else:
                    more = False
            bounds = np.array([self.levels[0], self.levels[-1], given.shape[1], more, partials is None], np.int64)
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
                Stage(bounds, given),
                out,
            )
            if used:
                yield out[:, :used].copy()


@dataclass
class StagedPredicates:
    """The predicates of a search by the loop at which they are bound, for each origin's order, and what came of testing
    them.

    `raised` are predicates that raised on a partial match. Such matches go on, and whole matches are tested again: only
    there it shows whether the error counts.
    """

    config: JoinConfig
    orders: tuple[tuple[int, ...], ...]
    reach: Reach
    tally: WorkCounters
    dropped: NDArray[np.int64] = field(init=False)  # by origin and the window of the loop behind which they were tested
    raised: dict[Expr, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dropped = np.zeros((len(self.orders), len(self.orders)), np.int64)

    @property
    def stages(self) -> list[range]:
        """Levels of loops with no predicate to test in between."""
        last = len(self.orders) - 1
        levels = {
            self._level(origin, check)
            for origin, order in enumerate(self.orders)
            if order
            for check in self.config.residuals
        }
        return [
            range(start, stop)
            for start, stop in pairwise([0, *sorted(level + 1 for level in levels if level < last), last + 1])
        ]

    def filter_matches(self, found: Iterator[Rows], level: int) -> Iterator[Rows]:
        """Yield the partial matches, all loops up to `level` bound, on which no predicate that is bound there fails."""
        for rows in found:
            keep = np.ones(rows.shape[1], np.bool_)
            for origin in _list_origins(rows):
                checks = self._bound_at(origin, level)
                if checks:
                    its = np.flatnonzero(rows[-1] == origin)
                    keep[its] = self._test(origin, level, rows, its, checks)
            if keep.any():
                yield rows if keep.all() else np.ascontiguousarray(rows[:, keep])

    def split_by_origin(self, rows: Rows, level: int) -> Iterator[tuple[int, PartialMatches]]:
        """Matches as combinations of the inputs bound so far, those of one origin together."""
        for origin in _list_origins(rows):
            yield origin, self._combinations(origin, level, rows, np.flatnonzero(rows[-1] == origin))

    def final_predicates(self, origin: int) -> tuple[Expr, ...]:
        """The predicates to test on whole matches of an origin."""
        return tuple(dict.fromkeys((*self._bound_at(origin, len(self.orders) - 1), *self.raised)))

    def _test(
        self, origin: int, level: int, rows: Rows, its: NDArray[np.int64], checks: tuple[Expr, ...]
    ) -> NDArray[np.bool_]:
        found = self._combinations(origin, level, rows, its)
        tested = maybe_true(checks, lambda column: gather_column(self.config, self.reach, found, column), len(found))
        self.raised |= dict.fromkeys(tested.raised)
        self.tally.tested[origin] += len(found)
        self.dropped[origin, self.orders[origin][level]] += len(found) - np.count_nonzero(tested.keep)
        return tested.keep

    def _combinations(self, origin: int, level: int, rows: Rows, its: NDArray[np.int64]) -> PartialMatches:
        """The matches at these places, with the inputs that the origin's loops up to a level have bound."""
        return PartialMatches({i: rows[i][its] for i in self.orders[origin][: level + 1]}, {}, None, None)

    def _bound_at(self, origin: int, level: int) -> tuple[Expr, ...]:
        return tuple(check for check in self.config.residuals if self._level(origin, check) == level)

    def _level(self, origin: int, check: Expr) -> int:
        """The innermost loop of those that a predicate reads."""
        return max(self.orders[origin].index(self.config.aliases[alias]) for alias in sources_of(check))


def _list_origins(rows: Rows) -> list[int]:
    return np.flatnonzero(np.bincount(rows[-1])).tolist()
