"""The public functions of Watersmeet, in the order in which a user meets them.

Every function that runs a query takes the same options, by keyword. `plan` pins the plan. `budget` is the CPU and
memory that the query may use. `shed` allows it to drop rows that exceed them. `stats` declares statistics by stream.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Never, ParamSpec, TypeVar

import pyarrow as pa

from watersmeet.algebra.plan import DEFAULT_CLEANUP_ROWS, Index, NestedPairs, Plan, parse_tree
from watersmeet.algebra.query import EmitMode, Query
from watersmeet.errors import InputError, PlanError, listing
from watersmeet.metrics import BatchMetrics, Ledger
from watersmeet.planner.controller import SheddingDecision
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.models.kang_limited import Pair
from watersmeet.planner.plan_cost import Budget, CostedPlan, OperatorCost, PlanCost
from watersmeet.runtime.embedded import allocation
from watersmeet.runtime.embedded.adaptive import Decision
from watersmeet.runtime.embedded.run import EmbeddedRun
from watersmeet.runtime.job import Job, make_job
from watersmeet.runtime.planning import SourcesOrStats, choose_spark_plan
from watersmeet.sources.declarations import Sources, relation, stream
from watersmeet.sources.times import Duration, parse_duration_us
from watersmeet.sql.parsing import parse
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.stats.stream_stats import stats as declare_stats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from watersmeet.runtime.spark.load_controller import LoadController
    from watersmeet.runtime.spark.running_query import RunningQuery

__all__ = [
    "BatchMetrics",
    "Budget",
    "CostedPlan",
    "Decision",
    "Explanation",
    "Job",
    "Ledger",
    "OperatorCost",
    "PlanCost",
    "Run",
    "SheddingDecision",
    "SheddingPolicy",
    "allocate",
    "collect",
    "declare_stats",
    "explain",
    "job",
    "keep_up",
    "on_spark",
    "plan",
    "plan_within",
    "read_messages",
    "relation",
    "run",
    "session",
    "sql",
    "start",
    "stream",
]

#: A running embedded query, as `wm.run` returns it.
Run = EmbeddedRun

#: Value of a setting of Spark.
SparkSetting = str | int | float | bool

P = ParamSpec("P")
R = TypeVar("R")


def sql(text: str) -> Query:
    """Parse a query. Its names are resolved later, against the streams of a run."""
    return parse(text)


def explain(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: SourcesOrStats,
    *,
    plan: Plan | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    all_plans: bool = False,
    engine: str = "embedded",
    buckets: int | None = None,
    trigger: Duration | None = None,
) -> Explanation:
    """Return the plan that would run, its predicted cost and the costs of the other plans, before anything runs.

    A stream may be declared by its statistics alone (`wm.stats`). `stats` overrides statistics that would be measured
    from the data. With a `budget` and `shed`, the plan is the one that sheds just enough rows. With `engine="spark"`,
    `buckets` has the same meaning as for `on_spark`: by default one per shuffle partition of the active session, or one
    per core. `trigger` is the interval between micro-batches, for which `micro_batch_s` and `sustained_rows_per_s` are
    predicted on the cores of the active session; 10 seconds by default.

    >>> about = explain(
    ...     "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    ...     {"a": declare_stats(rate=1000, distinct={"k": 500}), "b": declare_stats(rate=1000, distinct={"k": 500})},
    ... )
    >>> about.chosen.cost.rows_out_per_s
    40000.0
    """
    described = job(query, streams, plan=plan, budget=budget, shed=shed, stats=stats)
    return described.explain(engine=engine, all_plans=all_plans, buckets=buckets, trigger=trigger)


def _accept_positional_plan(function: Callable[P, R]) -> Callable[P, R]:
    """Accept the plan as third positional argument, as earlier versions did, and warn."""

    @wraps(function)
    def accept(*arguments: P.args, **options: P.kwargs) -> R:
        if len(arguments) == 3:
            warnings.warn(
                f"pass the plan by name: wm.{function.__name__}(query, streams, plan=...)",
                DeprecationWarning,
                stacklevel=2,
            )
            *arguments, options["plan"] = arguments  # type: ignore[assignment] # by design
        return function(*arguments, **options)

    return accept


@_accept_positional_plan
def collect(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: Sources,
    *,
    plan: Plan | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    emit: str | None = None,
    operations: bool = False,
    evaluate: str | None = None,
) -> pa.Table:
    """Run the query in this process over finite data and return all its rows.

    `plan` pins the plan. Without it, the cheapest plan runs.

    With a `budget`, a query that cannot keep up with its streams is refused, and the error lists the remedies. With
    `shed` as well, the query runs and sheds the rows that preserve the most output. Without a budget, finite data takes
    as long as it takes.

    An aggregation returns the groups that changed, with the instant of evaluation in `as_of`. With `evaluate="row"` it
    is evaluated at the time of every row. `emit="snapshot"` returns all groups at each evaluation, and `emit="final"`
    each TUMBLE tile once, when it is complete. With `operations`, changes have a column `operation`: upsert, or delete
    when a group is empty or no longer satisfies HAVING.

    `table.schema.metadata[b"watersmeet"]` holds the ledger as JSON: rows that arrived, were kept, shed or late, per
    stream.
    """
    return job(
        query, streams, plan=plan, budget=budget, shed=shed, stats=stats, emit=emit, operations=operations
    ).collect(evaluate=evaluate)


@_accept_positional_plan
def run(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: Sources,
    *,
    plan: Plan | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    emit: str | None = None,
    operations: bool = False,
    evaluate: str | None = None,
    pull: str = "rounds",
) -> EmbeddedRun:
    """Start the query in this process: iterate over its `batches()`, read its `ledger`, or feed it with `advance`.

    The options have the same meaning as for `collect`. By default a round takes one batch of every stream, so that two
    runs over the same batches see the same rounds. With `pull="ready"` a round takes the batches of the streams that
    have one, so that a silent stream does not stop the others. Declare its `schema`, and its `idle` time.
    """
    described = job(query, streams, plan=plan, budget=budget, shed=shed, stats=stats, emit=emit, operations=operations)
    return described.run(evaluate=evaluate, pull=pull)


def job(
    query: Query | str,
    streams: SourcesOrStats,
    *,
    plan: Plan | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    emit: str | None = None,
    operations: bool = False,
) -> Job:
    """Return a query, its streams and its options as one value, for repeated use.

    The query is parsed and bound once, and mistakes are reported at once. `emit` and `operations` have the same meaning
    as for `collect`. In SQL they are `EMIT CHANGES WITH OPERATIONS`, `EMIT SNAPSHOT` and `EMIT FINAL`.

    >>> pairs = job(
    ...     "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    ...     {"a": declare_stats(rate=1000), "b": declare_stats(rate=1000)},
    ...     budget=Budget(processors=2),
    ... )
    >>> pairs.explain().feasible
    True
    """
    parsed = _choose_emission(parse(query) if isinstance(query, str) else query, emit, operations=operations)
    return make_job(parsed, streams, plan=_to_plan(plan), budget=budget, shed=shed, stats=stats)


def on_spark(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: Sources,
    *,
    plan: Plan | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    emit: str | None = None,
    operations: bool = False,
    session: SparkSession | None = None,
    buckets: int | None = None,
    plans: str | Path | None = None,
    checkpoint: str | Path | None = None,
) -> DataFrame:
    """Return the query's rows as a Spark DataFrame, which any Spark sink can write.

    The DataFrame is streaming if any of its streams is, else finite. `session` is the SparkSession to use, by default
    the active one, or a new `wm.session()`. `buckets` is the number of parallel pieces of the query, by default one per
    shuffle partition. `plans` is the directory of a `PlanLog` (`watersmeet.runtime.buckets.plan_log`), through which
    the plan of a streaming query changes while it runs.

    `plan`, `budget`, `shed` and `stats` have the same meaning as for `collect` and `explain`. `checkpoint` is the
    checkpoint location with which the caller starts the streaming query. The bucket grid is then chosen by the measured
    rates of the streams and stored there, and a restart keeps it. Without it, a streaming query chooses its grid by
    declared rates alone, so that a restart chooses the same one.
    """
    described = job(query, streams, plan=plan, budget=budget, shed=shed, stats=stats, emit=emit, operations=operations)
    return described.to_spark(session=session, buckets=buckets, plans=plans, checkpoint=checkpoint)


def start(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: Sources,
    *,
    to: str | Path | Callable[[DataFrame], DataStreamWriter] | None = None,
    format: str = "parquet",  # noqa: A002 # the name of Spark
    options: Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    trigger: Duration | None = None,
    plan: Plan | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    emit: str | None = None,
    operations: bool = False,
    keep_up: bool | SheddingPolicy = False,
    name: str | None = None,
    max_batch: int | str | None = None,
    session: SparkSession | None = None,
    buckets: int | None = None,
) -> RunningQuery:
    """Start a streaming query on Spark, and return it while it runs.

    `to` is the destination: a directory of files in `format`, a table (`format="table"`), or a table in memory that
    `spark.table(to)` reads (`format="memory"`). Any other sink is a function from the DataFrame to its writer:
    `to=lambda rows: rows.writeStream.foreachBatch(save)`. `options` are options of the format.

    `checkpoint` is the checkpoint location. `trigger` is the interval between batches: by default a batch starts when
    the previous one has ended, and with "availableNow" the query processes the available data and ends.

    With `keep_up` (True, or the policy to shed by), a load controller chooses shed rates after each batch, so that no
    batch takes longer than the trigger interval. `name` is the name of the query in Spark's UI. `plan`, `budget`,
    `shed`, `stats`, `session` and `buckets` have the same meaning as for `on_spark`.

    `max_batch` limits the rows of a micro-batch that are read from followed directories: a number, or "auto" for the
    rows that fit the trigger interval and the memory. So a backlog is processed in batches of bounded size.
    """
    described = job(query, streams, plan=plan, budget=budget, shed=shed, stats=stats, emit=emit, operations=operations)
    return described.start(
        to=to,
        format=format,
        options=options,
        checkpoint=checkpoint,
        trigger=trigger,
        keep_up=keep_up,
        name=name,
        max_batch=max_batch,
        session=session,
        buckets=buckets,
    )


def read_messages(  # noqa: PLR0913 - keyword-only options of a source
    stream: str,
    format: str,  # noqa: A002 # the name of Spark
    *,
    options: Mapping[str, str],
    schema: Mapping[str, str],
    value: str = "json",
    time: str | None = None,
    on_error: str = "stop",
    diverted: str | Path | None = None,
    session: SparkSession | None = None,
) -> DataFrame:
    """Read messages of a format of Spark, such as Kafka, as a streaming DataFrame with the columns of `schema`.

    `stream` is the name under which the query counts messages (`RunningQuery.messages`). A message that cannot be read,
    or has no `time`, stops the query. With `on_error="skip"` it is left out, and with `on_error="divert"` it is written
    to the directory `diverted`, whole and with the reason. A message without a value is no row.

    >>> orders = read_messages("orders", "kafka", options={"subscribe": "orders"}, schema={})
    Traceback (most recent call last):
    watersmeet.errors.InputError: a value that is JSON needs its columns declared
    schema = { item = "string", ts = "timestamp" }, with your columns
    """
    from watersmeet.runtime.spark.formats import FormatSource
    from watersmeet.runtime.spark.host import choose_session

    directory = None if diverted is None else str(diverted)
    source = FormatSource(format, options, schema, value, stream, time, on_error, directory)
    return source.rows(choose_session({}, session))


def session(*, ui: bool = False, unsafe_arrow: bool = False, **settings: SparkSetting) -> SparkSession:
    """Start a SparkSession, local by default, with the settings that the engine needs.

    Keywords are further settings, with dots written as underscores. `ui` starts Spark's UI on the loopback interface
    and prints its address. `unsafe_arrow` turns off Arrow's bounds and null checks in the Java processes of Spark. That
    makes a query a little faster, and a wrong index fatal.
    """
    from watersmeet.runtime.spark.session import session as start_session

    return start_session(ui=ui, unsafe_arrow=unsafe_arrow, **settings)


def plan(  # noqa: PLR0913 - keyword-only options of a query
    algorithm: str = "runs",
    *,
    order: Sequence[str] | Mapping[str, Sequence[str]] = (),
    indexes: Mapping[str, str | Index] | None = None,
    evaluate: Duration = 0,
    expire: Duration = 0,
    cleanup_rows: int = DEFAULT_CLEANUP_ROWS,
    tree: NestedPairs | None = None,
    early: Sequence[str] = (),
    filters: Mapping[str, Sequence[int]] | None = None,
    drop: Mapping[str, float] | None = None,
    drop_seed: int = 0,
    probe: Mapping[str, float] | None = None,
    window: Mapping[str, float] | None = None,
    **unknown: Never,
) -> Plan:
    """Return a plan to pin: an algorithm by its name, and its knobs.

    `order` is one probe order for all origins, or one per origin. `indexes` is list, hash(b), btree(n) or ttree(n) per
    source. `evaluate` and `expire` are intervals, 0 for eager. `tree` nests sources in pairs. `early` names sources to
    aggregate before the join. `filters` gives the order in which a source's own predicates are tested, by their numbers
    in the query. `drop` is the share of each stream to shed. `probe` and `window` are the shares of two streams' rows
    that probe, and that are stored.

    >>> plan("eager-hash", order=["a", "b"], indexes={"a": "hash(5)"}).index("a")
    Index(kind='hash', size=5)
    """
    if unknown:
        knobs = [name for name in inspect.signature(plan).parameters if name != "unknown"]
        raise PlanError(f"a plan has no {listing(list(unknown))}", hint=f"it has: {listing(knobs)}")
    per_origin = order if isinstance(order, Mapping) else {}
    return Plan(
        algorithm=algorithm,
        global_order=() if isinstance(order, Mapping) else tuple(order),
        orders=tuple((origin, tuple(others)) for origin, others in per_origin.items()),
        indexes=tuple((alias, Index.parse(index)) for alias, index in (indexes or {}).items()),
        evaluate_us=parse_duration_us(evaluate, "the evaluation interval"),
        expire_us=parse_duration_us(expire, "the expiration interval"),
        cleanup_rows=cleanup_rows,
        tree=parse_tree(tree),
        early=tuple(early),
        filters=tuple((alias, tuple(numbers)) for alias, numbers in (filters or {}).items()),
        drop=tuple((drop or {}).items()),
        drop_seed=drop_seed,
        probe=tuple((probe or {}).items()),
        window=tuple((window or {}).items()),
    )


def _choose_emission(query: Query, emit: str | None, *, operations: bool) -> Query:
    """Return the query with the emission that the caller asks for, by default that of the query's text."""
    if emit is None and not operations:
        return query
    if emit is not None and emit not in set(EmitMode):
        raise InputError(f'there is no emission "{emit}"', hint=f"emissions: {listing(list(EmitMode))}")
    return replace(query, emit=query.emit if emit is None else EmitMode(emit), operations=operations)


