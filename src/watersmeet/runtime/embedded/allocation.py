"""Window join of two streams that gives each direction its own share of the resources.

The later row of a pair finds it by probing the other stream's window. So the join is two directed joins: A's rows into
B's window and B's rows into A's. A row draws twice, once to probe and once to be stored, by two seeded hashes of its
identity; a replay keeps the same rows. The ledger counts a row as shed when it is kept in neither role. An aggregation
combines the pairs of both directions (`operators.shed.aggregation`).

References: Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Comparison, conjunction, conjuncts
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, BoundSource, PairConstraint, Query
from watersmeet.algebra.time_bounds import DifferenceBounds
from watersmeet.errors import InputError, PlanError
from watersmeet.kernels.hashing import xxhash64_definition
from watersmeet.operators.protocol import BatchCounters, BatchResults, Clock, InputBatch, SavedPart, StatePart, exhaust
from watersmeet.operators.shed.aggregation import (
    PROBE,
    TIME,
    WINDOW,
    AllocatedAggregation,
    RoleShares,
    add_hidden_columns,
    build_shed_config,
    declare_hidden_fields,
    mark_direction,
)
from watersmeet.operators.shed.sampling import DropBox
from watersmeet.operators.window_join.admission import shed_rows
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.operator import WindowJoinOperator
from watersmeet.operators.window_join.state import JoinState
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.kang_limited import (
    NO_MINIMUM,
    Allocation,
    LimitedJoin,
    Pair,
    allocate,
    best_allocation,
    kept_rows,
    least_variance_allocation,
    served_rates,
)
from watersmeet.planner.workload import Workload, length_to_seconds
from watersmeet.runtime.embedded.run import EmbeddedRun, run_operator, start_run
from watersmeet.sources.declarations import Sources, bind_query

#: Name of the strategy that uses the optimum by formula.
BEST = "best"

#: Optimal division of a join's probes and window rows, given both totals and both minimums.
BestAllocation = Callable[[LimitedJoin, float, float, Pair, Pair], Allocation]


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits: probes per second (μ), rows in the windows (M), and the minimum of each for A and B."""

    service_per_s: float = float("inf")
    memory_rows: float = float("inf")
    least_per_s: Pair = NO_MINIMUM
    least_rows: Pair = NO_MINIMUM


def divide_resources(
    join: LimitedJoin,
    limits: Limits,
    probes: str = BEST,
    windows: str = BEST,
    best_of: BestAllocation = best_allocation,
) -> Allocation:
    """Divide probes and window rows between the streams by the named strategies.

    A resource that is not scarce is granted in full. "best" is the optimum by formula.

    >>> divide_resources(LimitedJoin(Pair(800, 200), Pair(100, 200), 0.01), Limits(service_per_s=100)).probes_per_s
    Pair(a=100.0, b=0.0)
    """
    service = min(limits.service_per_s, sum(join.rows_per_s))
    memory = min(limits.memory_rows, sum(join.window_rows))
    best = best_of(join, service, memory, limits.least_per_s, limits.least_rows)
    return allocate(
        join,
        best.probes_per_s if probes == BEST else served_rates(join, service, probes, limits.least_per_s),
        best.window_rows if windows == BEST else kept_rows(join, memory, windows, limits.least_rows),
    )


def build_limited_join(workload: Workload, config: JoinConfig) -> LimitedJoin:
    """Return the paper's model of a join of two streams: rates, rows of full windows, and the share of matching pairs.

    Of equal times the first stream's row probes. So the second stream's window always covers an instant, and the first
    stream's window is empty if no row of the second can be later than its match.
    """
    a, b = workload.inputs
    rates = Pair(a.kept_per_s.value, b.kept_per_s.value)
    if any(each.window is None or each.window.fixed_length_us is None for each in config.inputs):
        raise PlanError(
            "both streams need a RANGE window to be sampled", hint="a ROWS window always holds its last rows"
        )
    a_us, b_us = _window_lengths_us(config.bounds)
    windows = Pair(rates.a * a_us / 1e6, rates.b * length_to_seconds(b_us))
    share = workload.key_share(config, frozenset({0}), 1) * workload.residual_share(frozenset({0}), 1)
    return LimitedJoin(rates, windows, min(1.0, share))


def compute_shares(join: LimitedJoin, allocation: Allocation) -> tuple[RoleShares, RoleShares]:
    """Return the shares of A and of B that an allocation of rates and rows amounts to."""
    probes = [
        _compute_share(served, rate) for served, rate in zip(allocation.probes_per_s, join.rows_per_s, strict=True)
    ]
    windows = [_compute_share(kept, rows) for kept, rows in zip(allocation.window_rows, join.window_rows, strict=True)]
    a, b = (RoleShares(probe, window) for probe, window in zip(probes, windows, strict=True))
    return a, b


