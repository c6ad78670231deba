"""W-joins in stages: recorded scans are done one stream at a time, with predicates tested as soon as their inputs are
bound.

Matches grow depth first over pieces of bounded size, breadth first inside a piece, so memory does not depend on the
number of matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr, sources_of
from watersmeet.kernels.wjoin.extend import Thetas, extend_nested, extend_swept
from watersmeet.kernels.wjoin.scans import Scanned, Scans, room_for_scans
from watersmeet.operators.expressions import maybe_true
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.matches import Combinations, column_of
from watersmeet.operators.window_join.pane import Int32s, Int64s
from watersmeet.operators.window_join.tactics.loop_stages import MOST_ROWS
from watersmeet.operators.window_join.tactics.tactic import Reach, Tally


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of all streams as the kernels take them; `numbers` gives back the meet's own row numbers."""

    times: Int64s
    codes: Int64s
    offsets: Int64s
    old: Int64s
    numbers: list[Int32s]
    thetas: Thetas


@dataclass
class StagedScans:
    """The scans of one search and the predicates that are tested between them."""

    config: MeetConfig
    reach: Reach
    rows: Rows
    reach_us: Int64s
    tally: Tally
    is_sweep: bool
    knows_windows: bool
    scans: Scans = field(init=False)
    raised: dict[Expr, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scans = room_for_scans(self.rows.times.size, self.rows.old.size)

    @property
    def final(self) -> tuple[Expr, ...]:
        """Predicates that raised on a partial match: whole matches show whether the error counts."""
        return tuple(self.raised)

    def matches(self, scanned: Scanned) -> Iterator[Combinations]:
        """Yield the whole matches of the recorded rows, in pieces, with all predicates tested that raised nowhere."""
        recorded = int(self.scans.used[0])
        streams = self.rows.old.size
        for start in range(0, recorded, MOST_ROWS):
            at = np.arange(start, min(start + MOST_ROWS, recorded), dtype=np.int32)
            partials = np.zeros((streams + 1, at.size), np.int32)
            partials[self.scans.origin[at], np.arange(at.size)] = self.scans.row[at]
            partials[streams] = at
            yield from self._grow(scanned, partials, 0)

    def _grow(self, scanned: Scanned, partials: Int32s, depth: int) -> Iterator[Combinations]:
        streams = self.rows.old.size
        for grown in self._extend(scanned, partials, depth):
            left = self._test(grown, depth)
            if not left.shape[1]:
                continue
            if depth < streams - 2:
                yield from self._grow(scanned, left, depth + 1)
            else:
                yield self._combinations(left, range(streams))

    def _extend(self, scanned: Scanned, partials: Int32s, depth: int) -> Iterator[Int32s]:
        rows, tally, streams = self.rows, self.tally, self.rows.old.size
        extend = extend_swept if self.is_sweep else extend_nested
        checked_from = 0 if self.knows_windows else streams - 2
        compared = tally.comparisons if self.knows_windows else np.zeros_like(tally.comparisons)
        room = max(MOST_ROWS, int(np.diff(rows.offsets).max()))
        following = 0
        while following < partials.shape[1]:
            out, touched = np.empty((streams + 1, room), np.int32), tally.touched.copy()
            used, following = extend(
                scanned.times,
                scanned.codes,
                scanned.numbers,
                rows.times,
                rows.codes,
                rows.offsets,
                rows.old,
                self.reach_us,
                self.scans,
                rows.thetas,
                depth,
                checked_from,
                partials,
                following,
                tally.probes,
                tally.touched,
                compared,
                out,
            )
            if not self.knows_windows:  # codes are compared first and the window is checked last
                tally.comparisons += tally.touched - touched
            if used:
                yield np.ascontiguousarray(out[:, :used])

    def _test(self, grown: Int32s, depth: int) -> Int32s:
        """Keep the matches that may still become results, by the predicates that the stream bound last makes possible."""
        if not self.config.residuals:
            return grown
        at = grown[-1]
        bound = (1 << self.scans.origin[at].astype(np.int64)) | (
            1 << self.scans.loops[at, : depth + 1].astype(np.int64)
        ).sum(axis=1)
        kinds = bound * self.rows.old.size + self.scans.loops[at, depth]
        keep = np.ones(at.size, np.bool_)
        for kind in np.unique(kinds).tolist():
            inputs, target = divmod(kind, self.rows.old.size)
            checks = tuple(check for check in self.config.residuals if self._is_bound(check, inputs, target))
            if checks:
                its = np.flatnonzero(kinds == kind)
                keep[its] = self._holds(grown[:, its], inputs, checks)
        return grown if keep.all() else np.ascontiguousarray(grown[:, keep])

    def _is_bound(self, check: Expr, inputs: int, target: int) -> bool:
        read = [self.config.aliases[alias] for alias in sources_of(check)]
        return target in read and all(inputs >> i & 1 for i in read)

    def _holds(self, rows: Int32s, inputs: int, checks: tuple[Expr, ...]) -> NDArray[np.bool_]:
        found = self._combinations(rows, [i for i in range(self.rows.old.size) if inputs >> i & 1])
        test = maybe_true(checks, lambda column: column_of(self.config, self.reach, found, column), len(found))
        self.raised |= dict.fromkeys(test.raised)
        self.tally.tested[0] += len(found)
        return test.keep

    def _combinations(self, rows: Int32s, inputs: range | list[int]) -> Combinations:
        return Combinations({i: self.rows.numbers[i][rows[i]] for i in inputs}, {}, None, None)