def _to_plan(pinned: Plan | Mapping[str, object] | None) -> Plan | None:
    return Plan.from_dict(pinned) if isinstance(pinned, Mapping) else pinned


def allocate(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: Sources,
    *,
    probes: str = allocation.BEST,
    windows: str = allocation.BEST,
    service_per_s: float = float("inf"),
    memory_rows: float = float("inf"),
    least_per_s: tuple[float, float] = (0.0, 0.0),
    least_rows: tuple[float, float] = (0.0, 0.0),
    stats: Mapping[str, StreamStats] | None = None,
    seed: int = 0,
) -> pa.Table:
    """Run a join of two streams with too little CPU or memory, divided by a strategy of Kang, Naughton and Viglas.

    `probes` decides which rows probe: MaxA, MaxB, by rate, by window or equal. `windows` decides which rows are stored:
    MaxA, MaxB, proportional, inverse or equal. "best" chooses the best strategy by formula. A is the first stream of
    the query. The metadata of the table holds the shares.
    """
    described = job(query, streams, stats=stats)
    about = described.explain()
    limits = allocation.Limits(service_per_s, memory_rows, Pair(*least_per_s), Pair(*least_rows))
    return allocation.collect_within_limits(
        described.query, streams, about.workload, about.config, limits, probes, windows, seed
    )


