"""How rows come: in batches of a length, for a time. What a row that arrives can still meet follows from it.

References: Golab, Özsu, section 3.2: windows are filled before they slide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from watersmeet.errors import InternalError

Floats = NDArray[np.float64]

#: Batches and places inside a batch that averages are taken over.
_BATCHES, _PLACES = 24, 16

#: What is taken where nothing is known: Spark's batches and ours come about so often.
ASSUMED_BATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class Arriving:
    """Batches of `batch_s` seconds of stream each, for `horizon_s` seconds in all; without end where that is infinite."""

    batch_s: float = ASSUMED_BATCH_S
    horizon_s: float = math.inf
    is_assumed: bool = True

    def __post_init__(self) -> None:
        if not (0 < self.batch_s < math.inf and self.horizon_s >= self.batch_s):
            raise InternalError(f"batches of {self.batch_s} s for {self.horizon_s} s cannot be")

    def past_s(self, reach_s: float) -> float:
        """Seconds of a window of `reach_s` that are behind a row when it arrives, on average: windows fill first.

        >>> Arriving(batch_s=1, horizon_s=10).past_s(4), Arriving(batch_s=1, horizon_s=10).past_s(20)
        (3.2, 5.0)
        """
        if math.isinf(self.horizon_s):
            return reach_s
        return reach_s - reach_s**2 / (2 * self.horizon_s) if reach_s < self.horizon_s else self.horizon_s / 2

    def old_s(self, reach_s: float) -> float:
        """Seconds of a window that lie in earlier batches, on average over the rows of a batch and over all batches.

        >>> Arriving(batch_s=10, horizon_s=10).old_s(5), Arriving(batch_s=1).old_s(5)
        (0.0, 4.5)
        """
        inside = _places(self.batch_s)
        history = np.minimum(self._histories()[:, None] + inside, reach_s)
        return float(np.maximum(history - inside, 0).mean())

    def new_s(self, back_s: float, ahead_s: float) -> float:
        """Seconds inside a row's own batch that are at most so much before or after it, on average.

        >>> Arriving(batch_s=10).new_s(2.5, 2.5), Arriving(batch_s=10).new_s(100, 100)
        (4.375, 10.0)
        """
        inside = _places(self.batch_s)
        return float((np.minimum(inside, back_s) + np.minimum(self.batch_s - inside, ahead_s)).mean())

    def _histories(self) -> Floats:
        """Seconds of stream before each batch, or before some of them, evenly chosen."""
        if math.isinf(self.horizon_s):
            return np.array([1e15])
        batches = max(1, round(self.horizon_s / self.batch_s))
        return (
            np.unique(np.linspace(0, batches - 1, min(batches, _BATCHES)).astype(np.int64)).astype(np.float64)
            * self.batch_s
        )


def _places(length_s: float) -> Floats:
    return (np.arange(_PLACES, dtype=np.float64) + 0.5) * (length_s / _PLACES)
