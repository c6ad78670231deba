"""Mutants of the planner and the Spark grid: a run differs from the plan or grid that `explain` shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.properties.mutants.mutant import Original, single_patch_mutant
from watersmeet import framing
from watersmeet.operators.window_join import config
from watersmeet.operators.window_join.tactics import plan_defaults
from watersmeet.planner import cost_of_spark, explain
from watersmeet.runtime import planning
from watersmeet.runtime.buckets import execution_plan
from watersmeet.runtime.buckets.bucket_grid import GridStore
from watersmeet.runtime.embedded import run as embedded
from watersmeet.runtime.planning import InputVolumes


def _leaves_pinned_plans_open(choose: Original) -> Original:
    return lambda bound, hand, known=None, plan=None, **how: choose(bound, hand, known, **how) if plan is None else plan


def _leaves_pinned_spark_plans_open(choose: Original) -> Original:
    return lambda bound, sources, plan=None, stats=None: choose(bound, sources, None, stats) if plan is None else plan


def _ignores_declared(look: Original) -> Original:
    return lambda bound, sources, declared=None: look(bound, sources)


def _ignores_declared_on_spark(choose: Original) -> Original:
    return lambda bound, sources, plan=None, stats=None: choose(bound, sources, plan)


def _looks_at_equalities_only(order: Original) -> Original:
    return lambda classes, *others: order(replace(classes, residuals=()), *others)


def _equal_rates(_: Original) -> Original:
    return lambda bound, join, *others: InputVolumes((1.0,) * len(join.inputs), is_total=False)


def _other_orders(cost: Original) -> Original:
    """Show the orders of another plan: every one is reversed."""

    def reverse_orders(explanation: Any) -> dict[str, list[str]]:
        return {origin: order[::-1] for origin, order in cost(explanation).items()}

    return reverse_orders


PLANNING_MUTANTS = (
    single_patch_mutant("explain shows another order", explain.Explanation, "_orders", _other_orders),
    single_patch_mutant(
        "a run fills a pinned plan without statistics", embedded, "choose_plan", _leaves_pinned_plans_open
    ),
    single_patch_mutant(
        "Spark fills a pinned plan without statistics",
        execution_plan,
        "choose_spark_plan",
        _leaves_pinned_spark_plans_open,
    ),
    single_patch_mutant("a run ignores declared statistics", embedded, "read_planning_input", _ignores_declared),
    single_patch_mutant(
        "Spark ignores declared statistics", execution_plan, "choose_spark_plan", _ignores_declared_on_spark
    ),
    single_patch_mutant(
        "the default order crosses inputs before a band", config, "choose_probe_order", _looks_at_equalities_only
    ),
    single_patch_mutant(
        "the default tree joins sources in the order of FROM",
        plan_defaults,
        "left_deep_tree",
        lambda join: lambda names: join(sorted(names)),
    ),
    single_patch_mutant(
        "a changed plan keeps its open parts", embedded.EmbeddedRun, "_fill_plan", lambda _: lambda run, plan: plan
    ),
    single_patch_mutant("the grid ignores rates", execution_plan, "estimate_input_volumes", _equal_rates),
    single_patch_mutant("explain predicts the grid of equal rates", planning, "estimate_input_volumes", _equal_rates),
    single_patch_mutant("copies cost nothing", cost_of_spark.Shuffle, "copies", lambda _: property(lambda shuffle: {})),
    single_patch_mutant(
        "a restart chooses a new grid", GridStore, "load", lambda _: lambda store, query, join, grouping: None
    ),
    single_patch_mutant(
        "a restart overwrites the grid", GridStore, "has_started", lambda _: property(lambda store: False)
    ),
    single_patch_mutant("a damaged grid is not noticed", framing, "_checksum", lambda _: lambda content: "0" * 8),
)
