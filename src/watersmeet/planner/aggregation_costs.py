"""Costs of an aggregation query: the incremental aggregation with early aggregation, or estimates over a shed join.

`explain`, `collect`, `run`, the command line and Spark all use these costs for an aggregation, never the cost of the
join below it. The plans of the exact aggregation are the placements of early aggregation that the query allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations

from watersmeet.algebra.expressions import Column, columns_of
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.render import format_expression
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.aggregate.config import (
    AggregateConfig,
    build_group_outputs,
    build_join_below,
    build_layout,
    early_refusal_reason,
)
from watersmeet.operators.aggregate.state_size import VALUE_BYTES, compute_state_sizes
from watersmeet.operators.shed.aggregation import build_shed_config
from watersmeet.operators.shed.sampling import build_drop_boxes
from watersmeet.operators.window_join.config import JoinConfig, JoinInput, choose_probe_order
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.filters import fill_filters, selection_cost
from watersmeet.planner.models.ayad_drops import SheddingPolicy
from watersmeet.planner.models.early_aggregation import (
    EarlyInput,
    EarlyWeights,
    EstimateLoad,
    EstimateWeights,
    estimation_cost_per_s,
    groups_hit,
    input_costs,
)
from watersmeet.planner.models.tran import plan_name
from watersmeet.planner.overload import Remedies, find_remedies
from watersmeet.planner.plan_cost import CostedPlan, OperatorCost, PlanCost
from watersmeet.planner.search import search_plans
from watersmeet.planner.shed_search import Approximation, find_approximation
from watersmeet.planner.workload import ArrivalPattern, InputEstimate, Workload
from watersmeet.stats.stream_stats import StreamStats, derive

#: Seconds per row that an evaluation emits. Calibration does not measure it.
EMIT_S = 6e-7
#: Maximum number of inputs for which all placements are listed. With more, only two are: no input, and all inputs.
MAX_LISTED_INPUTS = 8


def rank_placements(
    bound: BoundQuery,
    config: AggregateConfig,
    workload: Workload,
    stats: Mapping[str, StreamStats],
    weights: EarlyWeights,
) -> list[CostedPlan]:
    """Return every placement with its cost, cheapest first; on a tie, the one with fewer early aggregations."""
    plans = [Plan(early=tuple(config.inputs[i].alias for i in early)) for early in list_placements(bound)]
    found = [cost_placement(config, workload, stats, plan, weights) for plan in plans]
    return sorted(found, key=lambda each: (each.cost.cpu_per_s, len(each.plan.early)))


def cost_placement(
    config: AggregateConfig, workload: Workload, stats: Mapping[str, StreamStats], plan: Plan, weights: EarlyWeights
) -> CostedPlan:
    """Estimate the cost of a placement per second of stream."""
    early = frozenset(config.join.aliases[alias] for alias in plan.early)
    inputs = [_build_early_input(config, workload, stats, i, early) for i in range(len(config.inputs))]
    interval_s = workload.arrivals.batch_s if config.every_us is None else config.every_us / 1e6

    def matches(known: frozenset[int], number: int) -> float:
        return workload.matches(config.join, known, number)

    costs = input_costs(inputs, early, matches, interval_s, weights)
    parts: list[OperatorCost] = []
    for i in config.stream_inputs:
        alias = config.inputs[i].alias
        how = "early groups" if i in early else "rows"
        parts.append(OperatorCost(f"store {alias} as {how}", costs[i].keep_s, inputs[i].rows_per_s))
        parts.append(OperatorCost(f"join changes of {alias}", costs[i].join_s, costs[i].changes_per_s))
    # The rows of the result do not depend on the placement, so they follow from single matches.
    results_per_s = sum(cost.results_per_s for cost in input_costs(inputs, (), matches, interval_s, weights))
    groups = _estimate_groups(config, workload, stats)
    shown = groups_hit(groups, interval_s * results_per_s) / interval_s
    parts.append(OperatorCost("emit", shown * EMIT_S, shown))
    state_rows = sum(each.held_rows.value for each in workload.inputs)
    held_groups = groups_hit(groups, estimate_held_combinations(config.join, workload, results_per_s))
    state_bytes = _estimate_state_bytes(config, workload, inputs, early, held_groups)
    return CostedPlan(plan, PlanCost(tuple(parts), state_rows, state_bytes, shown))


def _estimate_state_bytes(
    config: AggregateConfig, workload: Workload, inputs: list[EarlyInput], early: frozenset[int], groups: float
) -> float:
    """Estimate the bytes of window rows, of rows that wait, of entries and their keys, and of groups."""
    sizes = compute_state_sizes(config, build_layout(config))
    held = [each.held_rows.value for each in workload.inputs]
    entries = [
        min(rows, each.early_groups) if i in early else rows
        for i, (rows, each) in enumerate(zip(held, inputs, strict=True))
    ]
    keys = max(
        (min(rows, each.early_groups / each.carried) for rows, each in zip(held, inputs, strict=True)), default=0.0
    )
    values = sum(held[each.owner] for each in config.extreme_aggregates if each.owner is not None)
    identities = sum(entries[i] for i in early)
    return (
        sum(held) * sizes.row_bytes
        + sum(entries) * sizes.entry_bytes
        + keys * sizes.node_bytes
        + identities * sizes.identity_bytes
        + groups * sizes.group_bytes
        + values * VALUE_BYTES
    )


def _estimate_groups(config: AggregateConfig, workload: Workload, stats: Mapping[str, StreamStats]) -> float:
    """Estimate the groups of the result: combinations of group keys, at most the rows of a window per input."""
    groups = 1.0
    for number, carried in enumerate(config.carried):
        known, held = stats[config.inputs[number].name].distinct, workload.inputs[number].held_rows.value
        keys = carried.attributes[: carried.group_keys]
        key_values = 1.0
        for column in dict.fromkeys(column.name for key in keys for column in columns_of(key)):
            key_values *= max(known[column].value if column in known else held, 1.0)
        groups *= min(key_values, max(held, 1.0))
    return groups


def list_placements(bound: BoundQuery) -> list[tuple[int, ...]]:
    """List the sets of inputs that can be aggregated early, the empty set first: 2^m sets for m such inputs."""
    allowed = [i for i in range(len(bound.sources)) if early_refusal_reason(bound, i) is None]
    if len(allowed) > MAX_LISTED_INPUTS:
        return [(), tuple(allowed)]
    return list(chain.from_iterable(combinations(allowed, size) for size in range(len(allowed) + 1)))


def describe_placement(bound: BoundQuery, plan: Plan) -> list[str]:
    """Describe the placement by the paper's name, and the inputs that cannot be aggregated early."""
    aliases = [source.alias for source in bound.sources]
    name = plan_name({aliases.index(alias) for alias in plan.early}, len(aliases))
    where = f"early aggregation on {', '.join(plan.early)}" if plan.early else "no early aggregation"
    refused = [(alias, early_refusal_reason(bound, i)) for i, alias in enumerate(aliases)]
    return [
        f"{name}: {where}",
        *(f'"{alias}" cannot be aggregated early: {reason}' for alias, reason in refused if reason is not None),
    ]