def _compute_share(part: float, whole: float) -> float:
    """Return a part as a share; rounding errors do not reduce a full share."""
    return 1.0 if part >= whole * (1 - 1e-9) else part / whole


def collect_allocated(
    query: Query, sources: Sources, shares: Mapping[str, RoleShares], plan: Plan | None = None, seed: int = 0
) -> pa.Table:
    """Return all rows that kept probing rows find among the kept window rows; shares are given by alias.

    The query reads two streams with RANGE windows. An aggregation is evaluated over the pairs of both directions
    together. Its aggregates are estimates with error bars, or exact where nothing is shed.
    """
    return start_allocated(query, sources, shares, plan, seed).collect()


def collect_within_limits(
    query: Query,
    sources: Sources,
    workload: Workload,
    config: JoinConfig,
    limits: Limits,
    probes: str,
    windows: str,
    seed: int,
) -> pa.Table:
    """Return all rows found within the limits by the named strategies.

    The table's metadata holds the allocation.
    """
    _check_two_streams(query)
    join = build_limited_join(workload, config)
    best = least_variance_allocation if bind_query(query, sources).is_aggregation else best_allocation
    allocation = divide_resources(join, limits, probes, windows, best)
    shares = dict(zip(query.aliases, compute_shares(join, allocation), strict=True))
    rows = collect_allocated(query, sources, shares, seed=seed)
    description = {
        "shares": {alias: asdict(each) for alias, each in shares.items()},
        "output_rows_per_s": allocation.output_rows_per_s,
    }
    known = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
    return rows.replace_schema_metadata({"watersmeet": json.dumps({**known, "allocation": description})})


@dataclass(frozen=True)
class Direction:
    """Join in which one stream probes the other's window, and the drop box of each input's role."""

    join: WindowJoinOperator
    boxes: tuple[DropBox, DropBox]  # by input


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


@dataclass(frozen=True)
class AllocatedJoinOperator:
    """Join of two streams as two directed joins over the same batches; a row draws once for each of its two roles.

    `aggregation` estimates the aggregates of an aggregation query.
    """

    directions: tuple[Direction, Direction]
    aggregation: AllocatedAggregation | None = None

    @property
    def config(self) -> JoinConfig:
        """Join of the first direction, with the result of the query."""
        config = self.directions[0].join.config
        return config if self.aggregation is None else replace(config, result=self.aggregation.config.result)

    def empty(self) -> AllocatedState:
        return AllocatedState(tuple(each.join.empty() for each in self.directions), self.aggregation)

    def advance(
        self, state: AllocatedState, batches: Mapping[int, InputBatch], clock: Clock
    ) -> BatchResults[AllocatedState]:
        results: list[pa.RecordBatch] = []
        joins: list[JoinState] = []
        counted: list[BatchCounters] = []
        for prober, (direction, join) in enumerate(zip(self.directions, state.joins, strict=True)):
            kept = {
                i: add_hidden_columns(shed_rows(batch, direction.boxes[i], clock.watermark_us))
                for i, batch in batches.items()
            }
            matches, (following, counters) = exhaust(direction.join.advance(join, kept, clock))
            results += matches if state.aggregation is None else [mark_direction(batch, prober) for batch in matches]
            joins.append(following)
            counted.append(counters)
        aggregation = None if state.aggregation is None else replace(state.aggregation)
        if aggregation is not None:
            results = aggregation.step(results, clock.newest_us, clock.next_watermark_us)
        yield from results
        return AllocatedState(tuple(joins), aggregation), _combine_counters(batches, counted, results)

    def trim(self, before: AllocatedState, after: AllocatedState, clock: Clock) -> AllocatedState:
        trimmed = (
            direction.join.trim(old, new, clock)
            for direction, old, new in zip(self.directions, before.joins, after.joins, strict=True)
        )
        return replace(after, joins=tuple(trimmed))

    def parts(self, state: AllocatedState) -> Sequence[StatePart]:
        raise InputError("a run within limits has no checkpoint", hint="use wm.plan(drop=...) for a run that restarts")

    def restore(self, saved: Sequence[SavedPart]) -> AllocatedState:
        raise InputError("a run within limits has no checkpoint", hint="use wm.plan(drop=...) for a run that restarts")

    def replan(self, state: AllocatedState, plan: Plan) -> tuple[AllocatedJoinOperator, AllocatedState]:
        raise PlanError("a run within limits keeps its plan")


@dataclass(frozen=True, slots=True)
class RoleSampler:
    """Keeps the rows that are kept in at least one role."""

    boxes: tuple[DropBox, ...]

    @property
    def is_dropping(self) -> bool:
        return all(box.is_dropping for box in self.boxes)

    def select_kept(self, table: pa.Table) -> NDArray[np.bool_]:
        kept = np.zeros(table.num_rows, np.bool_)
        for box in self.boxes:
            kept |= box.select_kept(table)
        return kept


