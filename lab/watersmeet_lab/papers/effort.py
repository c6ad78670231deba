"""How much is measured: everything for a report that is kept, little for a look whether all of it still runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """The share of a measurement's rows that are run, and how often; `say` is times_text in a few words what is measured
    next.
    """

    share: float = 1.0
    repeats: int = 4
    quick: bool = False
    report: Callable[[str], None] = lambda _: None

    def scale_rows(self, full: int, least: int = 1000) -> int:
        """
        >>> Effort().scale_rows(300_000), Effort(share=0.01).scale_rows(300_000), Effort(share=0.001).scale_rows(300_000)
        (300000, 3000, 1000)
        """
        return max(least, round(full * self.share))

    def scale_factor(self, full: int) -> int:
        """By how much a workload is scaled up; not at all when it has to be quick."""
        return 1 if self.quick else full

    def choose_points(self, values: tuple[float, ...]) -> tuple[float, ...]:
        """All points of an axis, or when it has to be quick its ends."""
        return (values[0], values[-1]) if self.quick else values


def choose_effort(report: Callable[[str], None], *, quick: bool) -> Effort:
    return Effort(share=0.02, repeats=1, quick=True, report=report) if quick else Effort(report=report)
