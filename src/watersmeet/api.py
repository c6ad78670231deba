"""The public functions of Watersmeet: `wm.sql`, `wm.explain`, `wm.collect`, `wm.run`, `wm.on_spark` and others."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.algebra.plan import DEFAULT_CLEANUP_ROWS, Index, Plan, parse_tree
from watersmeet.algebra.query import Query
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.models.kang_limited import Pair
from watersmeet.planner.plan_cost import Budget
from watersmeet.runtime.embedded import allocation
from watersmeet.runtime.embedded import run as embedded
from watersmeet.runtime.embedded.adaptive import StartingPlan
from watersmeet.runtime.embedded.run import EmbeddedRun, Sources
from watersmeet.runtime.planning import choose_spark_plan, explain_run
from watersmeet.runtime.statistics import infer_schema_from_stats
from watersmeet.sources.declarations import Duration, Relation, Stream, parse_duration_us, relation, stream
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.stats.stream_stats import stats as declare_stats

__all__ = [
    "Budget",
    "SheddingPolicy",
    "allocate",
    "collect",
    "declare_stats",
    "explain",
    "keep_up",
    "on_spark",
    "plan",
    "relation",
    "run",
    "session",
    "sql",
    "stream",
]


def sql(text: str) -> Query:
    """Parse a query. Its names are resolved later, against the streams of a run."""
    return parse(text)


def collect(
    query: Query | str,
    streams: Sources,
    plan: Plan | Mapping[str, Any] | None = None,
    *,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    evaluate: str | None = None,
) -> pa.Table:
    """Run the query in this process over finite data and return all its rows.

    `plan` pins the plan. Without it, the cheapest plan runs.

    With a `budget`, a query that cannot keep up with its streams is refused, and the error lists the remedies. With
    `shed` as well, the query runs and sheds the rows that preserve the most output. Without a budget, finite data takes
    as long as it takes.

    An aggregation returns the groups that changed, with the instant of evaluation in `as_of`. With `evaluate="row"` it
    is evaluated at the time of every row.

    `table.schema.metadata[b"watersmeet"]` holds the ledger as JSON: rows that arrived, were kept, shed or late, per
    stream.
    """
    return run(query, streams, plan, budget=budget, shed=shed, stats=stats, evaluate=evaluate).collect()


def run(
    query: Query | str,
    streams: Sources,
    plan: Plan | Mapping[str, Any] | None = None,
    *,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    evaluate: str | None = None,
) -> EmbeddedRun:
    """Start the query in this process: iterate over its `batches()`, read its `ledger`, or feed it with `advance`.

    `budget`, `shed`, `stats` and `evaluate` have the same meaning as for `collect` and `explain`.
    """
    pinned = _to_plan(plan)
    if budget is None and not shed:
        return embedded.start_run(query, streams, pinned, evaluate=evaluate, stats=stats)
    policy = shed if isinstance(shed, SheddingPolicy) else DEFAULT_POLICY
    about = _explain(query, streams, stats, pinned, budget, policy=policy)
    affordable = about.choose_shedding_plan(shed=bool(shed))
    if pinned is not None:
        return embedded.start_run(query, streams, affordable or pinned, evaluate=evaluate, stats=stats)
    starting_plan = StartingPlan(affordable or about.plan, about.budget, policy if shed else None)
    return embedded.start_run(query, streams, starting_plan=starting_plan, evaluate=evaluate, stats=stats)


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

    Use it for `on_spark`, for example. If shedding is not allowed (`shed`) or does not help, the query is refused, and
    the error lists the remedies.
    """
    policy = shed if isinstance(shed, SheddingPolicy) else DEFAULT_POLICY
    return _explain(query, streams, stats, None, budget, policy=policy, engine=engine).choose_shedding_plan(
        shed=bool(shed)
    )


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
    """Run a join of two streams with too little CPU or memory, divided by a strategy of the third paper.

    `probes` decides which rows probe: MaxA, MaxB, by rate, by window or equal. `windows` decides which rows are stored:
    MaxA, MaxB, proportional, inverse or equal. "best" chooses the best strategy by formula. A is the first stream of
    the query. The metadata of the table holds the shares.
    """
    parsed = parse(query) if isinstance(query, str) else query
    about = _explain(parsed, streams, stats, None, None)
    limits = allocation.Limits(service_per_s, memory_rows, Pair(*least_per_s), Pair(*least_rows))
    return allocation.collect_within_limits(
        parsed, streams, about.workload, about.config, limits, probes, windows, seed
    )


def on_spark(
    query: Query | str,
    streams: Sources,
    *,
    plan: Plan | Mapping[str, Any] | None = None,
    session: Any = None,
    buckets: int | None = None,
    plans: str | Path | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    checkpoint: str | Path | None = None,
) -> Any:
    """Return the query's rows as a Spark DataFrame, which any Spark sink can write.

    The DataFrame is streaming if any of its streams is, else finite. `session` is the SparkSession to use, by default
    the active one, or a new `wm.session()`. `buckets` is the number of parallel pieces of the query, by default one per
    shuffle partition. `plans` is the directory of a `PlanLog` (`watersmeet.runtime.spark.plan_log`), through which the
    plan of a streaming query changes while it runs.

    `stats` declares statistics by stream, as for `explain`. `checkpoint` is the checkpoint location with which the
    caller starts the streaming query. The bucket grid is then chosen by the measured rates of the streams and stored
    there, and a restart keeps it. Without it, a streaming query chooses its grid by declared rates alone, so that a
    restart chooses the same one.
    """
    from watersmeet.runtime.spark import host

    return host.on_spark(
        query,
        streams,
        plan=_to_plan(plan),
        session=session,
        buckets=buckets,
        plans=plans,
        stats=stats,
        checkpoint=checkpoint,
    )


