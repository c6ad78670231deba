"""The pieces a predicted cost is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One operator's share of the cost, with the rows it handles per second."""

    name: str
    cpu_per_s: float
    rows_per_s: float