def start_allocated(
    query: Query, sources: Sources, shares: Mapping[str, RoleShares], plan: Plan | None, seed: int
) -> EmbeddedRun:
    """Start a run of the query with these shares by alias; an exact run for an aggregation that sheds nothing."""
    _check_two_streams(query)
    bound = bind_query(query, sources)
    for source in bound.sources:
        _check_range_window(source)
    shares_by_input = tuple(shares.get(source.alias, RoleShares()) for source in bound.sources)
    if bound.is_aggregation and all(each.keep_all_rows for each in shares_by_input):
        return start_run(query, sources, plan)
    aggregation = None
    joined = replace(bound, sources=tuple(map(declare_hidden_fields, bound.sources)))
    if bound.is_aggregation:
        _check_chances(bound, shares_by_input)
        estimated = build_shed_config(bound, {})
        aggregation, joined = (
            AllocatedAggregation(estimated, shares=(shares_by_input[0], shares_by_input[1])),
            estimated.bound,
        )
    first, second = (_build_direction(joined, prober, shares_by_input, plan or Plan(), seed) for prober in (0, 1))
    boxes = {
        source.schema.name: RoleSampler((first.boxes[number], second.boxes[number]))
        for number, source in enumerate(bound.sources)
    }
    return run_operator(bound, AllocatedJoinOperator((first, second), aggregation), sources, boxes)


def _build_direction(joined: BoundQuery, prober: int, shares: Sequence[RoleShares], plan: Plan, seed: int) -> Direction:
    """Build the join of the pairs whose later row is the prober's; of equal times the first stream's row probes."""
    probing, held = joined.sources[prober], joined.sources[1 - prober]
    earlier = Comparison("<=" if prober == 0 else "<", Column(TIME, held.alias), Column(TIME, probing.alias))
    pair = PairConstraint(held.alias, probing.alias, _check_range_window(held), directed=True)
    directed = replace(
        joined,
        query=replace(joined.query, pairs=(*joined.query.pairs, pair)),
        where=conjunction((*conjuncts(joined.where), earlier)),
    )
    config = replace(compile_join_config(directed, replace(plan, drop=())), emits_every_batch=True)
    first, second = (
        make_role_drop_box(source.schema.name, PROBE if number == prober else WINDOW, each, seed)
        for number, (source, each) in enumerate(zip(joined.sources, shares, strict=True))
    )
    return Direction(WindowJoinOperator(directed, config, {}), (first, second))


def make_role_drop_box(stream: str, role: str, shares: RoleShares, seed: int) -> DropBox:
    """Return the drop box of a stream's rows in one role.

    Seeds differ by role, so a row's two draws are independent.
    """
    return DropBox(stream, shares.probe if role == PROBE else shares.window, xxhash64_definition(role.encode(), seed))


def _combine_counters(
    batches: Mapping[int, InputBatch], counted: Sequence[BatchCounters], results: Sequence[pa.RecordBatch]
) -> BatchCounters:
    """Combine the counters of both directions. Each direction sees all late rows; each row arrived once."""
    one = counted[0]
    tally = WorkCounters(len(one.arrived))
    for each in counted:
        tally.add(each.tally)
    arrived = tuple(len(batches[i]) if i in batches else 0 for i in range(len(one.arrived)))
    return BatchCounters(arrived, one.late, sum(batch.num_rows for batch in results), tally)


def _check_two_streams(query: Query) -> None:
    if len(query.sources) != 2 or query.sources[0].name == query.sources[1].name:
        raise PlanError(
            "probes and windows are divided between two different streams",
            hint="other queries drop rows by wm.plan(drop=...)",
        )


def _check_range_window(source: BoundSource) -> int:
    if not source.is_stream:
        raise PlanError(f'"{source.alias}" is a relation; probes and windows are divided between two streams')
    length_us = None if source.window is None else source.window.fixed_length_us
    if length_us is None:
        raise PlanError(
            f'"{source.alias}" needs a RANGE window to be sampled',
            hint="a ROWS window always holds its last rows",
        )
    return length_us


def _window_lengths_us(bounds: DifferenceBounds) -> tuple[int, int]:
    """Return how long a row of each stream can match a later row of the other."""
    return bounds.later_by_us[0][1], bounds.later_by_us[1][0]


def _check_chances(bound: BoundQuery, shares: Sequence[RoleShares]) -> None:
    """Refuse shares that keep no pair of a direction: without a sample there is nothing to scale up.

    The second stream finds no pairs where its rows are never later: of equal times the first stream's row probes.
    """
    probers = (0, 1) if _window_lengths_us(bound.bounds)[0] else (0,)
    for prober in probers:
        if shares[prober].probe * shares[1 - prober].window <= 0:
            alias = bound.sources[prober].alias
            raise PlanError(
                f'aggregates cannot be estimated: no pair whose later row is of "{alias}" is kept',
                hint='leave probes and windows at "best", or set least_per_s and least_rows',
            )
