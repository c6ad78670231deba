"""Early aggregation by cost: all placements a query allows, what each costs, and why some inputs cannot be aggregated
early.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations

from watersmeet.algebra.expressions import Column, columns_of
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import LandmarkWindow, TumbleWindow
from watersmeet.operators.aggregate.config import AggregateConfig, early_refusal_reason
from watersmeet.operators.window_join.config import choose_probe_order
from watersmeet.planner.budget import Costed, PlanCost
from watersmeet.planner.costing import Part
from watersmeet.planner.models.early_aggregation import EarlyInput, EarlyWeights, input_costs
from watersmeet.planner.models.tran import plan_name
from watersmeet.planner.workload import Workload
from watersmeet.stats.stream_stats import StreamStats

#: Seconds between evaluations where the query does not say: a batch.
BATCH_S = 1.0
#: Placements are listed one by one for so many inputs; above, none or all.
MOST_INPUTS = 8

def early_candidates(
    bound: BoundQuery,
    config: AggregateConfig,
    workload: Workload,
    stats: Mapping[str, StreamStats],
    weights: EarlyWeights,
) -> list[Costed]:
    """Every placement with its cost, cheapest first; of equals the one with fewer operators."""
    plans = [Plan(early=tuple(config.inputs[i].alias for i in early)) for early in placements(bound)]
    found = [early_costed(config, workload, stats, plan, weights) for plan in plans]
    return sorted(found, key=lambda each: (each.cost.cpu_per_s, len(each.plan.early)))


def early_costed(
    config: AggregateConfig, workload: Workload, stats: Mapping[str, StreamStats], plan: Plan, weights: EarlyWeights
) -> Costed:
    """A placement with what it costs per second of stream."""
    early = frozenset(config.join.aliases[alias] for alias in plan.early)
    inputs = [_input(config, workload, stats, i, early) for i in range(len(config.inputs))]
    interval_s = BATCH_S if config.every_us is None else config.every_us / 1e6
    costs = input_costs(inputs, early, lambda known, j: workload.matches(config.join, known, j), interval_s, weights)
    parts: list[Part] = []
    for i in config.streams:
        alias = config.inputs[i].alias
        how = "early groups" if i in early else "rows"
        parts.append(Part(f"keep {alias} as {how}", costs[i].keep_s, inputs[i].rows_per_s))
        parts.append(Part(f"join changes of {alias}", costs[i].join_s, costs[i].changes_per_s))
    groups = 1.0
    for each, carried in zip(inputs, config.carried, strict=True):
        groups *= min(each.carried, max(each.window_rows, 1.0)) if carried.group_keys else 1.0
    shown = min(groups / interval_s, sum(cost.results_per_s for cost in costs))
    state_rows = sum(each.held_rows.value for each in workload.inputs)
    state_bytes = sum(each.held_rows.value * each.row_bytes.value for each in workload.inputs)
    return Costed(plan, PlanCost(tuple(parts), state_rows, state_bytes, shown))


def placements(bound: BoundQuery) -> list[tuple[int, ...]]:
    """Sets of inputs that can be aggregated early, none first: 2^m of them for m inputs that can."""
    allowed = [i for i in range(len(bound.sources)) if early_refusal_reason(bound, i) is None]
    if len(allowed) > MOST_INPUTS:
        return [(), tuple(allowed)]
    return list(chain.from_iterable(combinations(allowed, size) for size in range(len(allowed) + 1)))


def early_notes(bound: BoundQuery, plan: Plan) -> list[str]:
    """The placement under the paper's name, and the inputs that cannot be part of any."""
    aliases = [source.alias for source in bound.sources]
    name = plan_name({aliases.index(alias) for alias in plan.early}, len(aliases))
    where = f"early aggregation on {', '.join(plan.early)}" if plan.early else "no early aggregation"
    refused = [(alias, early_refusal_reason(bound, i)) for i, alias in enumerate(aliases)]
    return [
        f"{name}: {where}",
        *(f'"{alias}" cannot be aggregated early: {reason}' for alias, reason in refused if reason is not None),
    ]


def _input(
    config: AggregateConfig, workload: Workload, stats: Mapping[str, StreamStats], number: int, early: frozenset[int]
) -> EarlyInput:
    source, each = config.inputs[number], workload.inputs[number]
    known = stats[source.name].distinct
    keys = 1.0
    for distinct in each.distinct.values():
        keys *= max(distinct.value, 1.0)
    carried = 1.0
    for column in _carried_columns(config, number):
        carried *= max(known[column].value, 1.0) if column in known else max(each.held_rows.value, 1.0)
    return EarlyInput(
        rows_per_s=each.kept_per_s.value,
        window_rows=each.held_rows.value,
        early_groups=keys * carried,
        carried=carried,
        passes=1 if isinstance(source.window, LandmarkWindow | TumbleWindow) else 2,
        order=_order(config, number, early),
    )


def _order(config: AggregateConfig, number: int, early: frozenset[int]) -> tuple[int, ...]:
    """How an input's changes probe the others under a placement."""
    if not config.inputs[number].is_stream:
        return ()
    if config.plan.order(config.inputs[number].alias) is not None:
        return tuple(step.target for step in config.join.orders[number])
    return choose_probe_order(config.join.classes, config.join.aliases, config.join.bounds, number, early)


def _carried_columns(config: AggregateConfig, number: int) -> list[str]:
    """Columns whose values an early group of this input has to tell apart, besides the join keys."""
    source = config.inputs[number]
    exprs = [*config.carried[number].attributes, *(expr for _, expr in source.ranges)]
    exprs += [extreme.arg for extreme in config.extremes if extreme.owner == number]
    keys = {column for _, key in source.keys for column in columns_of(key)}
    columns: dict[Column, None] = dict.fromkeys(column for expr in exprs for column in columns_of(expr))
    return [column.name for column in columns if column not in keys]
