"""Cost of a plan per second of stream: CPU by operator, state, and rows out, from the weights of one machine.

The table of algorithms (`planner.algorithms`) names the model that predicts the operators of the join. This module has
the common part: ingest and select rows, emit rows, and the base windows.

References: Kang, Naughton, Viglas, section 3; Golab, Özsu, section 4.2; Ayad, Naughton, section 3.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.algorithms import find_algorithm
from watersmeet.planner.filters import fill_filters, selection_cost
from watersmeet.planner.memory import STORED_RESULTS, estimate_window_memory
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import CostedPlan, MemoryPart, OperatorCost, PlanCost
from watersmeet.planner.workload import Workload


def cost_plan(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> CostedPlan:
    """Fill what the plan leaves open (tree, orders, order of filters) with the cheapest, and predict its cost."""
    plan = fill_filters(config, workload, profile, plan)
    join = find_algorithm(plan).predict(config, workload, profile, plan)
    rows_out = sum(estimate_rows_by_origin(config, workload).values())
    operators = (
        *_ingest_costs(config, workload, profile, plan),
        *join.operators,
        OperatorCost("emit", rows_out * profile.row_out_s, rows_out),
    )
    memory = (
        *estimate_window_memory(config, workload, join.plan),
        *([MemoryPart(STORED_RESULTS, "", join.stored_bytes)] if join.stored_bytes else []),
        *find_algorithm(join.plan).indexes(config, workload, join.plan),
    )
    rows = sum(each.held_rows.value for each in workload.inputs) + join.stored_rows
    size = sum(part.size_bytes for part in memory)
    cost = PlanCost(operators, rows, size, rows_out, comparisons_per_s=join.comparisons_per_s, memory=memory)
    return CostedPlan(join.plan, cost)


def estimate_rows_by_origin(config: JoinConfig, workload: Workload) -> dict[int, float]:
    """Estimate the results per second that new rows of each input find."""
    return {
        i: workload.inputs[i].kept_per_s.value * _results_per_row(config, workload, i) for i in config.stream_inputs
    }


def _ingest_costs(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> list[OperatorCost]:
    """Return the costs of ingesting and selecting rows, and the fixed cost of a batch."""
    parts = []
    for i in config.stream_inputs:
        source, each = config.inputs[i], workload.inputs[i]
        parts.append(
            OperatorCost(f"ingest {source.alias}", each.rows_per_s.value * profile.row_in_s, each.rows_per_s.value)
        )
        if source.row_limit is not None:
            parts.append(
                OperatorCost(f"count {source.alias}", each.rows_per_s.value * profile.count_s, each.rows_per_s.value)
            )
        selected = selection_cost(source, workload, profile, plan)
        if selected is not None:
            parts.append(selected)
    batches = 1 / workload.arrivals.batch_s
    parts.append(OperatorCost("batches", batches * profile.batch_s, batches))
    return parts


def _results_per_row(config: JoinConfig, workload: Workload, origin: int) -> float:
    """Estimate the results per row of the origin; every order gives the same."""
    known, rows = frozenset({origin}), 1.0
    for target in (i for i in range(len(config.inputs)) if i != origin):
        rows *= workload.fanout(config, known, target)
        known |= {target}
    return rows
