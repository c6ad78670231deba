"""Weights that fit measured times best: least squares of the relative errors, no weight below zero."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from watersmeet.errors import InternalError

Floats = NDArray[np.float64]


def fitted(
    quantities: Sequence[Sequence[float]], seconds: Sequence[float], known_s: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Weights w, none negative, for which `known_s + quantities · w` comes closest to the measured seconds.

    Errors are taken relative to each point's seconds, so that small loads count as much as large ones, and points of
    which little is left beside what is known count little. A point too short for the clock says nothing and is left
    out.

    >>> fitted([[1000, 10], [2000, 10], [4000, 20]], [0.6, 1.1, 2.2])
    (0.0005, 0.01)
    """
    measured = np.asarray(seconds, np.float64)
    table = np.asarray(quantities, np.float64)
    if table.ndim != 2 or len(table) != measured.size:
        raise InternalError(f"{measured.size} times do not belong to quantities of shape {table.shape}")
    known = np.zeros(measured.size) if known_s is None else np.asarray(known_s, np.float64)
    said = measured > 0
    table, known, measured = table[said], known[said], measured[said]
    largest = np.maximum(
        np.abs(table).max(axis=0, initial=0.0), 1.0
    )  # columns of one size, or the solver takes small ones for nothing
    weights = _not_negative(table / largest / measured[:, None], (measured - known) / measured) / largest
    return tuple(float(f"{weight:.6g}") for weight in weights)


def _not_negative(table: Floats, wanted: Floats) -> Floats:
    """The best of the solutions that use some of the columns, all with positive weights. Exact, and columns are few."""
    count = table.shape[1]
    best, least = np.zeros(count), float(np.square(wanted).sum())
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = table[:, chosen]
            found = np.linalg.lstsq(part, wanted, rcond=None)[0]
            error = float(np.square(part @ found - wanted).sum())
            if np.all(found >= 0) and error < least:
                best, least = np.zeros(count), error
                best[list(chosen)] = found
    return best
