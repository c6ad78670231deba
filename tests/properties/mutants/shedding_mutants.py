"""Mutants of shedding aggregations: small mistakes in saved state, allocations or budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.properties.mutants import shedding_checks as checks
from tests.properties.mutants.mutant import Mutant, Original, Patch, single_patch_mutant
from watersmeet.algebra.expressions import Comparison
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.aggregate.config import build_group_outputs, build_join_below
from watersmeet.operators.shed.aggregation import DIRECTION, AllocatedAggregation, ShedAggregation
from watersmeet.operators.shed.estimates import SampledInput, SampledJoin
from watersmeet.planner import aggregation_costs
from watersmeet.planner.aggregation_costs import AggregationCosts
from watersmeet.planner.overload import CostingContext
from watersmeet.runtime.embedded import allocation
from watersmeet.runtime.embedded.allocation import AllocatedRun
from watersmeet.runtime.embedded.run import EmbeddedRun
from watersmeet.runtime.embedded.shed_aggregation import ShedAggregationRun
from watersmeet.runtime.job import Job
from watersmeet.runtime.planning import explain_run

Check = Callable[[], None]


def _restored_then(change: Callable[[ShedAggregationRun], None]) -> Callable[[Original], Original]:
    def make(restore_state: Original) -> Original:
        def restore_and_change(run: ShedAggregationRun, blob: bytes) -> None:
            restore_state(run, blob)
            change(run)

        return restore_and_change

    return make


def _forget_combinations(run: ShedAggregationRun) -> None:
    kept = run._aggregation
    run.aggregation = ShedAggregation(kept.config, evaluated_us=kept.evaluated_us)


def _forget_shown(run: ShedAggregationRun) -> None:
    run._aggregation.shown = {}


def _forget_instant(run: ShedAggregationRun) -> None:
    run._aggregation.evaluated_us = -FOREVER_US


def _forget_intervals(run: ShedAggregationRun) -> None:
    run._aggregation.ends_us = run._aggregation.ends_us + 1


def _as_the_join(attribute: str) -> Callable[[Original], Original]:
    return lambda _: getattr(EmbeddedRun, attribute)


class _OneDirection(AllocatedAggregation):
    """An aggregation that uses the pairs of one direction only."""

    prober = 0

    def _add_combinations(self, found: list[pa.RecordBatch]) -> None:
        super()._add_combinations(
            [batch for batch in found if batch.num_rows and batch[DIRECTION][0].as_py() == self.prober]
        )


def _emit_each_direction(take_step: Original) -> Original:
    """Aggregate each direction on its own, and emit the rows of both."""

    def aggregate_each_direction(run: AllocatedRun, input_batches: Any, future_us: int) -> Any:
        if run.aggregation is None:
            return take_step(run, input_batches, future_us)
        whole, states, emitted = run.aggregation, [direction.state for direction in run.directions], []
        for prober in (0, 1):
            for direction, before in zip(run.directions, states, strict=True):
                direction.state = before
            alone = _OneDirection(whole.config, shares=whole.shares)
            alone.prober, run.aggregation = prober, alone
            stepped = take_step(run, input_batches, future_us)
            emitted += stepped.results
        return replace(stepped, results=emitted)

    return aggregate_each_direction


def _one_role(inputs: Original) -> Original:
    def yield_first_role(aggregation: AllocatedAggregation, table: Any) -> Iterator[SampledInput]:
        yield next(inputs(aggregation, table))

    return yield_first_role


def _roles_swapped(inputs: Original) -> Original:
    def swap_keep_shares(aggregation: AllocatedAggregation, table: Any) -> Iterator[SampledInput]:
        probe, window = inputs(aggregation, table)
        yield replace(probe, keep=window.keep)
        yield replace(window, keep=probe.keep**2)

    return swap_keep_shares


def _one_draw(role_box: Original) -> Original:
    return lambda stream, role, shares, seed: replace(role_box(stream, role, shares, seed), seed=seed)


def _ties_twice(_: Original) -> Original:
    return lambda op, left, right: Comparison("<=", left, right)


def _pairs_independent(by_subset: Original) -> Original:
    """Count only a combination with itself for the variance, not pairs that share a row."""

    def count_own_pairs_only(join: SampledJoin) -> Iterator[Any]:
        *_, last = by_subset(join)
        yield replace(last, factor=abs(last.factor))

    return count_own_pairs_only


def _kept_in_both(without_shed: Original) -> Original:
    def keep_if_kept_twice(run: AllocatedRun, name: str, input_batch: Any) -> Any:
        number = next(each.number for each in run.config.inputs if each.name == name)
        for direction in run.directions:
            input_batch = input_batch.filter(
                direction.boxes[number].select_kept(input_batch.table) | (input_batch.times < run.watermark.value_us)
            )
        return input_batch

    return keep_if_kept_twice


def _judged_by_the_join(explained: Original) -> Original:
    """Compare the budget with the join below the aggregation in a run, but not in explain."""

    def explain_join_below(job: Job, engine: str, **options: Any) -> Any:
        if options or not job.bound.is_aggregation:  # `Job.run` passes the engine alone
            return explained(job, engine, **options)
        join_below = build_join_below(job.bound, build_group_outputs(job.bound))
        return explain_run(join_below, job.streams, plan=job.plan, budget=job.budget, policy=job._policy)

    return explain_join_below


def _free(_: Original) -> Original:
    return lambda load, weights: 0.0


def _no_bytes(_: Original) -> Original:
    return lambda costs: 0


def _report_no_state(_: Any) -> Any:
    return property(lambda aggregation: 0)


def _without_spark(_: Original) -> Original:
    return lambda now, left, found: found


SHEDDING_MUTANTS: tuple[tuple[Mutant, Check], ...] = (
    (
        Mutant(
            "a shedding aggregation is saved as the join below it",
            (
                Patch(ShedAggregationRun, "save_state", _as_the_join("save_state")),
                Patch(ShedAggregationRun, "restore_state", _as_the_join("restore_state")),
            ),
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart forgets the combinations",
            ShedAggregationRun,
            "restore_state",
            _restored_then(_forget_combinations),
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart forgets what was shown", ShedAggregationRun, "restore_state", _restored_then(_forget_shown)
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart forgets the last instant", ShedAggregationRun, "restore_state", _restored_then(_forget_instant)
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart lengthens combinations", ShedAggregationRun, "restore_state", _restored_then(_forget_intervals)
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant("directions concatenated", AllocatedRun, "_step", _emit_each_direction),
        checks.check_allocated_estimates,
    ),
    (
        single_patch_mutant("inclusion chance of one role only", AllocatedAggregation, "_sampled_inputs", _one_role),
        checks.check_allocated_estimates,
    ),
    (
        single_patch_mutant("shares of the roles mixed up", AllocatedAggregation, "_sampled_inputs", _roles_swapped),
        checks.check_allocated_estimates,
    ),
    (
        single_patch_mutant(
            "pairs that share a row are independent", SampledJoin, "_terms_by_subset", _pairs_independent
        ),
        checks.check_allocated_estimates,
    ),
    (
        single_patch_mutant("one draw for both roles", allocation, "make_role_drop_box", _one_draw),
        checks.check_role_draws,
    ),
    (
        single_patch_mutant("pairs of equal times found in both directions", allocation, "Comparison", _ties_twice),
        checks.check_allocated_pairs,
    ),
    (
        single_patch_mutant("rows must be kept in both roles", AllocatedRun, "_shed_rows", _kept_in_both),
        checks.check_allocated_pairs,
    ),
    (
        single_patch_mutant("feasibility judged by the join", Job, "_explain", _judged_by_the_join),
        checks.check_budgets,
    ),
    (
        single_patch_mutant("estimates cost nothing", aggregation_costs, "estimation_cost_per_s", _free),
        checks.check_shedding_costs,
    ),
    (
        single_patch_mutant("combinations take no memory", AggregationCosts, "_combination_bytes", _no_bytes),
        checks.check_shedding_costs,
    ),
    (
        single_patch_mutant(
            "Spark's cost left out of an aggregation", CostingContext, "add_engine_cost", _without_spark
        ),
        checks.check_shedding_costs,
    ),
    (
        Mutant(
            "combinations are not counted as state",
            (Patch(ShedAggregation, "rows", _report_no_state), Patch(ShedAggregation, "nbytes", _report_no_state)),
        ),
        checks.check_state_metrics,
    ),
)
