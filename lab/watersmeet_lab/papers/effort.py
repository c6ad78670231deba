"""Amount of measurement: full for a published report, little for a check that everything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Share of a measurement's rows that run, and the number of repeats.

    `report` receives a short text before each measurement.
    """

    share: float = 1.0
    repeats: int = 4
    quick: bool = False
    report: Callable[[str], None] = lambda _: None

    def scale_rows(self, full: int, least: int = 1000) -> int:
        """Return the rows to run: the share of `full`, but at least `least`.

        >>> [Effort(share=share).scale_rows(300_000) for share in (1, 0.01, 0.001)]
        [300000, 3000, 1000]
        """
        return max(least, round(full * self.share))

    def scale_factor(self, full: int) -> int:
        """Return the factor by which a workload is scaled up; 1 in quick mode."""
        return 1 if self.quick else full

    def choose_points(self, values: tuple[float, ...]) -> tuple[float, ...]:
        """Return all points of an axis, or its ends in quick mode."""
        return (values[0], values[-1]) if self.quick else values


def choose_effort(report: Callable[[str], None], *, quick: bool) -> Effort:
    """Return the effort of a quick or a full report."""
    return Effort(share=0.02, repeats=1, quick=True, report=report) if quick else Effort(report=report)
