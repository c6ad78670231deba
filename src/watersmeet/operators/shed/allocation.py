"""Window join of two streams that gives each direction its own share of the resources.

The later row of a pair finds it by probing the other stream's window. So the join is two directed joins: A's rows into
B's window and B's rows into A's. A row draws twice, once to probe and once to be stored, by two seeded hashes of its
identity; a replay keeps the same rows. Of equal times the first stream's row probes.

The draws are flags of a row, and a directed join selects by them. So they act like a predicate on one source: a ROWS
window holds those of its last rows that are kept, and its other rows still count. An aggregation combines the pairs of
both directions (`operators.shed.aggregation`).

References: Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from watersmeet.algebra.expressions import Column, Comparison, conjunction, conjuncts
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, BoundSource, PairConstraint
from watersmeet.algebra.windows import MAX_LENGTH_US
from watersmeet.errors import InputError, PlanError
from watersmeet.operators.protocol import BatchCounters, BatchResults, Clock, InputBatch, SavedPart, StatePart, exhaust
from watersmeet.operators.shed.aggregation import (
    AllocatedAggregation,
    add_hidden_columns,
    build_shed_config,
    mark_direction,
)
from watersmeet.operators.shed.sampling import RoleSampler, RoleShares, build_role_samplers, fixed_drop_rates_error
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.operator import WindowJoinOperator
from watersmeet.operators.window_join.state import JoinState
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.work_counters import WorkCounters

#: Columns appended to rows: time in microseconds, whether the row probes, and whether it is stored. No user column has
#: such a name, and rows that wait for the watermark have a column of their own for their time.
AT, PROBES, STORED = "\0at", "\0probes", "\0stored"

#: Start of the kind of a part of the state, by the probing input.
_DIRECTED = ("probes of 0: ", "probes of 1: ")


@dataclass(frozen=True)
class AllocatedState:
    """Windows of both directions, and the combinations of an aggregation."""

    joins: tuple[JoinState, ...]
    aggregation: AllocatedAggregation | None

    @property
    def rows(self) -> int:
        return sum(join.rows for join in self.joins) + (0 if self.aggregation is None else self.aggregation.rows)

    @property
    def nbytes(self) -> int:
        return sum(join.nbytes for join in self.joins) + (0 if self.aggregation is None else self.aggregation.nbytes)


@dataclass(frozen=True, slots=True)
class DirectedPart:
    """A part of the state of one direction."""

    prober: int
    part: StatePart

    @property
    def input_number(self) -> int:
        return self.part.input_number

    @property
    def kind(self) -> str:
        return _DIRECTED[self.prober] + self.part.kind

    @property
    def value(self) -> Any:
        return self.part.value

    @property
    def rows(self) -> int:
        return self.part.rows

    def to_bytes(self) -> bytes:
        return self.part.to_bytes()


@dataclass(frozen=True)
class AllocatedJoinOperator:
    """Join of two streams as two directed joins over the same batches.

    `directions` has the join in which the first stream probes, then the other one. `aggregation` estimates the
    aggregates of an aggregation query.
    """

    bound: BoundQuery
    plan: Plan
    directions: tuple[WindowJoinOperator, WindowJoinOperator]
    samplers: tuple[RoleSampler, ...]
    aggregation: AllocatedAggregation | None = None

    @property
    def config(self) -> JoinConfig:
        """Join of the first direction, with the plan and the result of the query."""
        config = replace(self.directions[0].config, plan=self.plan)
        return config if self.aggregation is None else replace(config, result=self.aggregation.config.result)

    def empty(self) -> AllocatedState:
        return AllocatedState(tuple(each.empty() for each in self.directions), self.aggregation)

    def advance(
        self, state: AllocatedState, batches: Mapping[int, InputBatch], clock: Clock
    ) -> BatchResults[AllocatedState]:
        flagged = {i: flag_roles(batch, self.samplers[i]) for i, batch in batches.items()}
        if self.aggregation is not None:
            flagged = {i: add_hidden_columns(batch, self._identity(i)) for i, batch in flagged.items()}
        results: list[pa.RecordBatch] = []
        joins: list[JoinState] = []
        counted: list[BatchCounters] = []
        for prober, (direction, join) in enumerate(zip(self.directions, state.joins, strict=True)):
            if self.is_unused(prober) and not join.rows:
                joins.append(join)
                continue
            probing = {i: self._select_role(flagged[i], i, prober) for i in flagged}
            matches, (following, counters) = exhaust(direction.advance(join, probing, clock))
            results += matches if state.aggregation is None else [mark_direction(batch, prober) for batch in matches]
            joins.append(following)
            counted.append(counters)
        aggregation = None if state.aggregation is None else replace(state.aggregation)
        if aggregation is not None:
            results = aggregation.step(results, clock.newest_us, clock.next_watermark_us)
        yield from results
        arrived = _count_arrivals(len(self.samplers), flagged, clock)
        return AllocatedState(tuple(joins), aggregation), _combine_counters(arrived, counted, results)

    def trim(self, before: AllocatedState, after: AllocatedState, clock: Clock) -> AllocatedState:
        trimmed = (
            direction.trim(old, new, clock)
            for direction, old, new in zip(self.directions, before.joins, after.joins, strict=True)
        )
        return replace(after, joins=tuple(trimmed))

    def parts(self, state: AllocatedState) -> Sequence[StatePart]:
        self._refuse_saved_estimates()
        return [
            DirectedPart(prober, part)
            for prober, (direction, join) in enumerate(zip(self.directions, state.joins, strict=True))
            for part in direction.parts(join)
        ]

    def restore(self, saved: Sequence[SavedPart]) -> AllocatedState:
        self._refuse_saved_estimates()
        if any(not part.kind.startswith(_DIRECTED) for part in saved):
            raise InputError(
                "the saved state is of a plan that does not divide probes and windows",
                hint="start again with a new checkpoint, or with the plan of that run",
            )
        joins = []
        for direction, start in zip(self.directions, _DIRECTED, strict=True):
            own = [replace(part, kind=part.kind.removeprefix(start)) for part in saved if part.kind.startswith(start)]
            joins.append(direction.restore(own))
        return AllocatedState(tuple(joins), None)

    def replan(self, state: AllocatedState, plan: Plan) -> tuple[AllocatedJoinOperator, AllocatedState]:
        """Return the operator with another plan. Rows in the windows stay; later rows are kept by the new shares."""
        if self.aggregation is not None:
            raise fixed_drop_rates_error()
        if not plan.is_allocated:
            raise PlanError(
                "a run that divides probes and windows cannot change to a plan that does not",
                hint="give the new plan shares to probe and to store, or start a new run",
            )
        return build_allocated_operator(self.bound, plan, saved_every_batch=self.directions[0].saved_every_batch), state

    def is_unused(self, prober: int) -> bool:
        """Return whether a direction keeps no pair. A ROWS window counts its rows all the same."""
        counts = any(each.counts_all for each in self.samplers)
        return not counts and not self.samplers[prober].probe.keep * self.samplers[1 - prober].window.keep

    def _select_role(self, batch: InputBatch, number: int, prober: int) -> InputBatch:
        """Return the rows that have their role in a direction, and all rows of a ROWS window, which counts them."""
        sampler = self.samplers[number]
        box, flag = (sampler.probe, PROBES) if number == prober else (sampler.window, STORED)
        if sampler.counts_all or not box.is_dropping:
            return batch
        kept = batch.table.column(flag).to_numpy()
        return InputBatch(batch.table.filter(pa.array(kept)), batch.times[kept])

    def _identity(self, number: int) -> list[str]:
        return self.bound.sources[number].schema.fields.names

    def _refuse_saved_estimates(self) -> None:
        if self.aggregation is not None:
            raise InputError(
                "an aggregation that divides probes and windows has no checkpoint",
                hint="use wm.plan(drop=...) for a run that restarts",
            )


def build_allocated_operator(
    bound: BoundQuery, plan: Plan, *, saved_every_batch: bool = False
) -> AllocatedJoinOperator:
    """Build the operator of a plan with an allocation; refuse a query that cannot have one."""
    samplers, aggregation, joined = build_role_samplers(bound, plan), None, bound
    if bound.is_aggregation:
        shares = tuple(RoleShares(each.probe.keep, each.window.keep) for each in samplers)
        _refuse_empty_directions(bound, shares)
        estimated = build_shed_config(bound, {})
        aggregation, joined = AllocatedAggregation(estimated, shares=(shares[0], shares[1])), estimated.bound
    first, second = (
        WindowJoinOperator(directed, _compile_direction(directed, plan), {}, saved_every_batch=saved_every_batch)
        for directed in build_directed_queries(joined)
    )
    return AllocatedJoinOperator(bound, plan, (first, second), samplers, aggregation)


def build_directed_queries(bound: BoundQuery) -> tuple[BoundQuery, BoundQuery]:
    """Return the join in which rows of the first stream probe, then the one in which rows of the second do."""
    flagged = replace(bound, sources=tuple(map(_declare_flags, bound.sources)))
    return direct_join(flagged, 0), direct_join(flagged, 1)


def shift_filters(plan: Plan) -> Plan:
    """Return the plan with the filters of each source numbered after its flag, which is tested first."""
    shifted = tuple((alias, (1, *(number + 1 for number in numbers))) for alias, numbers in plan.filters)
    return replace(plan, filters=shifted)


def _compile_direction(directed: BoundQuery, plan: Plan) -> JoinConfig:
    """Return the join of a direction. It never waits for evaluation, because estimates need all results of a batch."""
    return replace(compile_join_config(directed, shift_filters(plan)), emits_every_batch=True)


def direct_join(flagged: BoundQuery, prober: int) -> BoundQuery:
    """Return the join of the pairs whose later row is the prober's; of equal times the first stream's row probes.

    The rows have their flags.
    """
    probing, held = flagged.sources[prober], flagged.sources[1 - prober]
    longest_us = min(flagged.bounds.later_by_us[1 - prober][prober], MAX_LENGTH_US)
    pair = PairConstraint(held.alias, probing.alias, longest_us, directed=True, least_us=min(prober, longest_us))
    flags = (Column(PROBES, probing.alias), Column(STORED, held.alias))
    # A window of one instant has no room for a later row: then a comparison that is never true keeps the query valid.
    earlier = [Comparison("<", Column(AT, held.alias), Column(AT, probing.alias))] if prober and not longest_us else []
    return replace(
        flagged,
        query=replace(flagged.query, pairs=(*flagged.query.pairs, pair)),
        where=conjunction((*flags, *conjuncts(flagged.where), *earlier)),
    )


def flag_roles(batch: InputBatch, sampler: RoleSampler) -> InputBatch:
    """Append the time and the two flags to rows. Packets on Spark have their flags, because they lack some columns."""
    if PROBES in batch.table.column_names:
        return InputBatch(batch.table.append_column(AT, pa.array(batch.times, pa.int64())), batch.times)
    flags = [(PROBES, sampler.probe.select_kept(batch.table)), (STORED, sampler.window.select_kept(batch.table))]
    flagged = batch.table.append_column(AT, pa.array(batch.times, pa.int64()))
    for name, kept in flags:
        flagged = flagged.append_column(name, pa.array(kept))
    return InputBatch(flagged, batch.times)


def _declare_flags(source: BoundSource) -> BoundSource:
    flags = [pa.field(AT, pa.int64()), *(pa.field(name, pa.bool_()) for name in (PROBES, STORED))]
    return replace(source, schema=replace(source.schema, fields=pa.schema([*source.schema.fields, *flags])))


def _count_arrivals(
    inputs: int, batches: Mapping[int, InputBatch], clock: Clock
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Count the rows of each input, and the late ones among them."""
    arrived = [len(batches[i]) if i in batches else 0 for i in range(inputs)]
    late = [int((batches[i].times < clock.watermark_us).sum()) if i in batches else 0 for i in range(inputs)]
    return tuple(arrived), tuple(late)


def _combine_counters(
    arrived: tuple[tuple[int, ...], tuple[int, ...]],
    counted: Sequence[BatchCounters],
    results: Sequence[pa.RecordBatch],
) -> BatchCounters:
    """Combine the counters of both directions. A direction sees only the rows that have a role in it."""
    tally = WorkCounters(len(arrived[0]))
    for each in counted:
        tally.add(each.tally)
    return BatchCounters(*arrived, sum(batch.num_rows for batch in results), tally)


def _refuse_empty_directions(bound: BoundQuery, shares: Sequence[RoleShares]) -> None:
    """Refuse shares that keep no pair of a direction: without a sample there is nothing to scale up.

    The second stream finds no pairs where its rows are never later: of equal times the first stream's row probes.
    """
    probers = (0, 1) if bound.bounds.later_by_us[0][1] else (0,)
    for prober in probers:
        if shares[prober].probe * shares[1 - prober].window <= 0:
            alias = bound.sources[prober].alias
            raise PlanError(
                f'aggregates cannot be estimated: no pair whose later row is of "{alias}" is kept',
                hint='leave probes and windows at "best", or set least_per_s and least_rows',
            )
