"""The paper's plans by the model of our kernels (`cost.early_aggregation`), to tell what of a difference is theirs."""

from __future__ import annotations

from watersmeet.planner.models.early_aggregation import EarlyInput, EarlyWeights, input_costs
from watersmeet.planner.models.tran import AggregationJoin, all_plans, plan_name, window_matches

#: Seconds between evaluations, as the runs have them.
_EVERY_S = 1.0


def kernel_plan_costs(join: AggregationJoin) -> dict[str, float]:
    """Seconds per second of every plan, with the weights that come with the program."""
    count = len(join.inputs)
    return {plan_name(early, count): _plan_cost(join, early) for early in all_plans(count)}


def _plan_cost(join: AggregationJoin, early: frozenset[int]) -> float:
    inputs = [
        EarlyInput(
            each.rows_per_s,
            each.window_rows,
            each.groups / each.selectivity,
            each.groups,
            each.passes,
            _probe_order(join, k, early),
        )
        for k, each in enumerate(join.inputs)
    ]
    costs = input_costs(inputs, early, lambda _, j: window_matches(join.inputs[j]), _EVERY_S, EarlyWeights())
    return sum(each.keep_s + each.join_s for each in costs)


def _probe_order(join: AggregationJoin, origin: int, early: frozenset[int]) -> tuple[int, ...]:
    """As `operators.meet.config.probing_order` has it where all inputs share one key."""
    others = [j for j in range(len(join.inputs)) if j != origin]
    return tuple(
        sorted(others, key=lambda j: (j not in early, join.inputs[j].window_rows / join.inputs[j].rows_per_s, j))
    )