def _build_early_input(
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
        passes=2 if source.window is None or source.window.slides else 1,
        order=_probe_order(config, number, early),
    )


def _probe_order(config: AggregateConfig, number: int, early: frozenset[int]) -> tuple[int, ...]:
    """Return the order in which an input's changes probe the others under a placement."""
    if not config.inputs[number].is_stream:
        return ()
    if config.plan.order(config.inputs[number].alias) is not None:
        return tuple(step.target for step in config.join.orders[number])
    return choose_probe_order(config.join.classes, config.join.aliases, config.join.bounds, number, early)


def _carried_columns(config: AggregateConfig, number: int) -> list[str]:
    """Return the columns that an early group of this input has to distinguish, other than the join keys."""
    source = config.inputs[number]
    exprs = [*config.carried[number].attributes, *(expr for _, expr in source.ranges)]
    if any(each is not None for each in config.forget_after_us):  # no input computes MIN or MAX early then
        exprs += [extreme.arg for extreme in config.extremes if extreme.owner == number]
    keys = {column for _, key in source.keys for column in columns_of(key)}
    columns: dict[Column, None] = dict.fromkeys(column for expr in exprs for column in columns_of(expr))
    return [column.name for column in columns if column not in keys]


_US = 1e6
_NUMBER_BYTES = 8

