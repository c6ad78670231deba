"""A query with its streams and options as one value: explain it, run it in this process, or run it on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.algebra.render import html_code, html_paragraph, html_table
from watersmeet.algebra.schema import SourceSchema
from watersmeet.errors import InputError
from watersmeet.operators.aggregate.config import build_aggregate_config
from watersmeet.operators.shed.sampling import build_samplers
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.plan_cost import Budget
from watersmeet.planner.spark_forecast import DEFAULT_HEAP_BYTES, SparkMachine
from watersmeet.runtime.batch_limit import check_max_batch, choose_batch_limit, limit_batches
from watersmeet.runtime.embedded.adaptive import StartingPlan
from watersmeet.runtime.embedded.run import ROUNDS, EmbeddedRun, start_bound_run
from watersmeet.runtime.planning import SourcesOrStats, choose_spark_plan, explain_run
from watersmeet.runtime.statistics import infer_schema_from_stats
from watersmeet.sources.declarations import Relation, Sources, Stream, undeclared_source_error
from watersmeet.sources.times import Duration, parse_duration_us
from watersmeet.sql.binder import bind
from watersmeet.stats.stream_stats import StreamStats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from watersmeet.runtime.spark.running_query import RunningQuery

#: Number of characters of a query in a representation of one line.
_MAX_QUERY_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Job:
    """A query, its streams and its options, parsed and bound once, for repeated use.

    `plan` pins the plan. `budget` is the CPU and memory that the query may use. `shed` allows it to drop rows where it
    would exceed them: True, or a policy. `stats` declares statistics by stream. Make a job with `wm.job`.
    """

    bound: BoundQuery
    streams: SourcesOrStats
    plan: Plan | None = None
    budget: Budget | None = None
    shed: bool | SheddingPolicy = False
    stats: Mapping[str, StreamStats] | None = None

    def __post_init__(self) -> None:
        if self.plan is not None:
            _refuse_impossible_plan(self.bound, self.plan)

    @property
    def query(self) -> Query:
        """The query as written."""
        return self.bound.query

    def explain(
        self,
        *,
        engine: str = "embedded",
        all_plans: bool = False,
        buckets: int | None = None,
        trigger: Duration | None = None,
    ) -> Explanation:
        """Return the plan that would run, its predicted cost and the costs of the other plans.

        `engine` is "embedded" or "spark". On Spark, `buckets` is the number of parallel pieces, and `trigger` the
        interval between micro-batches.
        """
        trigger_us = None if trigger is None else parse_duration_us(trigger, "the trigger interval")
        if trigger_us is not None and (engine != "spark" or trigger_us <= 0):
            raise InputError(
                "a trigger interval is the time between two micro-batches on Spark",
                hint='pass engine="spark" and an interval above zero',
            )
        trigger_s = None if trigger_us is None else trigger_us / 1e6
        about = self._explain(engine, all_plans=all_plans, buckets=buckets, trigger_s=trigger_s)
        if not self.shed or about.feasible or about.remedies is None or about.remedies.approximation is None:
            return about
        return self._explain(
            engine,
            plan=about.remedies.approximation.plan,
            reason="rows are shed to fit the budget",
            all_plans=all_plans,
            buckets=buckets,
            trigger_s=trigger_s,
        )

    def collect(self, *, evaluate: str | None = None) -> pa.Table:
        """Run the query in this process over finite data and return all its rows."""
        return self.run(evaluate=evaluate).collect()

    def run(self, *, evaluate: str | None = None, pull: str = ROUNDS) -> EmbeddedRun:
        """Start the query in this process. Each call starts a new run."""
        sources = self._sources()
        start = partial(start_bound_run, self.bound, sources, evaluate=evaluate, stats=self.stats, pull=pull)
        if self.budget is None and not self.shed:
            return start(self.plan)
        about = self._explain("embedded")
        affordable = about.choose_shedding_plan(shed=bool(self.shed))
        if self.plan is not None:
            return start(affordable or about.plan)
        policy = self._policy if self.shed else None
        starting_plan = StartingPlan(affordable or about.plan, about.budget, policy)
        return start(starting_plan=starting_plan)

    def to_spark(
        self,
        *,
        session: SparkSession | None = None,
        buckets: int | None = None,
        plans: str | Path | None = None,
        checkpoint: str | Path | None = None,
    ) -> DataFrame:
        """Return the query's rows as a Spark DataFrame: streaming if any stream is unbounded, else finite."""
        sources = self._sources()
        from watersmeet.runtime.spark.host import build_frame, choose_session

        return build_frame(
            self.bound,
            sources,
            choose_session(sources, session),
            plan=self.choose_pinned_plan("spark"),
            buckets=buckets,
            plans=plans,
            stats=self.stats,
            checkpoint=checkpoint,
        )

    def start(  # noqa: PLR0913 - keyword-only options of a query
        self,
        *,
        to: str | Path | Callable[[DataFrame], DataStreamWriter] | None = None,
        format: str = "parquet",  # noqa: A002 # the name of Spark
        options: Mapping[str, str] | None = None,
        checkpoint: str | Path | None = None,
        trigger: Duration | None = None,
        keep_up: bool | SheddingPolicy = False,
        name: str | None = None,
        max_batch: int | str | None = None,
        session: SparkSession | None = None,
        buckets: int | None = None,
    ) -> RunningQuery:
        """Start the query on Spark and return it while it runs. See `wm.start`."""
        from watersmeet.runtime.buckets.bucket_grid import to_local_path
        from watersmeet.runtime.spark.execution import StreamSink, make_controller, start_query
        from watersmeet.runtime.spark.host import build_frame, choose_session, is_streaming
        from watersmeet.runtime.spark.ui_names import describe_query, ui_name

        sources, sink = self._sources(), StreamSink(to, format, options or {}, checkpoint, trigger, name)
        if not is_streaming(self.bound, sources):
            raise InputError(
                "all streams of this query are finite, so there is nothing to start",
                hint="declare a directory with wm.stream(path, time=..., follow=True) or a streaming Spark DataFrame, "
                "or collect the rows with wm.collect or wm.on_spark",
            )
        trigger_s = None if sink.interval_us is None else sink.interval_us / 1e6
        if max_batch is not None:
            check_max_batch(max_batch)
            limit = choose_batch_limit(
                self._explain("spark", buckets=buckets, trigger_s=trigger_s), max_batch, trigger_s
            )
            sources = limit_batches(sources, limit)
        plan = choose_spark_plan(self.bound, sources, self.choose_pinned_plan("spark"), self.stats)
        local = None if checkpoint is None else to_local_path(checkpoint)
        policy = keep_up if isinstance(keep_up, SheddingPolicy) else self._policy
        controller = make_controller(self.bound, sink, local, plan, self.stats, policy) if keep_up else None
        rows = build_frame(
            self.bound,
            sources,
            choose_session(sources, session),
            plan=plan,
            buckets=buckets,
            plans=None if controller is None else controller.log.folder,
            stats=self.stats,
            checkpoint=local,
        )
        return start_query(
            rows,
            sink,
            ui_name(describe_query(self.query)),
            plan=plan,
            explain_plan=lambda running: self._explain(
                "spark",
                plan=running,
                reason="this plan runs now",
                buckets=buckets,
                trigger_s=trigger_s,
            ),
            controller=controller,
        )

    def choose_pinned_plan(self, engine: str) -> Plan | None:
        """Return the plan to run: one that sheds enough rows to fit the budget, else the pinned one, else None.

        Without permission to shed, a query that exceeds its budget is refused, and the error lists the remedies.
        """
        if self.budget is None and not self.shed:
            return self.plan
        about = self._explain(engine)
        affordable = about.choose_shedding_plan(shed=bool(self.shed))
        if affordable is not None or (self.plan is None and about.budget.objective == "cpu"):
            return affordable
        return about.plan

    @property
    def _policy(self) -> SheddingPolicy:
        return self.shed if isinstance(self.shed, SheddingPolicy) else DEFAULT_POLICY

    def _explain(
        self,
        engine: str,
        *,
        plan: Plan | None = None,
        reason: str = "",
        all_plans: bool = False,
        buckets: int | None = None,
        trigger_s: float | None = None,
    ) -> Explanation:
        return explain_run(
            self.bound,
            self.streams,
            declared=self.stats,
            plan=plan or self.plan,
            reason=reason,
            budget=self.budget,
            all_plans=all_plans,
            policy=self._policy,
            engine=engine,
            buckets=_bucket_count(buckets) if engine == "spark" else None,
            trigger_s=trigger_s,
            machine=_describe_machine() if engine == "spark" else None,
        )

    def _sources(self) -> Sources:
        """Return the streams and relations; refuse a stream of which only statistics are declared."""
        sources: dict[str, Stream | Relation] = {}
        for name, source in self.streams.items():
            if isinstance(source, StreamStats):
                raise undeclared_source_error(name, source)
            sources[name] = source
        return sources

    def __repr__(self) -> str:
        query = " ".join(str(self.query).split())
        if len(query) > _MAX_QUERY_CHARACTERS:
            query = f"{query[: _MAX_QUERY_CHARACTERS - 1]}…"
        return f"Job({', '.join([repr(query), repr(list(self.streams)), *self._describe_options()])})"

    def _repr_html_(self) -> str:
        streams = html_table(("name", "source"), [(name, repr(source)) for name, source in self.streams.items()])
        options = ", ".join(self._describe_options())
        return f"<div>{html_code(str(self.query))}{streams}{html_paragraph(options) if options else ''}</div>"

    def _describe_options(self) -> list[str]:
        options = {"plan": self.plan, "budget": self.budget, "shed": self.shed or None}
        return [f"{name}={value!r}" for name, value in options.items() if value is not None]