def keep_up(  # noqa: PLR0913 - keyword-only options of a query
    started: Any,
    query: Query | str,
    streams: Sources,
    *,
    plans: str | Path,
    checkpoint: str | Path,
    trigger: Duration,
    plan: Plan | Mapping[str, Any] | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    shed: SheddingPolicy = DEFAULT_POLICY,
) -> Any:
    """Let a streaming query on Spark shed rows, so that no batch takes longer than its `trigger` interval.

    `started` is the result of `writeStream … start()`. `query`, `streams`, `plans` and `plan` are the arguments of
    `on_spark`; `checkpoint` is the checkpoint location of the query. After each batch, the controller chooses shed
    rates that keep later batches within the trigger interval. Returns the controller: its `decisions` list the shares
    that are kept, from which batch on, and why.
    """
    from watersmeet.runtime.spark.load_controller import keep_up as start_controller

    bound = embedded.bind_query(query, streams)
    trigger_s = parse_duration_us(trigger, "the trigger interval") / 1e6
    spark_plan = choose_spark_plan(bound, streams, _to_plan(plan), stats)
    return start_controller(
        started, bound, plans, checkpoint, trigger_s, plan=spark_plan, stats=stats or {}, policy=shed
    )


def session(*, unsafe_arrow: bool = False, **settings: Any) -> Any:
    """Start a SparkSession, local by default, with the settings that the engine needs.

    Keywords are further settings, with dots written as underscores. `unsafe_arrow` turns off Arrow's bounds and null
    checks in the Java processes of Spark. That makes a query a little faster, and a wrong index fatal.
    """
    from watersmeet.runtime.spark.session import session as start_session

    return start_session(unsafe_arrow=unsafe_arrow, **settings)


def plan(  # noqa: PLR0913 - keyword-only options of a query
    algorithm: str = "runs",
    *,
    order: Sequence[str] | Mapping[str, Sequence[str]] = (),
    indexes: Mapping[str, str | Index] | None = None,
    evaluate: Duration = 0,
    expire: Duration = 0,
    cleanup_rows: int = DEFAULT_CLEANUP_ROWS,
    tree: Any = None,
    early: Sequence[str] = (),
    drop: Mapping[str, float] | None = None,
    drop_seed: int = 0,
) -> Plan:
    """Return a plan to pin: an algorithm by its name, and its options.

    `order` is one probe order for all origins, or one per origin. `indexes` is list, hash(b), btree(n) or ttree(n) per
    source. `evaluate` and `expire` are intervals, 0 for eager. `tree` nests sources in pairs. `early` names sources to
    aggregate before the join. `drop` is the share of each stream to shed.

    >>> plan("eager-hash", order=["a", "b"], indexes={"a": "hash(5)"}).index("a")
    Index(kind='hash', size=5)
    """
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
        drop=tuple((drop or {}).items()),
        drop_seed=drop_seed,
    )


def _to_plan(pinned: Plan | Mapping[str, Any] | None) -> Plan | None:
    return Plan.from_dict(pinned) if isinstance(pinned, Mapping) else pinned


def explain(
    query: Query | str,
    streams: Mapping[str, Stream | Relation | StreamStats],
    *,
    stats: Mapping[str, StreamStats] | None = None,
    plan: Plan | Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    all_plans: bool = False,
    engine: str = "embedded",
    buckets: int | None = None,
) -> Explanation:
    """Return the plan that would run, its predicted cost and the costs of the other plans, before anything runs.

    A stream may be declared by its statistics alone (`wm.stats`). `stats` overrides statistics that would be measured
    from the data. With `engine="spark"`, `buckets` has the same meaning as for `on_spark`: by default one per shuffle
    partition of the active session, or one per core.

    >>> about = explain(
    ...     "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    ...     {"a": declare_stats(rate=1000, distinct={"k": 500}), "b": declare_stats(rate=1000, distinct={"k": 500})},
    ... )
    >>> about.chosen.cost.rows_out_per_s
    40000.0
    """
    return _explain(query, streams, stats, _to_plan(plan), budget, all_plans=all_plans, engine=engine, buckets=buckets)


def _explain(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    streams: Mapping[str, Stream | Relation | StreamStats],
    stats: Mapping[str, StreamStats] | None,
    plan: Plan | None,
    budget: Budget | None,
    *,
    all_plans: bool = False,
    policy: SheddingPolicy = DEFAULT_POLICY,
    engine: str = "embedded",
    buckets: int | None = None,
) -> Explanation:
    parsed = parse(query) if isinstance(query, str) else query
    schemas = {
        name: infer_schema_from_stats(parsed, name, source)
        if isinstance(source, StreamStats)
        else source.to_schema(name)
        for name, source in streams.items()
    }
    bound = bind(parsed, schemas)
    return explain_run(
        bound,
        streams,
        declared=stats,
        plan=plan,
        budget=budget,
        all_plans=all_plans,
        policy=policy,
        engine=engine,
        buckets=_bucket_count(buckets) if engine == "spark" else None,
    )


def _bucket_count(buckets: int | None) -> int:
    """Return the number of buckets that a query on Spark would have, without starting Spark."""
    if buckets is not None:
        return buckets
    if "pyspark" not in sys.modules:
        return os.cpu_count() or 1
    from watersmeet.runtime.spark.session import shuffle_partitions

    return shuffle_partitions()
