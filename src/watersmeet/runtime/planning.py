"""Choice of the plan of a run. `explain` and both hosts call this module, so they see the same plan.

The planner measures a sample of the rows. The sample comes from a table, a path, the first file of a growing directory,
or the first batch of an iterable, which is still delivered to the run. Planning takes some milliseconds. If there are
so few rows that any plan would join them sooner, nothing is measured and the default plan runs.

The same statistics fill the open parts of a pinned plan (`planner.filling`).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import conjuncts
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.calibration.profiles import current_profile
from watersmeet.calibration.spark_runs import load_correction
from watersmeet.operators.aggregate.config import build_aggregate_config
from watersmeet.operators.window_join.config import JoinConfig, build_join_config
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.planner.cost_of_spark import Shuffle
from watersmeet.planner.explain import Explanation, explain_bound_query
from watersmeet.planner.filling import fill_plan
from watersmeet.planner.filters import has_open_filters
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.plan_cost import Budget
from watersmeet.planner.rehearsal import AvailableRows, Rehearsal, rehearse_plan
from watersmeet.planner.samples import InputSample, Samples, draw_sample
from watersmeet.planner.spark_forecast import DEFAULT_TRIGGER_S, SparkMachine, forecast_micro_batch
from watersmeet.planner.workload import ArrivalPattern, estimate_workload
from watersmeet.runtime.buckets.bucket_grid import SampledRows, choose_grid, estimate_shuffle, find_grouping
from watersmeet.runtime.statistics import fill_missing_stats, list_columns_read
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.feeds import BatchFeed, PathFeed, SparkFeed, TableFeed
from watersmeet.sources.times import extract_event_times_us, refuse_undeclared_unit
from watersmeet.stats.stream_stats import ASSUMED_ROWS_PER_S, Estimate, Provenance, StreamStats, stats
from watersmeet.stats.table_stats import measure_table

#: With fewer sampled rows than this, any plan finishes before the planner does.
MIN_PLANNING_ROWS = 500

#: Maximum number of rows in which distinct values are counted when a run is planned.
MAX_COUNTED_ROWS = 20_000

#: A run is planned again when its rows have grown by this factor since it was planned.
REPLAN_GROWTH_FACTOR = 4

#: Whether `explain` rehearses plans. Tests of exact figures switch it off, because CPU time differs between runs.
rehearses = os.environ.get("WATERSMEET_REHEARSAL", "on") != "off"

Int64s = NDArray[np.int64]
SourcesOrStats = Mapping[str, Stream | Relation | StreamStats]


@dataclass(frozen=True)
class PlanningSample:
    """Rows of the sources that are available before the run, with their event times.

    `is_complete` means that no other rows will arrive.
    """

    tables: Mapping[str, pa.Table]
    times: Mapping[str, Int64s]
    is_complete: bool

    @property
    def rows(self) -> int:
        """Number of rows of all sources together."""
        return sum(table.num_rows for table in self.tables.values())

    def arrival_pattern(self) -> ArrivalPattern:
        """Return the arrival pattern, judged by the span of the event times."""
        spans_us = [int(times.max()) - int(times.min()) for times in self.times.values() if times.size > 1]
        span_s = max(spans_us, default=0) / 1e6
        if span_s <= 0:
            return ArrivalPattern()
        return ArrivalPattern(span_s, span_s if self.is_complete else float("inf"), is_assumed=False)

    def halves(self) -> tuple[PlanningSample, PlanningSample]:
        """Return the sample with the first half, and with the second half, of the rows of every stream."""
        first = {name: np.arange(times.size) < times.size // 2 for name, times in self.times.items()}
        return self._keep(first), self._keep({name: ~each for name, each in first.items()})

    def since(self, time_us: int) -> PlanningSample:
        """Return the sample with the rows of this time and later ones."""
        return self._keep({name: times >= time_us for name, times in self.times.items()})

    def _keep(self, kept: Mapping[str, NDArray[np.bool_]]) -> PlanningSample:
        """Return the sample with some rows of the streams. A relation, which has no times, stays whole."""
        tables = {
            name: table.filter(pa.array(kept[name])) if name in kept else table for name, table in self.tables.items()
        }
        return replace(self, tables=tables, times={name: times[kept[name]] for name, times in self.times.items()})


#: Sample without rows: all statistics are assumed.
EMPTY_SAMPLE = PlanningSample({}, {}, is_complete=False)


@runtime_checkable
class Peekable(Protocol):
    """Feed whose first rows can be read ahead; it still delivers them."""

    def peek(self) -> pa.Table | None: ...


def explain_run(  # noqa: PLR0913 - keyword-only options of a query
    bound: BoundQuery,
    sources: SourcesOrStats,
    *,
    declared: Mapping[str, StreamStats] | None = None,
    plan: Plan | None = None,
    reason: str = "",
    budget: Budget | None = None,
    all_plans: bool = False,
    policy: SheddingPolicy = DEFAULT_POLICY,
    engine: str = "embedded",
    buckets: int | None = None,
    trigger_s: float | None = None,
    machine: SparkMachine | None = None,
) -> Explanation:
    """Explain which plan a run of the query over these sources would use, and why.

    `reason` is the reason for a plan that the caller did not pin. `buckets` is the number of buckets on Spark.
    `trigger_s` is the trigger interval there, and `machine` the session that runs the tasks.
    """
    sample, declared_stats = read_planning_input(bound, sources, declared)
    if plan is None and engine == "spark" and bound.is_aggregation:
        default, reason = (
            choose_plan(bound, sample, declared_stats, engine=engine),
            "an aggregation on Spark is planned by assumed statistics",
        )
    elif plan is None and has_too_few_rows(bound, sample, declared_stats):
        default, reason = (
            make_default_plan(bound),
            f"fewer than {MIN_PLANNING_ROWS} rows available: the default plan runs, and no plans were compared",
        )
    else:
        default = None
    about = explain_sample(
        bound,
        sample,
        declared_stats,
        plan=plan or default,
        reason=reason,
        budget=budget,
        all_plans=all_plans,
        policy=policy,
        engine=engine,
        shuffle=predict_shuffle(bound, sources, sample, declared_stats, buckets)
        if engine == "spark" and buckets is not None
        else None,
        arrivals=ArrivalPattern(trigger_s, is_assumed=False) if engine == "spark" and trigger_s is not None else None,
        rehearse=None if engine == "spark" else _make_rehearsal(bound, sources, sample, reads_all_batches=True),
    )
    if plan is None and default is None and sample.is_complete and not declared_stats and budget is None:
        key = (str(bound.query), engine, about.profile, sample.arrival_pattern())
        _chosen_plans.find(key, sample.tables, lambda: about.plan)
    if machine is None or engine != "spark":
        return about
    forecast = forecast_micro_batch(
        about.config,
        about.workload,
        about.profile,
        about.chosen.cost,
        about.shuffle,
        trigger_s or DEFAULT_TRIGGER_S,
        machine,
        load_correction(machine.cores),
    )
    return replace(about, micro_batch=forecast)


Found = TypeVar("Found")

#: Number of results of each kind that are kept.
MAX_KNOWN_RESULTS = 64


@dataclass(frozen=True)
class ResultsByTables(Generic[Found]):
    """Results that were derived from tables, as long as the same tables exist.

    The same rows give the same result, so `explain` and a run agree, and a run after `explain` does not plan again.
    """

    known: dict[tuple[Any, ...], tuple[tuple[weakref.ref[pa.Table], ...], Found]] = field(default_factory=dict)

    def find(self, key: Hashable, tables: Mapping[str, pa.Table], derive: Callable[[], Found]) -> Found:
        """Return the known result for the key and the tables, or derive it."""
        full_key = (key, tuple((name, id(table)) for name, table in sorted(tables.items())))
        references, found = self.known.get(full_key, ((), None))
        is_known = len(references) == len(tables) and all(
            reference() is table for reference, table in zip(references, tables.values(), strict=True)
        )
        if is_known and found is not None:
            return found
        result = derive()
        self.known[full_key] = tuple(weakref.ref(table) for table in tables.values()), result
        while len(self.known) > MAX_KNOWN_RESULTS:
            del self.known[next(iter(self.known))]
        return result


_rehearsals: ResultsByTables[tuple[Rehearsal | None]] = ResultsByTables()
_chosen_plans: ResultsByTables[Plan] = ResultsByTables()


def _make_rehearsal(
    bound: BoundQuery, sources: SourcesOrStats, sample: PlanningSample, *, reads_all_batches: bool
) -> Callable[[Plan], Rehearsal | None] | None:
    """Return a function that rehearses a plan on the sampled rows; None if a source has no rows.

    With `reads_all_batches`, sources that are lists of batches are rehearsed on all of them, as a run reads them.
    """
    if not rehearses or any(source.schema.name not in sample.tables for source in bound.sources):
        return None
    rows = {name: source for name in sample.tables if isinstance(source := sources[name], Stream | Relation)}
    streams = {name: source for name, source in rows.items() if isinstance(source, Stream)}
    lateness_us = {name: source.lateness_us for name, source in streams.items()}
    known = {
        name: batches
        for name, source in streams.items()
        if reads_all_batches
        and isinstance(source.feed, BatchFeed)
        and (batches := source.feed.read_known_batches()) is not None
    }
    planned_rows, started_s = sample.rows, time.process_time()
    if known:  # a run reads these batches; planning has seen the first of each
        tables = {name: known[name].rows if name in known else table for name, table in sample.tables.items()}
        are_known = all(name in known or _is_complete(source) for name, source in streams.items())
        sample = build_sample(tables, rows, is_complete=are_known)

    def rehearse(plan: Plan) -> Rehearsal | None:
        planning_s = time.process_time() - started_s  # a run plans again in the same way

        def derive() -> tuple[Rehearsal | None]:
            available = AvailableRows.in_time_order(
                sample.tables,
                sample.times,
                lateness_us,
                is_complete=sample.is_complete,
                batch_rows={name: batches.batch_rows for name, batches in known.items()},
                replanning_s=(planning_s if known else 0.0) * count_replannings(planned_rows, sample.rows),
            )
            return (rehearse_plan(bound, plan, available),)

        return _rehearsals.find((str(bound.query), plan), sample.tables, derive)[0]

    return rehearse


def count_replannings(planned_rows: int, rows: int) -> int:
    """Count how often a run in batches is planned again, because its rows have grown.

    >>> count_replannings(200, 1_000), count_replannings(1_000, 100_000)
    (1, 3)
    """
    count, known = 0, max(planned_rows, 1)
    while (known := max(MIN_PLANNING_ROWS, REPLAN_GROWTH_FACTOR * known)) <= rows:
        count += 1
    return count


def rehearse_plans(
    bound: BoundQuery, sources: Mapping[str, Stream | Relation], sample: PlanningSample, plans: Iterable[Plan]
) -> list[Rehearsal | None]:
    """Rehearse each plan on the same rows; None where rehearsals are switched off or the rows do not suffice."""
    rehearse = _make_rehearsal(bound, sources, sample, reads_all_batches=False)
    return [None if rehearse is None else rehearse(plan) for plan in plans]


def predict_shuffle(
    bound: BoundQuery,
    sources: SourcesOrStats,
    sample: PlanningSample,
    declared_stats: Mapping[str, StreamStats],
    buckets: int,
) -> Shuffle:
    """Predict the rows that are shuffled to the buckets of a query on Spark.

    The grid is the one that the sampled rows and the statistics lead to.
    """
    grouped = build_aggregate_config(bound) if bound.is_aggregation else None
    config = build_join_config(bound, Plan()) if grouped is None else grouped.join
    grouping = None if grouped is None else find_grouping(grouped)
    volumes = estimate_input_volumes(bound, config, sources, sample, declared_stats)
    rows = SampledRows(sample.tables, is_complete=sample.is_complete) if sample.tables else None
    grid = choose_grid(config, buckets, volumes.rows, grouping, rows)
    return estimate_shuffle(config, grid, volumes.rows, is_total=volumes.is_total, grouping=grouping)


@dataclass(frozen=True, slots=True)
class InputVolumes:
    """Rows of each input that the grid of buckets partitions.

    They are totals if every stream is finite and counted, else rows per second.
    """

    rows: tuple[float, ...]
    is_total: bool


def estimate_input_volumes(
    bound: BoundQuery,
    config: JoinConfig,
    sources: SourcesOrStats,
    sample: PlanningSample,
    declared_stats: Mapping[str, StreamStats],
) -> InputVolumes:
    """Estimate how many rows of each input pass its own predicates and are shuffled.

    For finite inputs, the estimate is a number of rows. Otherwise it is a declared or measured rate. A stream of
    unknown rate gets the rate of the fastest known stream, so that streams without statistics are treated alike.
    """
    workload = estimate_workload(
        bound,
        config,
        _collect_stats(bound, sample, declared_stats),
        _draw_samples(config, sample, declared_stats),
        sample.arrival_pattern(),
    )
    shares = [
        estimate.kept_per_s.value / estimate.rows_per_s.value if estimate.rows_per_s.value else 1.0
        for estimate in workload.inputs
    ]
    totals = {
        join_input.name: None
        if join_input.name in declared_stats
        else _count_source_rows(sources.get(join_input.name), sample, join_input.name)
        for join_input in config.inputs
    }
    # Relations are sent with the query and not shuffled.
    counts = [totals[join_input.name] if join_input.is_stream else 0 for join_input in config.inputs]
    known_counts = [count for count in counts if count is not None]
    if len(known_counts) == len(counts):
        return InputVolumes(
            tuple(count * share for count, share in zip(known_counts, shares, strict=True)), is_total=True
        )
    rates = [None if estimate.rows_per_s.is_assumed else estimate.rows_per_s.value for estimate in workload.inputs]
    fastest = max((rate for rate in rates if rate is not None), default=0.0) or ASSUMED_ROWS_PER_S
    return InputVolumes(
        tuple((fastest if rate is None else rate) * share for rate, share in zip(rates, shares, strict=True)),
        is_total=False,
    )


def _count_source_rows(source: Stream | Relation | StreamStats | None, sample: PlanningSample, name: str) -> int | None:
    """Return the number of rows of a finite source where it is known without reading the source."""
    if source is None or isinstance(source, StreamStats):
        return None
    if isinstance(source.feed, SparkFeed):
        return source.feed.known_rows()
    return sample.tables[name].num_rows if name in sample.tables and _is_complete(source) else None


def choose_plan(
    bound: BoundQuery,
    sample: PlanningSample,
    declared_stats: Mapping[str, StreamStats] | None = None,
    plan: Plan | None = None,
    *,
    engine: str = "embedded",
) -> Plan:
    """Return the plan that `explain_run` shows for the same rows and statistics.

    It is the pinned plan with its open parts filled, or the best plan.

    On Spark, neither the rows nor the state of a join depend on its plan, so a restart may use another plan. The state
    of an aggregation does depend on it. Its plan uses assumed statistics, which never change, so that a restart
    continues with the same plan.
    """
    declared_stats = declared_stats or {}
    if bound.is_aggregation and plan is not None:
        return plan
    if bound.is_aggregation and engine == "spark":
        return explain_sample(bound, EMPTY_SAMPLE, {}).plan
    if plan is not None:
        return _fill_pinned_plan(bound, sample, declared_stats, plan)
    if has_too_few_rows(bound, sample, declared_stats) or _has_one_plan(bound):
        return make_default_plan(bound)

    def derive() -> Plan:
        return explain_sample(bound, sample, declared_stats, engine=engine).plan

    if declared_stats or not sample.is_complete:
        return derive()
    key = (str(bound.query), engine, current_profile(), sample.arrival_pattern())
    return _chosen_plans.find(key, sample.tables, derive)


def choose_spark_plan(
    bound: BoundQuery,
    sources: Mapping[str, Stream | Relation],
    plan: Plan | None = None,
    stats: Mapping[str, StreamStats] | None = None,
) -> Plan:
    """Return the plan of a query on Spark, by declared statistics and the first rows of its sources.

    See `choose_plan`.
    """
    return choose_plan(bound, *read_planning_input(bound, sources, stats), plan, engine="spark")


def make_default_plan(bound: BoundQuery) -> Plan:
    """Return the plan that needs no statistics.

    It uses grouped runs in the default order; for an aggregation, late aggregation.
    """
    return Plan() if bound.is_aggregation else compile_join_config(bound, Plan()).plan


def has_too_few_rows(bound: BoundQuery, sample: PlanningSample, declared_stats: Mapping[str, StreamStats]) -> bool:
    """Return whether there is too little data to plan by.

    Nothing is declared, and rows are few or unavailable for some source.
    """
    return not declared_stats and (
        sample.rows < MIN_PLANNING_ROWS or any(source.schema.name not in sample.tables for source in bound.sources)
    )


def _has_one_plan(bound: BoundQuery) -> bool:
    """Return whether there is nothing to choose: one source, no aggregation, and no filters to order."""
    return len(bound.sources) == 1 and not bound.is_aggregation and len(conjuncts(bound.where)) < 2


def _fill_pinned_plan(
    bound: BoundQuery,
    sample: PlanningSample,
    declared_stats: Mapping[str, StreamStats],
    plan: Plan,
    objective: str = "cpu",
) -> Plan:
    """Fill the open parts of a pinned plan of a join."""
    config = compile_join_config(bound, plan)
    is_full = config.plan == plan and not has_open_filters(config, plan)
    if is_full or has_too_few_rows(bound, sample, declared_stats):
        return config.plan
    workload = estimate_workload(
        bound,
        config,
        _collect_stats(bound, sample, declared_stats),
        _draw_samples(config, sample, declared_stats),
        sample.arrival_pattern(),
    )
    return fill_plan(config, workload, current_profile(), plan, objective)


def read_planning_input(
    bound: BoundQuery, sources: SourcesOrStats, declared: Mapping[str, StreamStats] | None = None
) -> tuple[PlanningSample, dict[str, StreamStats]]:
    """Return a sample of the rows, and the declared statistics, which take precedence over the sample."""
    declared_stats = {
        **{name: source for name, source in sources.items() if isinstance(source, StreamStats)},
        **(declared or {}),
    }
    rows = {
        name: source
        for name, source in sources.items()
        if not isinstance(source, StreamStats) and name not in declared_stats
    }
    return read_planning_sample(bound, rows), declared_stats


def read_planning_sample(bound: BoundQuery, sources: Mapping[str, Stream | Relation]) -> PlanningSample:
    """Return the first rows of the query's sources, where reading neither consumes them nor starts a job elsewhere.

    For a growing directory, these are the rows of its first file.
    """
    names = dict.fromkeys(source.schema.name for source in bound.sources if source.schema.name in sources)
    tables: dict[str, pa.Table] = {}
    for name in names:
        feed = sources[name].feed
        rows = feed.peek() if isinstance(feed, Peekable) else None
        if rows is not None:
            tables[name] = rows
    sample = build_sample(tables, sources, is_complete=all(_is_complete(sources[name]) for name in names))
    for name, times in sample.times.items():
        source = sources[name]
        if isinstance(source, Stream) and times.size:
            refuse_undeclared_unit(name, source.time, source.schema, source.unit, int(times.min()), int(times.max()))
    return sample


def _is_complete(source: Stream | Relation) -> bool:
    """Return whether the sample of a source holds all its rows."""
    return isinstance(source.feed, TableFeed | PathFeed) and not (isinstance(source, Stream) and source.is_unbounded)


def build_sample(
    tables: Mapping[str, pa.Table], sources: Mapping[str, Stream | Relation], *, is_complete: bool
) -> PlanningSample:
    """Return the sample that consists of these tables, with the event times of the streams."""
    streams = {name: source for name in tables if isinstance(source := sources[name], Stream)}
    return PlanningSample(
        tables,
        {
            name: extract_event_times_us(name, tables[name], source.time, source.unit)
            for name, source in streams.items()
        },
        is_complete,
    )


def explain_sample(  # noqa: PLR0913 - keyword-only options of a query
    bound: BoundQuery,
    sample: PlanningSample,
    declared_stats: Mapping[str, StreamStats],
    *,
    plan: Plan | None = None,
    reason: str = "",
    budget: Budget | None = None,
    all_plans: bool = False,
    engine: str = "embedded",
    arrivals: ArrivalPattern | None = None,
    rates: Mapping[str, float] | None = None,
    policy: SheddingPolicy | None = None,
    shuffle: Shuffle | None = None,
    rehearse: Callable[[Plan], Rehearsal | None] | None = None,
) -> Explanation:
    """Explain a plan, or the best one, on sampled rows. `reason` is the reason for a plan that was not pinned.

    `rates` by stream name take precedence over the rates of the sample.
    """
    config = build_aggregate_config(bound).join if bound.is_aggregation else build_join_config(bound, Plan())
    if plan is not None and not bound.is_aggregation:
        plan = _fill_pinned_plan(bound, sample, declared_stats, plan, (budget or Budget()).objective)
    return explain_bound_query(
        bound,
        _collect_stats(bound, sample, declared_stats, rates),
        current_profile(),
        budget=budget,
        plan=plan,
        all_plans=all_plans,
        engine=engine,
        samples=_draw_samples(config, sample, declared_stats),
        arrivals=arrivals or sample.arrival_pattern(),
        reason=reason,
        policy=policy,
        shuffle=shuffle,
        rehearse=rehearse,
    )


def _collect_stats(
    bound: BoundQuery,
    sample: PlanningSample,
    declared_stats: Mapping[str, StreamStats],
    rates: Mapping[str, float] | None = None,
) -> dict[str, StreamStats]:
    """Return statistics by source name: declared, else measured on the sample, else assumed."""
    stats_by_name = {
        name: declared_stats.get(name) or _measure_stats(bound, sample, name)
        for name in dict.fromkeys(source.schema.name for source in bound.sources)
    }
    for name, rate in (rates or {}).items():
        stats_by_name[name] = replace(stats_by_name[name], rows_per_s=Estimate(rate, Provenance.MEASURED))
    return fill_missing_stats(bound, stats_by_name)


def _measure_stats(bound: BoundQuery, sample: PlanningSample, name: str) -> StreamStats:
    if name not in sample.tables:
        return stats()
    return measure_table(sample.tables[name], sample.times.get(name), list_columns_read(bound, name), MAX_COUNTED_ROWS)


def _draw_samples(config: JoinConfig, sample: PlanningSample, declared_stats: Mapping[str, StreamStats]) -> Samples:
    """Return samples by input. Sources with declared statistics have none, because those take precedence."""
    samples: dict[int, InputSample] = {}
    for join_input in config.inputs:
        table = sample.tables.get(join_input.name)
        if table is not None and table.num_rows and join_input.name not in declared_stats:
            samples[join_input.number] = draw_sample(
                join_input, table, sample.times.get(join_input.name, np.zeros(table.num_rows, np.int64))
            )
    return Samples(samples)
