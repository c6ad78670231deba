"""The one place that chooses the operator of a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, EmitMode
from watersmeet.errors import InputError, PlanError
from watersmeet.operators.aggregate.config import build_aggregate_config
from watersmeet.operators.aggregate.step import AggregateOperator
from watersmeet.operators.protocol import Operator, OperatorConfig
from watersmeet.operators.shed.aggregation import ShedConfig, build_shed_config
from watersmeet.operators.shed.allocation import build_allocated_operator
from watersmeet.operators.shed.operator import SheddingAggregateOperator
from watersmeet.operators.shed.sampling import build_drop_boxes, compute_keep_shares
from watersmeet.operators.window_join.config import JoinInput
from watersmeet.operators.window_join.operator import WindowJoinOperator, drop_selections
from watersmeet.operators.window_join.tactics.registry import compile_join_config

#: Reads all rows of the relation that an input stands for.
RelationReader = Callable[[JoinInput], pa.Table]


def build_operator(
    bound: BoundQuery,
    plan: Plan,
    read_relation: RelationReader,
    *,
    every_row: bool = False,
    partial: bool = False,
    selected: frozenset[int] = frozenset(),
    saved_every_batch: bool = False,
) -> Operator[Any]:
    """Build the operator that runs a query by a plan; refuse a plan that cannot run it.

    With `every_row`, an aggregation is evaluated at the time of every row. With `partial`, it emits partial groups. A
    host that has applied the selections of some inputs names them in `selected`. With `saved_every_batch`, the host
    saves the state after every batch, so rows are saved only once.
    """
    if plan.is_allocated and not _keeps_all_rows(bound, plan):
        if every_row:
            raise _refuse_every_row()
        return build_allocated_operator(bound, plan, saved_every_batch=saved_every_batch)
    if not bound.is_aggregation:
        return replace(_build_join(bound, plan, read_relation, selected), saved_every_batch=saved_every_batch)
    if build_drop_boxes(bound, plan):
        shedding = build_shedding_operator(bound, plan, read_relation, every_row=every_row, selected=selected)
        return replace(shedding, join=replace(shedding.join, saved_every_batch=saved_every_batch))
    exact = replace(plan, drop=(), probe=(), window=())  # nothing is shed
    config = build_aggregate_config(bound, exact, every_row=every_row)
    remaining = replace(config, join=drop_selections(config.join, selected), partial=partial)
    return AggregateOperator(bound, remaining, _read_relations(config, read_relation), selected)


def build_shedding_operator(
    bound: BoundQuery,
    plan: Plan,
    read_relation: RelationReader,
    *,
    every_row: bool = False,
    selected: frozenset[int] = frozenset(),
) -> SheddingAggregateOperator:
    """Build the operator that estimates an aggregation from kept rows.

    Refuse a query whose aggregates cannot be estimated.
    """
    if every_row:
        raise _refuse_every_row()
    shed = build_estimation_config(bound, plan)
    join = _build_join(shed.bound, plan, read_relation, selected)
    return SheddingAggregateOperator(replace(join, config=replace(join.config, emits_every_batch=True)), shed)


def _keeps_all_rows(bound: BoundQuery, plan: Plan) -> bool:
    """Return whether an aggregation divides nothing, so that it can be exact."""
    shares = [share for _, share in (*plan.probe, *plan.window)]
    return bound.is_aggregation and all(share == 1 for share in shares)


def _refuse_every_row() -> InputError:
    return InputError(
        "an aggregation that sheds rows is not evaluated at every row",
        hint='omit "evaluate", or use a plan that sheds nothing',
    )


def build_estimation_config(bound: BoundQuery, plan: Plan) -> ShedConfig:
    """Return the configuration of the estimates. Refuse a plan whose aggregates cannot be estimated."""
    if plan.early:
        raise PlanError(
            "a plan that sheds rows cannot aggregate early: estimates need single rows",
            hint='remove "early" from the plan',
        )
    if bound.query.operations or bound.query.emit is not EmitMode.CHANGES:
        raise InputError(
            "an aggregation that sheds rows emits changes without operations",
            hint="leave EMIT out, or use a plan that sheds nothing",
        )
    return build_shed_config(bound, compute_keep_shares(bound, plan))


def _build_join(
    bound: BoundQuery, plan: Plan, read_relation: RelationReader, selected: frozenset[int]
) -> WindowJoinOperator:
    config = compile_join_config(bound, plan)
    return WindowJoinOperator(
        bound, drop_selections(config, selected), _read_relations(config, read_relation), selected
    )


def _read_relations(config: OperatorConfig, read_relation: RelationReader) -> dict[int, pa.Table]:
    return {each.number: read_relation(each) for each in config.inputs if not each.is_stream}
