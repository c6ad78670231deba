"""Planner and Spark grid, broken on purpose: mistakes after which a run differs from the plan or the grid that
`explain` shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.properties.mutants.join_mutants import Mutant, Original, Patch
from watersmeet.checkpoint import framing
from watersmeet.operators.window_join import config
from watersmeet.operators.window_join.tactics import plan_defaults
from watersmeet.planner import cost_of_spark, explain
from watersmeet.runtime import planning
from watersmeet.runtime.embedded import run as embedded
from watersmeet.runtime.planning import InputRates
from watersmeet.runtime.spark import execution_plan
from watersmeet.runtime.spark.bucket_grid import GridStore


def _mutant(mistake: str, owner: Any, attribute: str, broken: Callable[[Any], Any]) -> Mutant:
    return Mutant(mistake, (Patch(owner, attribute, broken),))


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
    return lambda bound, join, *others: InputRates((1.0,) * len(join.inputs), is_total=False)


def _other_orders(cost: Original) -> Original:
    """The shown orders are those of another plan: every one is reversed."""

    def shown(about: Any) -> dict[str, list[str]]:
        return {origin: order[::-1] for origin, order in cost(about).items()}

    return shown


MUTANTS = (
    _mutant("explain shows another order", explain.Explanation, "_orders", _other_orders),
    _mutant("a run fills a pinned plan without statistics", embedded, "choose_plan", _leaves_pinned_plans_open),
    _mutant(
        "Spark fills a pinned plan without statistics",
        execution_plan,
        "choose_spark_plan",
        _leaves_pinned_spark_plans_open,
    ),
    _mutant("a run ignores declared statistics", embedded, "read_planning_input", _ignores_declared),
    _mutant("Spark ignores declared statistics", execution_plan, "choose_spark_plan", _ignores_declared_on_spark),
    _mutant("the default order crosses inputs before a band", config, "choose_probe_order", _looks_at_equalities_only),
    _mutant(
        "the default tree joins sources in the order of FROM",
        plan_defaults,
        "left_deep",
        lambda join: lambda names: join(sorted(names)),
    ),
    _mutant(
        "a changed plan keeps its open parts", embedded.EmbeddedRun, "_fill_plan", lambda _: lambda run, plan: plan
    ),
    _mutant("the grid ignores rates", execution_plan, "estimate_input_rates", _equal_rates),
    _mutant("explain predicts the grid of equal rates", planning, "estimate_input_rates", _equal_rates),
    _mutant("copies cost nothing", cost_of_spark.Shuffle, "copies", lambda _: property(lambda shuffle: {})),
    _mutant("a restart chooses a new grid", GridStore, "load", lambda _: lambda store, query, join, grouping: None),
    _mutant("a restart overwrites the grid", GridStore, "has_started", lambda _: property(lambda store: False)),
    _mutant(
        "a damaged grid is not noticed", framing, "_compute_digest", lambda _: lambda kind, version, payload: "0" * 64
    ),
)
