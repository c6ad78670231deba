"""Mutants of shedding aggregations: small mistakes in saved state, allocations or budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.properties.mutants import shedding_checks as checks
from tests.properties.mutants.mutant import Mutant, Original, Patch, single_patch_mutant
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.aggregate.config import build_group_outputs, build_join_below
from watersmeet.operators.shed import allocation, sampling
from watersmeet.operators.shed.aggregation import DIRECTION, AllocatedAggregation, ShedAggregation
from watersmeet.operators.shed.allocation import AllocatedJoinOperator, AllocatedState
from watersmeet.operators.shed.estimates import SampledInput, SampledJoin
from watersmeet.operators.shed.operator import SheddingAggregateOperator, SheddingState
from watersmeet.operators.shed.sampling import RoleSampler
from watersmeet.planner import aggregation_costs
from watersmeet.planner.aggregation_costs import AggregationCosts
from watersmeet.planner.costing_context import CostingContext
from watersmeet.runtime.job import Job
from watersmeet.runtime.planning import explain_run

Check = Callable[[], None]


def _restored_then(change: Callable[[SheddingState], None]) -> Callable[[Original], Original]:
    def make(restore: Original) -> Original:
        def restore_and_change(operator: SheddingAggregateOperator, saved: Any) -> SheddingState:
            state: SheddingState = restore(operator, saved)
            change(state)
            return state

        return restore_and_change

    return make


def _forget_combinations(state: SheddingState) -> None:
    kept = state.aggregation
    object.__setattr__(state, "aggregation", ShedAggregation(kept.config, evaluated_us=kept.evaluated_us))


def _forget_shown(state: SheddingState) -> None:
    state.aggregation.shown = {}


def _forget_instant(state: SheddingState) -> None:
    state.aggregation.evaluated_us = -FOREVER_US


def _forget_intervals(state: SheddingState) -> None:
    state.aggregation.ends_us = state.aggregation.ends_us + 1


def _save_only_the_join(_: Original) -> Original:
    return lambda operator, state: operator.join.parts(state.join)


def _restore_only_the_join(_: Original) -> Original:
    return lambda operator, saved: SheddingState(operator.join.restore(saved), ShedAggregation(operator.shed))


class _OneDirection(AllocatedAggregation):
    """An aggregation that uses the pairs of one direction only."""

    prober = 0

    def _add_combinations(self, found: list[pa.RecordBatch]) -> None:
        super()._add_combinations(
            [batch for batch in found if batch.num_rows and batch[DIRECTION][0].as_py() == self.prober]
        )


def _emit_each_direction(advance: Original) -> Original:
    """Aggregate each direction on its own, and emit the rows of both."""

    def aggregate_each_direction(
        operator: AllocatedJoinOperator, state: AllocatedState, batches: Any, clock: Any
    ) -> Any:
        if state.aggregation is None:
            return (yield from advance(operator, state, batches, clock))
        whole = state.aggregation
        for prober in (0, 1):
            alone = _OneDirection(whole.config, shares=whole.shares)
            alone.prober = prober
            advanced = yield from advance(operator, replace(state, aggregation=alone), batches, clock)
        return advanced

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


def _ties_twice(pair: Original) -> Original:
    return lambda *ends, least_us, **how: pair(*ends, least_us=0, **how)


def _pairs_independent(by_subset: Original) -> Original:
    """Count only a combination with itself for the variance, not pairs that share a row."""

    def count_own_pairs_only(join: SampledJoin) -> Iterator[Any]:
        *_, last = by_subset(join)
        yield replace(last, factor=abs(last.factor))

    return count_own_pairs_only


def _kept_in_both(_: Original) -> Original:
    def keep_if_kept_twice(sampler: RoleSampler, table: Any) -> Any:
        return sampler.probe.select_kept(table) & sampler.window.select_kept(table)

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
                Patch(SheddingAggregateOperator, "parts", _save_only_the_join),
                Patch(SheddingAggregateOperator, "restore", _restore_only_the_join),
            ),
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart forgets the combinations",
            SheddingAggregateOperator,
            "restore",
            _restored_then(_forget_combinations),
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart forgets what was shown", SheddingAggregateOperator, "restore", _restored_then(_forget_shown)
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart forgets the last instant", SheddingAggregateOperator, "restore", _restored_then(_forget_instant)
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant(
            "a restart lengthens combinations", SheddingAggregateOperator, "restore", _restored_then(_forget_intervals)
        ),
        checks.check_restarted_runs,
    ),
    (
        single_patch_mutant("directions concatenated", AllocatedJoinOperator, "advance", _emit_each_direction),
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
        single_patch_mutant("one draw for both roles", sampling, "make_role_drop_box", _one_draw),
        checks.check_role_draws,
    ),
    (
        single_patch_mutant("pairs of equal times found in both directions", allocation, "PairConstraint", _ties_twice),
        checks.check_allocated_pairs,
    ),
    (
        single_patch_mutant("rows must be kept in both roles", RoleSampler, "select_kept", _kept_in_both),
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