#: Share to drop if estimates over all rows fit the budget, but the exact aggregation does not.
MIN_DROP_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class AggregationCosts:
    """Costs of the plans of one aggregation query.

    `context` has the join's inputs, the machine, the budget and the engine.
    """

    bound: BoundQuery
    config: AggregateConfig
    stats: Mapping[str, StreamStats]
    context: CostingContext
    weights: EstimateWeights = EstimateWeights()  # noqa: RUF009  # frozen

    def candidates(self) -> list[CostedPlan]:
        """Return all placements of early aggregation, cheapest first."""
        context = self.context
        found = rank_placements(self.bound, self.config, context.workload, self.stats, context.profile.early)
        return [
            context.add_engine_cost(context.workload, self._add_selections(context.workload, each)) for each in found
        ]

    def describe_early_groups(self, plan: Plan) -> list[str]:
        """Describe, for each input that aggregates early, its group columns and the quantities α, m and n of the paper.

        References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", section 6.
        """
        config, workload = self.config, self.context.workload
        early = frozenset(config.join.aliases[alias] for alias in plan.early)
        lines = []
        for number in sorted(early):
            each, source = _build_early_input(config, workload, self.stats, number, early), config.inputs[number]
            exprs = [*(key for _, key in source.keys), *config.carried[number].attributes]
            exprs += [expr for _, expr in source.ranges]
            columns = ", ".join(dict.fromkeys(map(format_expression, exprs))) or "nothing"
            others = frozenset(range(len(config.inputs))) - {number}
            matched = workload.matches(config.join, others, number)
            lines.append(
                f"{source.alias} groups by {columns}: α = {_format_count(min(each.window_rows, each.early_groups))}"
                f" for {_format_count(each.window_rows)} rows; a probe matches n ="
                f" {_format_count(groups_hit(each.carried, matched))} instead of m = {_format_count(matched)}"
            )
        return lines

    def cost(self, plan: Plan) -> CostedPlan:
        """Cost a pinned plan: the estimates if it drops rows, else the exact aggregation."""
        boxes = build_drop_boxes(self.bound, plan)
        if not boxes:
            return self._exact().cost(plan, {})
        return self._shedding().cost_pinned(replace(plan, early=()), boxes)

    def remedies(self, chosen: CostedPlan, pinned: Plan | None, policy: SheddingPolicy) -> Remedies:
        """Find remedies for an aggregation that does not fit. Shed only at rates whose estimates fit the budget."""

        def shed() -> Approximation:
            context = self._shedding()
            found = find_approximation(
                context, self._join_plans(context.config, pinned), policy, is_pinned=pinned is not None
            )
            return found if found.plan.drop else _drop_minimum(context, found)

        return find_remedies(self._exact(), chosen.cost, chosen.plan, shed)

    def _exact(self) -> CostingContext:
        weights = self.context.profile.early
        return replace(
            self.context,
            operator=lambda remaining, plan: self._add_selections(
                remaining, cost_placement(self.config, remaining, self.stats, plan, weights)
            ),
        )

    def _add_selections(self, remaining: Workload, found: CostedPlan) -> CostedPlan:
        """Order the filters of each stream and add their cost."""
        join, profile = self.config.join, self.context.profile
        plan = fill_filters(join, remaining, profile, found.plan)
        parts = [selection_cost(join.inputs[i], remaining, profile, plan) for i in join.stream_inputs]
        selections = tuple(part for part in parts if part is not None)
        return CostedPlan(plan, replace(found.cost, operators=(*selections, *found.cost.operators)))

    def _shedding(self) -> CostingContext:
        """Return the context with the shedding aggregation as operator; refuse queries that cannot be estimated."""
        build_shed_config(self.bound, {})
        config = compile_join_config(build_join_below(self.bound, build_group_outputs(self.bound)), Plan())
        return replace(
            self.context, config=config, operator=lambda remaining, plan: self._cost_estimates(config, remaining, plan)
        )

    def _join_plans(self, config: JoinConfig, pinned: Plan | None) -> list[Plan]:
        if pinned is not None:
            return [replace(pinned, early=(), drop=())]
        context = self.context
        joined = build_join_below(self.bound, build_group_outputs(self.bound))
        found = search_plans(joined, config, context.workload, context.profile, context.budget).costed
        # The estimates need all results of every batch, so a lazy join would not wait for its instants.
        return [each.plan for each in found if not each.plan.evaluate_us]

    def _cost_estimates(self, config: JoinConfig, remaining: Workload, plan: Plan) -> CostedPlan:
        """Cost the join over the remaining rows, and the evaluations of its results."""
        joined = cost_plan(config, remaining, self.context.profile, plan)
        found_per_s = joined.cost.rows_out_per_s
        held = estimate_held_combinations(config, remaining, found_per_s)
        shown_per_s = cost_placement(
            self.config, remaining, self.stats, Plan(), self.context.profile.early
        ).cost.rows_out_per_s
        load = self._load(remaining, found_per_s, held, shown_per_s)
        part = OperatorCost("estimate aggregates", estimation_cost_per_s(load, self.weights), load.evaluations_per_s)
        cost = replace(
            joined.cost,
            operators=(*joined.cost.operators, part),
            state_rows=joined.cost.state_rows + held,
            state_bytes=joined.cost.state_bytes + held * self._combination_bytes(),
            rows_out_per_s=shown_per_s,
            combinations_per_s=found_per_s,
        )
        return CostedPlan(joined.plan, cost)

    def _load(self, remaining: Workload, found_per_s: float, held: float, shown_per_s: float) -> EstimateLoad:
        """Return the load of the evaluations.

        Without EVERY, a batch is evaluated once. With it, instants at which no combination starts or ends are skipped.
        """
        every_us, batch_s = self.config.every_us, remaining.arrivals.batch_s
        if every_us is None:
            return EstimateLoad(1 / batch_s, held, 0.0, shown_per_s * batch_s)
        evaluations_per_s = min(_US / every_us, 2 * found_per_s)
        return EstimateLoad(evaluations_per_s, held, found_per_s * batch_s / 2, shown_per_s * every_us / _US)

    def _combination_bytes(self) -> int:
        """Count the bytes of a combination.

        It has a start and an end, an identity and a time per stream, and the values that are grouped and aggregated.
        """
        values = len(self.config.group_outputs.keys) + sum(
            each.arg is not None for each in self.config.group_outputs.aggregates
        )
        return _NUMBER_BYTES * (2 + 2 * len(self.config.stream_inputs) + values)


