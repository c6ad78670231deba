"""Explanation of a query before it runs: the chosen plan, its predicted cost, feasibility, and the plans that lost.

`str(explanation)` is text, `to_dict()` plain values for programs, `_repr_html_()` a page for notebooks. The text
formats numbers with `watersmeet.units`; the plain values stay exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.render import format_expression, format_query, html_code, html_paragraph, html_table
from watersmeet.algebra.windows import FOREVER_US, format_sql_duration
from watersmeet.errors import PlanError
from watersmeet.operators.aggregate.config import build_aggregate_config
from watersmeet.operators.shed.sampling import build_drop_boxes
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.tactics.registry import compile_join_config, find_tactic
from watersmeet.planner.aggregation_costs import AggregationCosts, describe_placement, hold_full_windows
from watersmeet.planner.correction import correct
from watersmeet.planner.cost_of_allocation import AllocationCosts
from watersmeet.planner.cost_of_spark import Shuffle
from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.filling import fill_plan
from watersmeet.planner.filters import FilterStep, predict_filters
from watersmeet.planner.live_report import LiveReport, Verdict
from watersmeet.planner.models.ayad_drops import SheddingPolicy
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.overload import Remedies, find_join_remedies
from watersmeet.planner.plan_cost import Budget, CostedPlan, PlanCost
from watersmeet.planner.probe_orders import describe_order, find_pinned_order
from watersmeet.planner.ranges import DECLARED, FORMULAS, Forecast, Range, forecast_by_formulas
from watersmeet.planner.rehearsal import Rehearsal
from watersmeet.planner.samples import Samples
from watersmeet.planner.search import lets_results_wait, search_plans
from watersmeet.planner.spark_forecast import SparkForecast
from watersmeet.planner.workload import ArrivalPattern, Workload, estimate_workload
from watersmeet.stats.stream_stats import Estimate, StreamStats
from watersmeet.units import (
    format_bytes,
    format_cores,
    format_count,
    format_duration,
    format_operation_time,
    format_percent,
    format_rate,
    format_selectivity,
)

#: Number of losing plans in the text, unless all plans are requested.
TEXT_PLANS = 5

#: Unit of an operator's rate, by the start of its name. All other operators handle rows.
_RATE_NOUNS = {
    "batches of probes": "probes",
    "batches": "batches",
    "spark: micro-batches": "batches",
    "join changes": "changes",
    "estimate aggregates": "evaluations",
}


@dataclass(frozen=True, slots=True)
class PairTimeBound:
    """How much later the second row of a pair may be than the first, and the first than the second."""

    first: str
    second: str
    second_after_us: int
    first_after_us: int

    @property
    def within_us(self) -> int:
        """The most that the two rows may be apart."""
        return max(self.second_after_us, self.first_after_us)

    def describe(self) -> str:
        """Describe the bound, with its direction if it has one.

        >>> PairTimeBound("a", "b", 5_000_000, 0).describe(), PairTimeBound("a", "b", 1_000_000, 1_000_000).describe()
        ('a first, b at most 5 seconds later', 'a and b at most 1 second apart')
        """
        length = _format_length(self.within_us)
        if self.second_after_us == self.first_after_us:
            return f"{self.first} and {self.second} at most {length} apart"
        if self.first_after_us == 0:
            return f"{self.first} first, {self.second} at most {length} later"
        if self.second_after_us == 0:
            return f"{self.second} first, {self.first} at most {length} later"
        after, before = (_format_length(each) for each in (self.second_after_us, self.first_after_us))
        return f"{self.second} at most {after} after {self.first}, {self.first} at most {before} after {self.second}"

    def to_dict(self) -> dict[str, object]:
        """Return the bound for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "within_us": self.within_us,
            "second_after_us": self.second_after_us,
            "first_after_us": self.first_after_us,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The chosen plan with its predicted cost, the plans that lost, and the provenance of every number."""

    bound: BoundQuery
    config: JoinConfig
    workload: Workload
    stats: Mapping[str, StreamStats]
    chosen: CostedPlan
    others: tuple[CostedPlan, ...]
    budget: Budget
    profile: Profile
    all_plans: bool = False
    trace: tuple[str, ...] = ()  # steps of the search
    remedies: Remedies | None = None  # only if they were requested and the chosen plan does not keep up
    engine: str = "embedded"
    notes: tuple[str, ...] = ()  # for an aggregation: inputs that aggregate early, and why others cannot
    shuffle: Shuffle | None = None  # on Spark: rows sent to the buckets, with their copies
    rehearsal: Rehearsal | None = None  # None: nothing was rehearsed, the formulas predict
    micro_batch: SparkForecast | None = None  # on Spark: a steady micro-batch
    live: LiveReport | None = None  # of a running query: what its batches measured, and its verdict

    @property
    def micro_batch_s(self) -> float | None:
        """On Spark: predicted wall time of a steady micro-batch at the trigger interval."""
        return None if self.micro_batch is None else self.micro_batch.micro_batch_s

    @property
    def sustained_rows_per_s(self) -> float | None:
        """On Spark: rows per second of all streams together at which a micro-batch takes the trigger interval."""
        return None if self.micro_batch is None else self.micro_batch.sustained_rows_per_s

    @property
    def forecast(self) -> Forecast:
        """Ranges and sources of the predicted figures."""
        if self.rehearsal is not None:
            return self.rehearsal.forecast
        is_declared = not self.workload.samples.by_input
        return forecast_by_formulas(self.chosen.cost, DECLARED if is_declared else FORMULAS)

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Pairs (low, high) of "cpu_per_s", "rows_out_per_s", "state_rows" and "state_bytes"."""
        return self.forecast.ranges

    @property
    def plan(self) -> Plan:
        """The chosen plan."""
        return self.chosen.plan

    @property
    def utilisation(self) -> float:
        """Predicted CPU time as a share of all processors of the budget."""
        return self.chosen.cost.cpu_per_s / self.budget.processors

    @property
    def feasible(self) -> bool:
        """Whether the chosen plan fits the budget; of a running query, whether it keeps up."""
        if self.live is not None and self.live.verdict is not Verdict.UNKNOWN:
            return self.live.verdict is not Verdict.DOES_NOT
        return self.budget.shortfall(self.chosen.cost) is None

    @property
    def verdict(self) -> str:
        """Whether the query keeps up. After a rehearsal, that requires the upper end of the range to fit.

        The verdict on a running query follows its newest batches.
        """
        if self.live is not None and self.live.verdict is not Verdict.UNKNOWN:
            return self.live.sentence
        shortfall = self.budget.shortfall(self.chosen.cost)
        if shortfall is not None:
            return f"it cannot keep up: {shortfall}"
        highest = self.ranges["cpu_per_s"].high
        if self.rehearsal is None or highest <= self.budget.cpu_per_s:
            return "it keeps up"
        safe = format_percent(self.budget.cpu_per_s / highest)
        return f"it may not keep up: it needs up to {format_cores(highest)}; {safe} of the rate is safe"

    def choose_shedding_plan(self, *, shed: bool) -> Plan | None:
        """Return a plan that sheds enough rows to fit the budget, or None if nothing has to be shed.

        If rows have to be shed but `shed` is false, raise `PlanError` and list the remedies.
        """
        shortfall = self.budget.shortfall(self.chosen.cost)
        if shortfall is None or self.remedies is None:
            return None
        if shed and self.remedies.approximation is not None:
            return self.remedies.approximation.plan
        sentences = [sentence.rstrip(".") for sentence in self.remedies.describe()]
        if self.remedies.approximation is not None:
            sentences.append("to allow dropping rows, pass shed=True in Python or --shed on the command line")
        raise PlanError(f"the query cannot keep up: {shortfall}", hint="one of: " + "; ".join(sentences))

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, for programs."""
        return {
            "query": format_query(self.bound.query),
            "plan": self.plan.to_dict(),
            "cost": _cost_dict(self.chosen.cost),
            **self.forecast.to_dict(),
            "utilisation": self.utilisation,
            "feasible": self.feasible,
            "verdict": self.verdict,
            "reason": self.budget.shortfall(self.chosen.cost),
            "remedies": None if self.remedies is None else self.remedies.to_dict(),
            "inputs": [self._input_dict(each) for each in self.config.inputs],
            "pairs": [each.to_dict() for each in self._pair_bounds()],
            "orders": self._orders(),
            "waits_for_watermark": self.config.waits_for_watermark,
            "alternatives": [{"plan": each.plan.to_dict(), "cost": _cost_dict(each.cost)} for each in self.others],
            "notes": list(self.notes),
            "trace": list(self.trace),
            "engine": self.engine,
            "shuffle": None if self.shuffle is None else _shuffle_dict(self.shuffle),
            "micro_batch": None if self.micro_batch is None else self.micro_batch.to_dict(),
            "micro_batch_s": self.micro_batch_s,
            "sustained_rows_per_s": self.sustained_rows_per_s,
            "live": None if self.live is None else self.live.to_dict(),
            "batch_s": self.workload.arrivals.batch_s,
            "checks": [
                {"predicate": str(text), "share": _estimate_dict(each.share), "cost_s": each.check_s(self.profile)}
                for each in self.workload.residuals
                for text in [format_expression(each.predicate)]
            ],
            "profile": {"name": self.profile.name, "source": self.profile.source},
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        cost, verdict = self.chosen.cost, "keeps up" if self.feasible else "cannot keep up"
        return (
            f"Explanation(plan {self.plan.algorithm} {verdict}:"
            f" {format_percent(self.utilisation)} of {_count_cores(self.budget.processors)},"
            f" {format_bytes(cost.state_bytes)} of state, output {format_rate(cost.rows_out_per_s)})"
        )

    def _repr_html_(self) -> str:
        return render_explanation_html(self.to_dict())

    def _lines(self) -> Iterator[str]:
        cost = self.chosen.cost
        yield from (format_query(self.bound.query), "")
        if self.live is not None:
            yield from (*self.live.describe(), "")
        yield f"plan {self.plan.algorithm}"
        yield from self.notes
        for operator in cost.operators:
            cores, rate = format_cores(operator.cpu_per_s), _format_operator_rate(operator.name, operator.rows_per_s)
            yield f"  {operator.name:<32} {cores:>19}  {rate:>18}"
        yield (
            f"predicted: {format_percent(self.utilisation)} of {_count_cores(self.budget.processors)},"
            f" {format_bytes(cost.state_bytes)} of state ({format_count(cost.state_rows)} rows),"
            f" output {format_rate(cost.rows_out_per_s)}"
        )
        if cost.comparisons_per_s is not None:
            yield f"the loops compare {format_rate(cost.comparisons_per_s, 'rows')}"
        if cost.memory:
            yield f"memory: {_describe_memory(cost)}"
        yield self.verdict
        if self.rehearsal is not None:
            low, high = self.ranges["cpu_per_s"]
            rows_low, rows_high = self.ranges["rows_out_per_s"]
            yield f"estimates: {self.rehearsal.describe()}"
            yield (
                f"  CPU {format_cores(low)} to {format_cores(high)},"
                f" output {format_rate(rows_low)} to {format_rate(rows_high)}"
            )
        if self.remedies is not None:
            yield "what would help"
            yield from (f"  {sentence}" for sentence in self.remedies.describe())
        yield describe_profile(self.profile)
        if self.engine == "spark" and self.profile.spark.assumed:
            yield "Spark's costs per row and per batch are assumed: run `watersmeet calibrate --spark` to measure them"
        if self.shuffle is not None:
            yield str(self.shuffle)
        if self.micro_batch is not None:
            yield from self.micro_batch.describe()
        arrivals = self.workload.arrivals
        origin = "assumed" if arrivals.is_assumed else "measured"
        yield f"one batch covers {format_duration(arrivals.batch_s)} of event time ({origin})"
        yield from self._input_lines()
        yield from ("how the plan was chosen", *(f"  {line}" for line in self.trace))
        yield from self._losing_plan_lines()

    def _input_lines(self) -> Iterator[str]:
        yield "state by input"
        for source, each in zip(self.config.inputs, self.workload.inputs, strict=True):
            rate, held = each.rows_per_s, each.held_rows
            yield (
                f"  {source.alias}: {self._describe_kept_rows(source)}; {format_rate(rate.value)} ({rate.provenance}),"
                f" {format_count(held.value)} rows stored ({held.provenance})"
            )
            for step in self._filters(source):
                yield (
                    f"    tests {format_expression(step.predicate)} on {format_rate(step.rows_per_s)}:"
                    f" selectivity {format_selectivity(step.share.value)} ({step.share.provenance}),"
                    f" {format_operation_time(step.cost_s.value)} per row ({step.cost_s.provenance})"
                )
            for name, distinct in self.stats[source.name].distinct.items():
                yield f"    {name}: {format_count(distinct.value)} distinct values ({distinct.provenance})"
        for residual in self.workload.residuals:
            share = residual.share
            predicate = format_expression(residual.predicate)
            cost = format_operation_time(residual.check_s(self.profile))
            selectivity = format_selectivity(share.value)
            yield f"  {predicate}: selectivity {selectivity} ({share.provenance}), {cost} per candidate"
        pairs = self._pair_bounds()
        if pairs:
            yield "time bounds in a result, given and derived"
            yield from (f"  {each.describe()}" for each in pairs)
        if len(self.config.inputs) > 1 and self._orders():
            yield "probe order, by the stream of the new row"
            for origin, order in self._orders().items():
                yield f"  {origin}: {describe_order(origin, order).removeprefix(f'{origin}: ')}"
        if self.config.waits_for_watermark:
            yield "results wait for the watermark: a ROWS window counts rows in time order"
        if self.plan.evaluate_us and not self.bound.is_aggregation:
            every = format_duration(self.plan.evaluate_us / 1e6)
            yield f"results wait until the watermark passes the next evaluation, every {every} of event time"

    def _losing_plan_lines(self) -> Iterator[str]:
        listed = self.others if self.all_plans else self.others[:TEXT_PLANS]
        if listed:
            yield "plans that lost"
        for each in listed:
            indexes = ", ".join(f"{alias} {index}" for alias, index in each.plan.indexes)
            times = each.cost.cpu_per_s / self.chosen.cost.cpu_per_s if self.chosen.cost.cpu_per_s else 1.0
            knobs = indexes or ("" if each.plan.tree is None else str(each.plan.tree).replace("'", ""))
            name = f"{each.plan.algorithm} ({knobs})" if knobs else each.plan.algorithm
            if self.bound.is_aggregation:
                name = describe_placement(self.bound, each.plan)[0]
            yield f"  {name}: {format_cores(each.cost.cpu_per_s)}, {times:,.1f} times the cost"
        if len(self.others) > len(listed):
            yield f"  and {len(self.others) - len(listed)} more"

    def _orders(self) -> dict[str, list[str]]:
        """Return the probe order by origin: the other inputs, or all of them if the new rows are not outermost.

        Trees and W-joins have none.
        """
        if not self.bound.is_aggregation and find_tactic(self.plan).parts.orders is None:
            return {}
        inputs = self.config.inputs
        return {
            inputs[i].alias: [
                inputs[j].alias
                for j in find_pinned_order(self.config, self.plan, i)
                or tuple(step.target for step in self.config.orders[i])
            ]
            for i in self.config.stream_inputs
        }

    def _filters(self, source: JoinInput) -> list[FilterStep]:
        """Return the filters of a stream in the order of the plan; a relation is filtered once, before the run."""
        return list(predict_filters(source, self.workload, self.profile, self.plan)) if source.is_stream else []

    def _input_dict(self, source: JoinInput) -> dict[str, Any]:
        each = self.workload.inputs[source.number]
        return {
            "alias": source.alias,
            "source": source.name,
            "window": None if source.window is None else str(source.window),
            "retention_us": source.retention_us if source.retention_us < FOREVER_US else None,
            "keeps": self._describe_kept_rows(source),
            "rows_per_s": _estimate_dict(each.rows_per_s),
            "kept_per_s": _estimate_dict(each.kept_per_s),
            "held_rows": _estimate_dict(each.held_rows),
            "row_bytes": _estimate_dict(each.row_bytes),
            "filters": [
                {
                    "predicate": str(format_expression(step.predicate)),
                    "share": _estimate_dict(step.share),
                    "cost_s": _estimate_dict(step.cost_s),
                    "rows_per_s": step.rows_per_s,
                    "cpu_per_s": step.cpu_per_s,
                }
                for step in self._filters(source)
            ],
            "distinct": {name: _estimate_dict(found) for name, found in self.stats[source.name].distinct.items()},
        }

    def _describe_kept_rows(self, source: JoinInput) -> str:
        if not source.is_stream:
            return "the whole relation"
        if len(self.config.stream_inputs) == 1 and not source.has_ends:
            return "nothing, its rows meet no other stream"
        kept = (
            "everything"
            if source.retention_us >= FOREVER_US
            else f"{_format_length(source.retention_us)} behind the watermark"
        )
        return f"[{source.window}]" if source.has_ends else kept

    def _pair_bounds(self) -> list[PairTimeBound]:
        streams, later_by_us = self.config.stream_inputs, self.config.bounds.later_by_us
        aliases = [each.alias for each in self.config.inputs]
        pairs = [
            PairTimeBound(aliases[i], aliases[j], later_by_us[i][j], later_by_us[j][i])
            for place, i in enumerate(streams)
            for j in streams[place + 1 :]
        ]
        return [each for each in pairs if each.within_us < FOREVER_US]


def explain_bound_query(  # noqa: PLR0913 - keyword-only options of a query
    bound: BoundQuery,
    stats: Mapping[str, StreamStats],
    profile: Profile,
    *,
    budget: Budget | None = None,
    plan: Plan | None = None,
    all_plans: bool = False,
    samples: Samples | None = None,
    arrivals: ArrivalPattern | None = None,
    reason: str = "",
    policy: SheddingPolicy | None = None,
    engine: str = "embedded",
    shuffle: Shuffle | None = None,
    rehearse: Callable[[Plan], Rehearsal | None] | None = None,
) -> Explanation:
    """Explain the cheapest feasible plan, or the pinned one, and list the cost of the others.

    `samples` and `arrivals` describe the rows read so far. `reason` is the reason for the given plan, if the caller did
    not pin it. With a `policy`, even an empty one, a plan that does not keep up comes with remedies. With the engine
    "spark", Spark's cost per row and per batch is added, for every copy that the grid of buckets makes (`shuffle`).
    `rehearse` measures the chosen plan on available rows; the formulas are scaled to what it finds.
    """
    if bound.is_aggregation:
        if plan is not None and plan.is_allocated:
            raise PlanError(
                "the cost of an aggregation that divides probes and windows is not modelled",
                hint="run it without a budget, or explain the query with wm.plan(drop=...)",
            )
        sheds = plan is not None and bool(build_drop_boxes(bound, plan))
        # A plan that sheds rows is a plan of the join below the estimates, not of the exact aggregation.
        grouped = build_aggregate_config(bound, None if sheds else plan)
        workload = hold_full_windows(grouped, estimate_workload(bound, grouped.join, stats, samples, arrivals))
        context = CostingContext(grouped.join, workload, profile, budget or Budget(), engine, shuffle=shuffle)
        costs = AggregationCosts(bound, grouped, stats, context)
        explanation = _explain_aggregation(
            costs, plan, policy, all_plans, rehearse, is_pinned=plan is not None and not reason
        )
        return replace(explanation, trace=(*explanation.trace, reason)) if reason else explanation
    config = compile_join_config(bound, plan or Plan())
    context = CostingContext(
        config,
        estimate_workload(bound, config, stats, samples, arrivals),
        profile,
        budget or Budget(),
        engine,
        shuffle=shuffle,
    )
    search = search_plans(bound, config, context.workload, profile, context.budget)
    found, trace = [context.add_engine_cost(context.workload, each) for each in search.costed], search.trace
    chosen = found[0]
    if plan is not None:
        full = fill_plan(config, context.workload, profile, plan, context.budget.objective)
        chosen = cost_with_shedding(bound, context, replace(full, probe=plan.probe, window=plan.window))
        plan = replace(full, orders=plan.orders)  # after shedding, other orders may be cheaper
        trace = (*trace, reason or "the plan is pinned")
    others = tuple(each for each in found if each.plan != chosen.plan)
    remedies, measured = None, None if rehearse is None else rehearse(chosen.plan)
    correction = correct(chosen.cost, measured)
    chosen, others = correction.apply(chosen, measured), tuple(correction.apply(each) for each in others)
    if policy is not None and context.budget.shortfall(chosen.cost) is not None:
        prompt = [each for each in found if not lets_results_wait(context.budget, context.workload, each.plan)]
        pinned = [plan] if plan is not None and not reason else None
        plans = pinned or [each.plan for each in prompt]
        remedies = find_join_remedies(
            correction.shrink_budget(context),
            chosen.cost,
            chosen.plan,
            plans,
            policy,
            bound=bound,
            is_pinned=pinned is not None,
        )
        remedies = correction.scale_remedies(remedies, chosen.cost, context.budget)
    config = compile_join_config(bound, chosen.plan)
    return Explanation(
        bound,
        config,
        context.workload,
        stats,
        chosen,
        others,
        context.budget,
        profile,
        all_plans,
        trace,
        remedies,
        engine,
        (),
        shuffle,
        measured,
    )


def cost_with_shedding(bound: BoundQuery, context: CostingContext, plan: Plan) -> CostedPlan:
    """Cost a plan with its own drop boxes, or with its own shares of probing and stored rows."""
    if plan.is_allocated:
        return AllocationCosts(bound, context).cost_pinned(plan)
    return context.cost_pinned(plan, build_drop_boxes(bound, plan))


def _explain_aggregation(
    costs: AggregationCosts,
    plan: Plan | None,
    policy: SheddingPolicy | None,
    all_plans: bool,
    rehearse: Callable[[Plan], Rehearsal | None] | None,
    *,
    is_pinned: bool,
) -> Explanation:
    """Explain an aggregation query: its plans are the placements of early aggregation."""
    bound, context, found = costs.bound, costs.context, costs.candidates()
    chosen = costs.cost(plan) if plan is not None else found[0]
    sheds = bool(chosen.plan.drop)
    others = tuple(each for each in found if sheds or each.plan.early != chosen.plan.early)
    exact_notes = (*describe_placement(bound, chosen.plan), *costs.describe_early_groups(chosen.plan))
    notes = ("rows are shed: aggregates are estimates",) if sheds else exact_notes
    # The probe orders depend on which inputs aggregate early.
    config = context.config if sheds else build_aggregate_config(bound, chosen.plan).join
    trace = (f"{len(found)} placements of early aggregation compared by predicted CPU time",)
    remedies, measured = None, None if rehearse is None else rehearse(chosen.plan)
    correction = correct(chosen.cost, measured)
    chosen, others = correction.apply(chosen, measured), tuple(correction.apply(each) for each in others)
    if policy is not None and context.budget.shortfall(chosen.cost) is not None:
        scaled = replace(costs, context=correction.shrink_budget(context))
        remedies = scaled.remedies(chosen, plan if is_pinned else None, policy)
        remedies = correction.scale_remedies(remedies, chosen.cost, context.budget)
    return Explanation(
        bound,
        config,
        context.workload,
        costs.stats,
        chosen,
        others,
        context.budget,
        context.profile,
        all_plans,
        trace,
        remedies,
        context.engine,
        notes,
        context.shuffle,
        measured,
    )


def _cost_dict(cost: PlanCost) -> dict[str, Any]:
    return {
        "cpu_per_s": cost.cpu_per_s,
        "state_rows": cost.state_rows,
        "state_bytes": cost.state_bytes,
        "rows_out_per_s": cost.rows_out_per_s,
        "comparisons_per_s": cost.comparisons_per_s,
        "memory": [
            {"kind": part.kind, "source": part.source or None, "size_bytes": part.size_bytes} for part in cost.memory
        ],
        "operators": [
            {"name": part.name, "cpu_per_s": part.cpu_per_s, "rows_per_s": part.rows_per_s} for part in cost.operators
        ],
    }


def _describe_memory(cost: PlanCost) -> str:
    sizes: dict[str, float] = {}
    for part in cost.memory:
        sizes[part.kind] = sizes.get(part.kind, 0.0) + part.size_bytes
    return ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sizes.items())


def _shuffle_dict(shuffle: Shuffle) -> dict[str, Any]:
    return {
        "rows": shuffle.rows,
        "is_total": shuffle.is_total,
        "buckets": shuffle.buckets,
        "copies": {each.alias: each.copies for each in shuffle.inputs},
        "merges_groups": shuffle.merges_groups,
    }


def _estimate_dict(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "provenance": str(estimate.provenance), "note": estimate.note}


def describe_profile(profile: Profile) -> str:
    """Describe the origin of the cost weights in one line."""
    if profile.name == "default":
        return "costs: shipped profile (not calibrated on this machine)"
    return f"costs: {profile.name} profile{f' ({profile.source})' if profile.source else ''}"


def _count_cores(processors: float) -> str:
    return "1 core" if processors == 1 else f"{processors:g} cores"


def _format_operator_rate(operator: str, per_s: float) -> str:
    """Format the rate of an operator in its own unit.

    >>> _format_operator_rate("ingest a", 50_000), _format_operator_rate("batches", 1)
    ('50,000 rows/s', '1 batches/s')
    """
    noun = next((noun for start, noun in _RATE_NOUNS.items() if operator.startswith(start)), "rows")
    return format_rate(per_s, noun)


def _format_length(length_us: int) -> str:
    return format_sql_duration(length_us).lower()


#: Number of losing plans in a notebook.
_HTML_PLANS = 10


def render_explanation_html(facts: Mapping[str, Any]) -> str:
    """Render `Explanation.to_dict()` as HTML for a notebook: verdict, operator costs, streams, plans that lost."""
    return f"<div>{''.join(_html_parts(facts))}</div>"


def _html_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    cost = facts["cost"]
    yield html_code(facts["query"])
    verdict = "it keeps up" if facts["feasible"] else f"it cannot keep up: {facts['reason']}"
    yield html_paragraph(f"plan {_plan_name(facts['plan'])}: {verdict}", strong=True)
    yield html_paragraph(
        f"{format_percent(facts['utilisation'])} of the available cores, {format_bytes(cost['state_bytes'])} of state "
        f"({format_count(cost['state_rows'])} rows), output {format_rate(cost['rows_out_per_s'])}"
    )
    operators = [
        (each["name"], format_cores(each["cpu_per_s"]), _format_operator_rate(each["name"], each["rows_per_s"]))
        for each in cost["operators"]
    ]
    yield html_table(("operator", "CPU", "rate"), operators, "predicted cost")
    yield html_table(
        ("source", "window", "rows/s", "rows stored"), [_input_row(each) for each in facts["inputs"]], "streams"
    )
    if facts["alternatives"]:
        yield html_table(("plan", "CPU", "times the cost"), _losing_plans(facts), "plans that lost")


def _input_row(each: Mapping[str, Any]) -> tuple[str, str, str, str]:
    window = f"[{each['window']}]" if each["window"] else each["keeps"]
    return each["alias"], window, _html_estimate(each["rows_per_s"]), _html_estimate(each["held_rows"])


def _html_estimate(estimate: Mapping[str, Any]) -> str:
    return f"{format_count(estimate['value'])} ({estimate['provenance']})"


def _losing_plans(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    best = facts["cost"]["cpu_per_s"]
    for each in facts["alternatives"][:_HTML_PLANS]:
        cpu = each["cost"]["cpu_per_s"]
        yield _plan_name(each["plan"]), format_cores(cpu), f"{cpu / best:,.1f}" if best else ""


def _plan_name(plan: Mapping[str, Any]) -> str:
    indexes = ", ".join(f"{alias} {index}" for alias, index in plan["indexes"].items())
    return f"{plan['algorithm']} ({indexes})" if indexes else plan["algorithm"]
