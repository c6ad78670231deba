"""Cost of estimating aggregates from a shed join: every evaluation groups all combinations again.

The incremental aggregation updates its groups once per change. Estimates need the rows of every combination, so the
combinations are kept while they are inside their windows and regrouped at each evaluation. Estimating therefore often
costs more than the exact aggregation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from watersmeet.planner.models.checks import check_not_negative


@dataclass(frozen=True, slots=True)
class EstimateWeights:
    """Seconds of one evaluation, per combination inside its windows, per combination that is not valid yet, and per
    group.

    The defaults were measured with three aggregates over a join of two shed streams. Calibration does not measure them.
    """

    evaluation_s: float = 5e-4
    combination_s: float = 1.2e-6
    waiting_s: float = 2e-8
    group_s: float = 3e-5

    def __post_init__(self) -> None:
        for each in fields(self):
            check_not_negative(getattr(self, each.name), f"the weight {each.name} of an estimate")


@dataclass(frozen=True, slots=True)
class EstimateLoad:
    """Quantities of the evaluations: how many per second, and how many combinations and groups each of them sees."""

    evaluations_per_s: float
    combinations: float
    waiting: float
    groups: float


def estimation_cost_per_s(load: EstimateLoad, weights: EstimateWeights) -> float:
    """Estimate CPU seconds per second spent on evaluations.

    >>> load = EstimateLoad(evaluations_per_s=2, combinations=1000, waiting=0, groups=10)
    >>> round(estimation_cost_per_s(load, EstimateWeights(5e-4, 1e-6, 2e-8, 3e-5)), 9)
    0.0036
    """
    seen_s = (
        load.combinations * weights.combination_s + load.waiting * weights.waiting_s + load.groups * weights.group_s
    )
    return load.evaluations_per_s * (weights.evaluation_s + seen_s)
