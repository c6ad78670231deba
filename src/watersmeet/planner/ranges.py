"""Ranges of predicted figures, and where each figure comes from.

A figure that was rehearsed has the range that the differences between slices give (`planner.rehearsal`). A figure that
comes from formulas has a range as wide as the error of these formulas on streams that they were not fitted to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from watersmeet.planner.plan_cost import PlanCost

CPU, ROWS_OUT, STATE_ROWS, STATE_BYTES = "cpu_per_s", "rows_out_per_s", "state_rows", "state_bytes"

#: Figures of a plan that have a range, by their attribute of `PlanCost`.
FIGURES = (CPU, ROWS_OUT, STATE_ROWS, STATE_BYTES)

#: Source of figures that no row confirms.
DECLARED = "from declared statistics; assumes keys independent of time"
#: Source of figures that formulas derive from statistics of the rows.
FORMULAS = "from statistics of the rows; assumes keys independent of time"

#: Error of the formulas, as a factor in both directions, if nothing was rehearsed.
FORMULA_FACTORS = MappingProxyType({CPU: 2.0, ROWS_OUT: 2.0, STATE_ROWS: 1.25, STATE_BYTES: 1.5})


class Range(NamedTuple):
    """The lowest and the highest value that a figure probably has."""

    low: float
    high: float

    @classmethod
    def around(cls, value: float, factor: float) -> Range:
        """Return the range that is off by at most a factor, in both directions.

        >>> Range.around(10.0, 2)
        Range(low=5.0, high=20.0)
        """
        return cls(value / factor, value * factor)

    def scale(self, factor: float) -> Range:
        """Return the range of a figure that is a multiple of this one."""
        return Range(self.low * factor, self.high * factor)

    def contains(self, value: float) -> bool:
        """Return whether a value lies in the range, ends included."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Forecast:
    """Ranges of the predicted figures of a plan, and the source of each figure."""

    ranges: Mapping[str, Range]
    sources: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the ranges as pairs, and the sources, for JSON."""
        return {
            "ranges": {name: list(found) for name, found in self.ranges.items()},
            "sources": dict(self.sources),
        }


def forecast_by_formulas(cost: PlanCost, source: str) -> Forecast:
    """Return the forecast of a plan that was not rehearsed: as wide as the error of the formulas."""
    ranges = {name: Range.around(getattr(cost, name), FORMULA_FACTORS[name]) for name in FIGURES}
    return Forecast(MappingProxyType(ranges), MappingProxyType(dict.fromkeys(FIGURES, source)))