def make_job(
    query: Query,
    streams: SourcesOrStats,
    *,
    plan: Plan | None = None,
    budget: Budget | None = None,
    shed: bool | SheddingPolicy = False,
    stats: Mapping[str, StreamStats] | None = None,
) -> Job:
    """Bind a query to the schemas of its streams, and return it with its options as a job."""
    _check_spark_workers(streams)
    schemas: dict[str, SourceSchema] = {}
    for name, source in streams.items():
        if isinstance(source, StreamStats):
            schemas[name] = infer_schema_from_stats(query, name, source)
        elif isinstance(source, Stream | Relation):
            schemas[name] = source.to_schema(name)
        else:
            raise undeclared_source_error(name, source)
    return Job(bind(query, schemas), dict(streams), plan, budget, shed, stats)


def _refuse_impossible_plan(bound: BoundQuery, plan: Plan) -> None:
    sheds = bool(build_samplers(bound, plan))
    if not bound.is_aggregation:
        compile_join_config(bound, plan)
    elif not sheds:  # an aggregation that sheds is estimated from a join, by any plan for joins
        build_aggregate_config(bound, plan)


def _check_spark_workers(streams: SourcesOrStats) -> None:
    """Check the workers of Spark before a DataFrame lists its columns, which starts one of them."""
    for source in streams.values():
        frame = source.spark_frame if isinstance(source, Stream | Relation) else None
        if frame is not None:
            from watersmeet.runtime.spark.python_steps import check_workers

            check_workers(frame.sparkSession)


def _bucket_count(buckets: int | None) -> int:
    """Return the number of buckets that a query on Spark would have, without starting Spark."""
    if buckets is not None:
        return buckets
    if "pyspark" not in sys.modules:
        return os.cpu_count() or 1
    from watersmeet.runtime.spark.session import shuffle_partitions

    return shuffle_partitions()


def _describe_machine() -> SparkMachine:
    """Return the cores and the heap of the active session, or of the one that `wm.session()` would start."""
    if "pyspark" not in sys.modules:
        return SparkMachine(os.cpu_count() or 1, DEFAULT_HEAP_BYTES)
    from watersmeet.runtime.spark.session import describe_machine

    return describe_machine()
