"""This machine's seconds from the model's: a line through the last batches, and how far off the line before it each
batch came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

#: Batches the fit looks at, and what a batch counts beside the one after it.
REMEMBERED, FADING = 12, 0.7
#: The relative variance of batches at which they tell as much about the slope as the expected overhead does.
ALIKE = 0.03
#: What an unsteady batch counts.
UNSTEADY = 0.25
#: Of a batch's seconds, the share that its rows take at the least: noise in batches that are alike must not say that
#: dropping is useless.
SLOWEST_GAIN = 0.2
#: How far off batches come before any was measured, for how many batches that counts, and how many times the scatter is
#: left free.
EXPECTED_SCATTER, EXPECTED_COUNTS, SCATTERS_FREE = 0.08, 2, 2.5
#: The least and the most of the trigger interval that is left free.
LEAST_FREE, MOST_FREE = 0.02, 0.25


class Point(NamedTuple):
    """A batch's seconds; `steady` where windows held what the model thinks they do, because the batch before was like
    this one.
    """

    predicted_s: float
    measured_s: float
    steady: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    """Measured seconds as `overhead + factor · predicted`, through the middle of the last batches, newer ones counting
    more.

    The line always goes through that middle: where it is wrong elsewhere, it is right about batches like those that
    just ran. Its slope is what batches that differ say of it; where they are alike, what is left when the expected
    overhead is taken off.

    >>> Fit((Point(1.0, 2.5), Point(2.0, 4.5)), overhead_s=0.5).line()
    (0.5, 2.0)
    """

    points: tuple[Point, ...] = ()
    overhead_s: float = 0.5

    def with_point(self, predicted_s: float, measured_s: float, *, steady: bool = True) -> Fit:
        return replace(self, points=(*self.points, Point(predicted_s, measured_s, steady))[-REMEMBERED:])

    def line(self) -> tuple[float, float]:
        """Overhead and factor; the model's own seconds where nothing was measured."""
        if not any(point.predicted_s > 0 for point in self.points):
            return self.overhead_s, 1.0
        x = self._mean([point.predicted_s for point in self.points])
        y = max(self._mean([point.measured_s for point in self.points]), 1e-9)
        spread = self._mean([(point.predicted_s - x) ** 2 for point in self.points]) / x**2
        together = self._mean([(point.predicted_s - x) * (point.measured_s - y) for point in self.points]) / x**2
        expected = max(y - self.overhead_s, 0.0) / x
        factor = (together + ALIKE * expected) / (spread + ALIKE)
        factor = min(
            max(factor, SLOWEST_GAIN * y / x), y / x
        )  # an overhead is not below zero, and fewer rows always help
        return y - factor * x, factor

    def scatter(self) -> float:
        """How far off steady batches came, as a share of what the batches before them foretold; some `EXPECTED_SCATTER`
        off are taken for granted. A line through a batch knows too much about it to say how far the next one may be
        off.
        """
        off = [EXPECTED_SCATTER] * EXPECTED_COUNTS
        for number, point in enumerate(self.points):
            if number and point.steady:
                overhead_s, factor = replace(self, points=self.points[:number]).line()
                off.append(point.measured_s / (overhead_s + factor * point.predicted_s) - 1)
        return math.sqrt(sum(share**2 for share in off) / len(off))

    def free(self) -> float:
        """The share of the trigger interval that is left free, so that a batch that takes longer than expected is in
        time all the same.
        """
        return min(max(SCATTERS_FREE * self.scatter(), LEAST_FREE), MOST_FREE)

    def _weights(self) -> list[float]:
        ages = range(len(self.points) - 1, -1, -1)
        return [FADING**age * (1.0 if point.steady else UNSTEADY) for age, point in zip(ages, self.points, strict=True)]

    def _mean(self, values: Sequence[float]) -> float:
        return sum(w * v for w, v in zip(self._weights(), values, strict=True)) / sum(self._weights())
