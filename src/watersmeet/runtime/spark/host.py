"""`on_spark`: turn a query over sources into a DataFrame.

1. In the JVM, select the needed columns and compute flags.
2. Pack rows into packets, and shuffle these to their buckets.
3. In each bucket, update the state and join.
4. Observe the metrics.
5. In the JVM, explode lists into rows.

Where buckets have partial groups, a second shuffle and a second stateful step come before step 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.errors import InputError
from watersmeet.events import log_run_started
from watersmeet.runtime.buckets.bucket import Merger
from watersmeet.runtime.buckets.bucket_grid import GridStore
from watersmeet.runtime.buckets.execution_plan import SparkExecutionPlan, build_execution_plan
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.spark.batch_metrics import metric_names, observe_buckets, observe_merger
from watersmeet.runtime.spark.emission import BLOB, BUCKET, ROUND, BatchedRows, PartialGroups, to_spark_schema
from watersmeet.runtime.spark.inputs import pack_stream
from watersmeet.runtime.spark.processor import BucketProcessor, MergeProcessor, merge_emission, merge_finite, run_finite
from watersmeet.runtime.spark.python_steps import check_workers, local_directories, map_in_arrow, transform_with_state
from watersmeet.runtime.spark.session import check_session, choose_partitions, remove_ended_runs
from watersmeet.runtime.spark.session import session as local_session
from watersmeet.runtime.spark.ui_names import describe_jobs, describe_query
from watersmeet.sources.declarations import Relation, Sources, Stream, bind_query
from watersmeet.stats.stream_stats import StreamStats


def on_spark(  # noqa: PLR0913 - keyword-only options of a query
    query: Query | str,
    sources: Sources,
    *,
    plan: Plan | None = None,
    session: SparkSession | None = None,
    buckets: int | None = None,
    plans: str | Path | None = None,
    cache_state: bool = True,
    observation: Observation | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    checkpoint: str | Path | None = None,
) -> DataFrame:
    """Return the query's rows as a DataFrame: streaming if any source streams, else finite. See `build_frame`."""
    spark = choose_session(sources, session)
    # Check the workers before anything else runs in them: a frame may ask Spark for its columns.
    check_workers(spark)
    with describe_jobs(spark, f"read the columns of {describe_query(query)}"):
        bound = bind_query(query, sources)
    return build_frame(
        bound,
        sources,
        spark,
        plan=plan,
        buckets=buckets,
        plans=plans,
        cache_state=cache_state,
        observation=observation,
        stats=stats,
        checkpoint=checkpoint,
    )


def choose_session(sources: Sources, session: SparkSession | None = None) -> SparkSession:
    """Return the given session, that of a source, the active one, or a new one."""
    return session or _find_session(sources) or SparkSession.getActiveSession() or local_session()


def build_frame(  # noqa: PLR0913 - keyword-only options of a query
    bound: BoundQuery,
    sources: Sources,
    spark: SparkSession,
    *,
    plan: Plan | None = None,
    buckets: int | None = None,
    plans: str | Path | None = None,
    cache_state: bool = True,
    observation: Observation | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    checkpoint: str | Path | None = None,
) -> DataFrame:
    """Return the rows of a bound query as a DataFrame: streaming if any source streams, else finite.

    `buckets` is the number of buckets, by default one per shuffle partition. `plans` is the directory of a log of plans
    by batch (`PlanLog`), for a streaming query whose plan or shed rates change while it runs. `cache_state` lets
    workers keep decoded state in memory between batches; the rows do not depend on it. `observation` receives the
    metrics of a finite query. `stats` are declared statistics. `checkpoint` is the checkpoint location of the query;
    its grid is stored there.
    """
    if buckets is not None and buckets < 1:
        raise InputError(f"a query runs in at least one bucket, not in {buckets}")
    workers, streaming = check_workers(spark), is_streaming(bound, sources)
    check_session(spark, streaming=streaming)
    partitions = choose_partitions(spark, streaming=streaming)
    log = PlanLog(Path(plans)) if plans is not None and streaming else None
    grid_store = GridStore.at(checkpoint) if checkpoint is not None and streaming else None
    description = describe_query(bound.query)
    with describe_jobs(spark, f"plan {description}"):
        execution_plan = build_execution_plan(
            bound, sources, plan, buckets or partitions, partitions, log, stats=stats, checkpoint=grid_store
        )
    log_run_started("spark", bound.query, sources, execution_plan.bucket.config.plan)
    packed = _pack_streams(spark, sources, execution_plan, streaming=streaming)
    emission = _choose_emission(execution_plan)
    columns = from_arrow_schema(emission.schema)
    live = remove_ended_runs(packed.sparkSession, local_directories(workers))
    if streaming:
        processor = BucketProcessor(execution_plan, emission, live, cache_state=cache_state, plans=log)
        emitted = transform_with_state(packed, BUCKET, processor, columns)
    else:
        emitted = map_in_arrow(
            packed.repartition(partitions, BUCKET),
            description,
            partial(run_finite, execution_plan.bucket, emission),
            columns,
        )
    counted = observe_buckets(emitted, execution_plan.bucket, observation)
    if isinstance(emission, BatchedRows):
        return emission.explode_rows(counted)
    assert execution_plan.merger is not None
    merging = MergeProcessor(execution_plan.merger, execution_plan.signature, live, cache_state=cache_state)
    return _merge_groups(counted, execution_plan.merger, merging if streaming else None, partitions)


def _choose_emission(execution_plan: SparkExecutionPlan) -> BatchedRows | PartialGroups:
    """Return the form in which results leave a bucket: rows, or partial groups for the buckets of the second step."""
    names, merger = metric_names(execution_plan.bucket), execution_plan.merger
    if merger is None:
        return BatchedRows(names, to_spark_schema(execution_plan.bucket.config.result))
    return PartialGroups(names, merger.labels, len(merger.config.group_outputs.keys))


def _merge_groups(counted: DataFrame, merger: Merger, processor: MergeProcessor | None, partitions: int) -> DataFrame:
    """Return the rows of whole groups. Without a processor, the input is finite."""
    parts = counted.filter(F.col(BLOB).isNotNull()).select(BLOB, BUCKET, ROUND)
    emission = merge_emission(merger)
    columns = from_arrow_schema(emission.schema)
    if processor is not None:
        emitted = transform_with_state(parts, BUCKET, processor, columns)
    else:
        emitted = map_in_arrow(
            parts.repartition(partitions, BUCKET), "merge groups", partial(merge_finite, merger), columns
        )
    return emission.explode_rows(observe_merger(emitted))


def _find_session(sources: Sources) -> SparkSession | None:
    frames = [source.spark_frame for source in sources.values() if isinstance(source, Stream | Relation)]
    return next((frame.sparkSession for frame in frames if frame is not None), None)


def is_streaming(bound: BoundQuery, sources: Sources) -> bool:
    """Return whether any source of the query is unbounded."""
    read = [sources[source.name] for source in bound.query.sources]
    return any(isinstance(source, Stream) and source.is_unbounded for source in read)


def _pack_streams(
    spark: SparkSession, sources: Sources, execution_plan: SparkExecutionPlan, *, streaming: bool
) -> DataFrame:
    streams = (
        pack_stream(spark, execution_plan.stream(sources, packer), packer, streaming=streaming)
        for packer in execution_plan.packers
    )
    return reduce(DataFrame.unionByName, streams)
