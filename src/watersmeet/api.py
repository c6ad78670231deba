"""The public surface: what a caller types."""

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
from watersmeet.sql import bind, parse
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.stats.stream_stats import stats as declare_stats

__all__ = [
    "Budget",
    "Wishes",
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
    """A query from its text. Names are resolved later, against the streams it is run on."""
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
    """Runs the query in this process over finite data and returns all its rows; `plan` pins how, else the cheapest plan
    is chosen.

    With a `budget`, a query that cannot keep up with its streams is refused, with what would help; or, with `shed`, run
    on as many rows as it can keep up with, those dropped chosen so that most of the answer is left. Without one, finite
    data just takes as long as it takes.

    An aggregation query gives the rows of its groups that changed, with the instant of evaluation in `as_of`;
    `evaluate="row"` evaluates it at the time of every row.

    `table.schema.metadata[b"watersmeet"]` holds, as JSON, the ledger of rows arrived, kept, shed and late per stream.
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
    """The query under way in this process: iterate over its `batches()`, look at its `ledger`, or feed it with
    `advance`.

    `budget`, `shed`, `stats` and `evaluate` as for `collect` and `explain`.
    """
    pinned = _plan(plan)
    if budget is None and not shed:
        return embedded.start_run(query, streams, pinned, evaluate=evaluate, stats=stats)
    wishes = shed if isinstance(shed, SheddingPolicy) else DEFAULT_POLICY
    about = _explained(query, streams, stats, pinned, budget, wishes=wishes)
    fitting = about.runnable(shed=bool(shed))
    if pinned is not None:
        return embedded.start_run(query, streams, fitting or pinned, evaluate=evaluate, stats=stats)
    begun = StartingPlan(fitting or about.plan, about.budget, wishes if shed else None)
    return embedded.start_run(query, streams, starting_plan=begun, evaluate=evaluate, stats=stats)


def plan_within(
    query: Query | str,
    streams: Sources,
    budget: Budget | None,
    *,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
    engine: str = "embedded",
) -> Plan | None:
    """A plan that drops what has to be dropped to stay within a budget, for `on_spark` say; None where nothing has to
    be.

    Where that is not allowed (`shed`), or does not help, the query is refused with what would.
    """
    wishes = shed if isinstance(shed, SheddingPolicy) else DEFAULT_POLICY
    return _explained(query, streams, stats, None, budget, wishes=wishes, engine=engine).runnable(shed=bool(shed))


def allocate(
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
    """Runs a join of two streams with too little to serve or to hold all rows: who probes and who is held, by the third
    paper's strategies.

    `probes` is one of MaxA, MaxB, by rate, by window, equal; `windows` one of MaxA, MaxB, proportional, inverse, equal;
    "best" for both is the best by formula. A is the first stream of the query. The shares used are in the table's
    metadata.
    """
    parsed = parse(query) if isinstance(query, str) else query
    about = _explained(parsed, streams, stats, None, None)
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
    """Return the query's rows as a Spark DataFrame: streaming when any of its streams is, else finite. Write it with
    any Spark sink.

    `session` is the SparkSession to use, by default the active one, or a new `wm.session()`; `buckets` the number of
    pieces the query is spread over, by default one per shuffle partition. `plans` is the directory of a log of plans by
    batch (`watersmeet.runtime.spark.plan_log.PlanLog`), through which the plan of a streaming query changes while it runs.

    `stats` declares statistics by stream, as for `explain`. `checkpoint` is the checkpoint location that the streaming
    query will be started with. The grid of buckets is then chosen by the rates of the streams and stored there, and a
    restart keeps it. Without it, a streaming query chooses its grid by declared rates alone, so that a restart finds
    the same one.
    """
    from watersmeet.runtime.spark import host

    return host.on_spark(
        query,
        streams,
        plan=_plan(plan),
        session=session,
        buckets=buckets,
        plans=plans,
        stats=stats,
        checkpoint=checkpoint,
    )


def keep_up(
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
    """Lets a streaming query on Spark drop what it has to, so that no batch takes longer than its `trigger` interval.

    `started` is what `writeStream … start()` returned; `query`, `streams`, `plans` and `plan` are what `on_spark` was
    given, `checkpoint` the query's checkpoint location. After every batch it is decided what later ones drop, until the
    query ends. Returns what decides: its `decisions` tell from which batch on what is kept, and why.
    """
    from watersmeet.runtime.spark.load_controller import keep_up as deciding

    bound = embedded.bind_query(query, streams)
    trigger_s = parse_duration_us(trigger, "the trigger interval") / 1e6
    own = choose_spark_plan(bound, streams, _plan(plan), stats)
    return deciding(started, bound, plans, checkpoint, trigger_s, plan=own, stats=stats or {}, wishes=shed)


def session(*, unsafe_arrow: bool = False, **settings: Any) -> Any:
    """Start a SparkSession, local by default, with the settings the engine wants.

    Keywords are more settings, with points written as underscores. `unsafe_arrow` turns off Arrow's bounds and null
    checks in Spark's Java processes, which makes a query a little faster and a wrong index fatal.
    """
    from watersmeet.runtime.spark.session import session as local_session

    return local_session(unsafe_arrow=unsafe_arrow, **settings)


def plan(
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
    """A plan to pin: an algorithm by its name, and its knobs.

    `order` is one order for all origins, or an order per origin; `indexes` one of list, hash(b), btree(n), ttree(n) per
    source; `evaluate` and `expire` are intervals, 0 for eager; `tree` nests sources in pairs, `early` names sources to
    aggregate before the join, `drop` is the share of each stream to shed.

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


def _plan(pinned: Plan | Mapping[str, Any] | None) -> Plan | None:
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
    """Explain what would run, what it would cost and what the other plans would cost, before anything runs.

    A stream may be declared by its statistics alone (`wm.stats`); `stats` overrides what would be measured from the
    data. With `engine="spark"`, `buckets` is as for `on_spark`: one per shuffle partition of the active session, or one
    per core.

    >>> about = explain(
    ...     "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    ...     {"a": declare_stats(rate=1000, distinct={"k": 500}), "b": declare_stats(rate=1000, distinct={"k": 500})},
    ... )
    >>> about.chosen.cost.rows_out_per_s
    40000.0
    """
    return _explained(query, streams, stats, _plan(plan), budget, all_plans=all_plans, engine=engine, buckets=buckets)


def _explained(
    query: Query | str,
    streams: Mapping[str, Stream | Relation | StreamStats],
    stats: Mapping[str, StreamStats] | None,
    plan: Plan | None,
    budget: Budget | None,
    *,
    all_plans: bool = False,
    wishes: SheddingPolicy = DEFAULT_POLICY,
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
        wishes=wishes,
        engine=engine,
        buckets=_bucket_count(buckets) if engine == "spark" else None,
    )


def _bucket_count(buckets: int | None) -> int:
    """Return the number of buckets that a query on Spark would have; Spark is not started to find out."""
    if buckets is not None:
        return buckets
    if "pyspark" not in sys.modules:
        return os.cpu_count() or 1
    from watersmeet.runtime.spark.session import shuffle_partitions

    return shuffle_partitions()
