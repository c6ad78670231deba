"""What the embedded engine spends around the kernels: on a batch, a row that comes in, a predicate, a match, a row that goes out.

Whole steps of the meet are measured, from nothing to a first batch of two streams. What the runs account for is known by then; the rest is
split by least squares over steps that differ in rows, in matches per row, in whether a predicate selects, and in whether rows are put out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.cost.profile import Structure
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.operators.meet.state import empty_state
from watersmeet.operators.meet.step import Stepped, step
from watersmeet.optimizer.calibration.fit import fitted
from watersmeet.optimizer.calibration.streams import A, B, delta_of, joined
from watersmeet.optimizer.calibration.timing import timed


@dataclass(frozen=True, slots=True)
class Point:
    """A step: rows that came in, rows a predicate was asked of, rows it let pass by input, matches, rows put out, and its seconds."""

    rows: int
    asked: int
    passed: tuple[int, int]
    matches: int
    put_out: int
    seconds: float

    def runs_s(self, runs: Structure) -> float:
        """Both inputs are put into runs, the second one's rows look the first one's up."""
        return sum(self.passed) * runs.update_s + self.passed[B] * runs.lookup_s + self.matches * runs.compare_s


@dataclass(frozen=True, slots=True)
class Around:
    """The weights, named as in a profile."""

    batch_s: float
    row_in_s: float
    select_s: float
    match_s: float
    row_out_s: float


def around(points: list[Point], runs: Structure) -> Around:
    return Around(
        *fitted(
            [(1, each.rows, each.asked, each.matches, each.put_out) for each in points],
            [each.seconds for each in points],
            [each.runs_s(runs) for each in points],
        )
    )


def points(repeats: int, *, quick: bool) -> list[Point]:
    sizes = (1, 20_000) if quick else (1, 10_000, 40_000, 160_000)
    densities = (1, 8) if quick else (0, 1, 4, 12)
    return [
        point(rows, matches, repeats, selects=selects, puts_out=puts_out)
        for rows in sizes
        for matches in densities
        for selects in (False, True)
        for puts_out in (False, True)
    ]


def point(rows: int, matches_per_row: int, repeats: int, *, selects: bool, puts_out: bool) -> Point:
    """One step over `rows` rows of each stream; the predicate lets half of `a` pass."""
    rng = np.random.default_rng([rows, matches_per_row])
    config = joined(Plan(), where=f" AND a.id < {(rows + 1) // 2}" if selects else "")
    distinct = max(1, rows // max(1, matches_per_row))
    apart = np.array([0, 0 if matches_per_row else distinct])  # keys that never meet where there are to be no matches
    keys = rng.integers(0, distinct, (2, rows)) + apart[:, None]
    deltas = {number: delta_of(np.arange(rows), keys[number]) for number in (A, B)}
    run = config if puts_out else _only_counting(config)

    def first_step() -> Stepped:
        return step(run, empty_state(run), deltas, -FOREVER_US, 0)

    taken = timed(first_step, repeats)
    passed = ((rows + 1) // 2 if selects else rows, rows)
    matches = _matches(keys[A][: passed[A]], keys[B])
    return Point(2 * rows, rows if selects else 0, passed, matches, taken.result.counters.results, taken.seconds)


def _only_counting(config: MeetConfig) -> MeetConfig:
    """The same meet with no columns to gather."""
    return replace(config, outputs=(), result=pa.schema([]))


def _matches(left: np.typing.NDArray[np.int64], right: np.typing.NDArray[np.int64]) -> int:
    size = int(max(left.max(), right.max())) + 1
    return int(np.bincount(left, minlength=size) @ np.bincount(right, minlength=size))
