"""Which of several counted quantities a measured time goes into: least squares over all points of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class LinearFit:
    """A time as a constant and so much per unit of each quantity, and the share of its variance over the points that
    this explains.
    """

    constant: float
    per_unit: tuple[float, ...]
    explained: float

    def at(self, *quantities: float) -> float:
        return self.constant + sum(
            weight * quantity for weight, quantity in zip(self.per_unit, quantities, strict=True)
        )


def fit_linear(times: Sequence[float], *quantities: Sequence[float]) -> LinearFit:
    """
    >>> found = fit([5.0, 7.0, 9.0, 11.0], [1, 2, 3, 4])
    >>> round(found.constant, 6), round(found.per_unit[0], 6), round(found.explained, 6), round(found.at(10), 6)
    (3.0, 2.0, 1.0, 23.0)
    """
    measured = np.asarray(times, np.float64)
    known = np.column_stack([np.ones(measured.size), *(np.asarray(each, np.float64) for each in quantities)])
    weights = np.linalg.lstsq(known, measured, rcond=None)[0]
    left, spread = float(np.sum((measured - known @ weights) ** 2)), float(np.sum((measured - measured.mean()) ** 2))
    constant, *per_unit = weights.tolist()
    return LinearFit(constant, tuple(per_unit), 1 - left / spread if spread else 1.0)