# --- replaced by options of other functions


def plan_within(
    query: Query | str,
    streams: Sources,
    budget: Budget | None,
    *,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    engine: str = "embedded",
) -> Plan | None:
    """Return a plan that sheds just enough rows to stay within a budget, or None if no row must be shed.

    Replaced by the options `budget` and `shed` of `on_spark`, `start`, `collect` and `run`.
    """
    warnings.warn(
        "wm.plan_within is replaced by options: wm.on_spark(query, streams, budget=..., shed=True)",
        DeprecationWarning,
        stacklevel=2,
    )
    return job(query, streams, budget=budget or Budget(), shed=shed, stats=stats).choose_pinned_plan(engine)


def keep_up(  # noqa: PLR0913 - keyword-only options of a query
    started: StreamingQuery,
    query: Query | str,
    streams: Sources,
    *,
    plans: str | Path,
    checkpoint: str | Path,
    trigger: Duration,
    plan: Plan | Mapping[str, object] | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    shed: SheddingPolicy = DEFAULT_POLICY,
) -> LoadController:
    """Let a streaming query on Spark shed rows, so that no batch takes longer than its `trigger` interval.

    Replaced by `wm.start(..., keep_up=True)`. `started` is the result of `writeStream … start()`. `query`, `streams`,
    `plans` and `plan` are the arguments of `on_spark`; `checkpoint` is the checkpoint location of the query. Returns
    the controller: its `decisions` list the shares that are kept, from which batch on, and why.
    """
    from watersmeet.runtime.buckets.plan_log import PlanLog
    from watersmeet.runtime.spark.host import choose_session
    from watersmeet.runtime.spark.load_controller import LoadController
    from watersmeet.runtime.spark.load_controller import keep_up as start_controller

    warnings.warn(
        "wm.keep_up is replaced by an option: wm.start(query, streams, ..., keep_up=True)",
        DeprecationWarning,
        stacklevel=2,
    )
    bound, trigger_s = job(query, streams).bound, parse_duration_us(trigger, "the trigger interval") / 1e6
    spark_plan = choose_spark_plan(bound, streams, _to_plan(plan), stats)
    controller = LoadController(
        bound, PlanLog(Path(plans)), Path(checkpoint), trigger_s, spark_plan, stats or {}, policy=shed
    )
    return start_controller(started, controller, choose_session(streams))
