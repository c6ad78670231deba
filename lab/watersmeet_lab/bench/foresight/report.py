"""Summary of many forecasts: medians and worst cases next to the limits, coverage and width of ranges."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from watersmeet.planner.ranges import FIGURES
from watersmeet_lab.bench.foresight.measurement import ForecastFinding

#: Share of ranges that must contain the truth, and the width that the median range may have.
MIN_COVERAGE, MAX_WIDTH = 0.9, 2.0
#: Results that are too few for a ratio to mean something.
FEW_RESULTS = 30


def summarize_forecasts(found: Sequence[ForecastFinding]) -> dict[str, Any]:
    """Return the figures of all forecasts together."""
    summary: dict[str, Any] = {"cases": len(found)}
    all_errors = [(name, each.errors[name]) for each in found for name in FIGURES]
    for name in FIGURES:
        errors = [each.errors[name] for each in found]
        factors = [each.factor for each in errors if max(each.predicted, each.measured) >= _least(name)]
        summary[name] = {
            "median": statistics.median(factors) if factors else None,
            "worst": max(factors) if factors and math.isfinite(max(factors)) else None,
            "in_range": sum(each.is_in_range for each in errors) / len(errors),
            "median_width": statistics.median(each.width for each in errors),
        }
    regrets = [each.regret for each in found if each.regret is not None]
    return summary | {
        "in_range": sum(each.is_in_range for _, each in all_errors) / len(all_errors),
        "median_width": statistics.median(each.width for _, each in all_errors),
        "median_noise": statistics.median(each.noise for each in found),
        "worst_noise": max(each.noise for each in found),
        "worst_planning_s": max(each.planning_s for each in found),
        "worst_rehearsal_s": max(each.rehearsal_s for each in found),
        "median_regret": statistics.median(regrets) if regrets else None,
        "worst_regret": max(regrets) if regrets else None,
    }


def _least(name: str) -> float:
    return FEW_RESULTS if name == "rows_out_per_s" else 0.0


def format_summary(name: str, summary: dict[str, Any]) -> str:
    """Format the figures of all forecasts together."""
    lines = [f"{name}: {summary['cases']} cases"]
    for figure in FIGURES:
        each = summary[figure]
        worst = "∞" if each["worst"] is None else f"{each['worst']:.2f}"
        median = "–" if each["median"] is None else f"{each['median']:.3f}"
        lines.append(
            f"  {figure:<15} off by {median} (median), {worst} (worst); {each['in_range']:.0%} in the range,"
            f" range {each['median_width']:.2f} wide"
        )
    lines.append(
        f"  ranges contain the truth in {summary['in_range']:.0%} (at least {MIN_COVERAGE:.0%}), median width"
        f" {summary['median_width']:.2f} (at most {MAX_WIDTH:g})"
    )
    lines.append(
        f"  noise floor of CPU: {summary['median_noise']:.2f} (median), {summary['worst_noise']:.2f} (worst);"
        f" planning at most {summary['worst_planning_s'] * 1e3:,.0f} ms,"
        f" rehearsal at most {summary['worst_rehearsal_s'] * 1e3:,.0f} ms"
    )
    if summary["median_regret"] is not None:
        lines.append(f"  regret {summary['median_regret']:.3f} (median), {summary['worst_regret']:.2f} (worst)")
    return "\n".join(lines)