def _format_count(count: float) -> str:
    """Format an estimated number.

    >>> _format_count(1234.4), _format_count(2.04), _format_count(0.012)
    ('1,234', '2', '0.012')
    """
    return f"{count:,.0f}" if count >= 1 else f"{count:.2g}"


def _drop_minimum(context: CostingContext, found: Approximation) -> Approximation:
    """Drop a small share of the fastest stream: a plan that drops nothing would run the exact aggregation."""
    fastest = max(context.rates, key=lambda name: context.rates[name])
    keep = {**dict(found.keep), fastest: 1 - MIN_DROP_SHARE}
    cost = context.cost(found.plan, keep).cost
    plan = replace(found.plan, drop=((fastest, MIN_DROP_SHARE),))
    return replace(found, costed=CostedPlan(plan, cost), keep=tuple(keep.items()))


def hold_full_windows(config: AggregateConfig, workload: Workload) -> Workload:
    """Return the workload of a join whose aggregation stores every window in full.

    The join alone would store only the rows that other streams can still reach.
    """
    inputs = tuple(
        _hold_full_window(source, each, config.every_us, workload.arrivals)
        for source, each in zip(config.inputs, workload.inputs, strict=True)
    )
    return replace(workload, inputs=inputs, _key_shares={})


def _hold_full_window(
    source: JoinInput, each: InputEstimate, every_us: int | None, arrivals: ArrivalPattern
) -> InputEstimate:
    if source.window is None or source.row_limit is not None:
        return each
    lasting_s = min(source.window.mean_filled_us(FOREVER_US, every_us) / 1e6, arrivals.horizon_s)
    full = derive(each.kept_per_s.value * lasting_s, each.kept_per_s)
    return replace(each, held_rows=full) if full.value > each.held_rows.value else each


def estimate_held_combinations(config: JoinConfig, workload: Workload, found_per_s: float) -> float:
    """Estimate the combinations whose rows are all inside their windows at an instant.

    There are at most as many as are found during the longest window; pair constraints make them fewer than the product
    of the windows.
    """
    held, known = 1.0, frozenset[int]()
    for number in range(len(config.inputs)):
        share = workload.key_share(config, known, number) * workload.residual_share(known, number) if known else 1.0
        held *= workload.filled_rows(config, number) * share
        known |= {number}
    lasting_s = [each.held_rows.value / each.kept_per_s.value for each in workload.inputs if each.kept_per_s.value > 0]
    return min(held, found_per_s * max(lasting_s, default=0.0))
