"""`on_spark`: a query over sources becomes a DataFrame.

source ─▶ JVM: needed columns, flags ─▶ pack ─▶ shuffle of packets ─▶ bucket: state, meet ─▶ metrics observed ─▶ unpack ─▶ rows
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.algebra.windows import RowsWindow
from watersmeet.errors import InputError, InternalError
from watersmeet.operators.meet.admission import names_read
from watersmeet.operators.meet.config import MeetConfig, MeetInput
from watersmeet.operators.meet.tactics.registry import settled_config
from watersmeet.runtime.embedded import Sources, bound_query, lateness_of, whole
from watersmeet.runtime.sources import Relation, Stream
from watersmeet.runtime.spark.bucket import Bucket
from watersmeet.runtime.spark.inputs import packed_stream
from watersmeet.runtime.spark.kinds import spark_fields
from watersmeet.runtime.spark.labels import bucket_labels
from watersmeet.runtime.spark.layout import Layout, choose_layout
from watersmeet.runtime.spark.metrics import metric_names, observed
from watersmeet.runtime.spark.operator import MeetOperator
from watersmeet.runtime.spark.packets import table_bytes
from watersmeet.runtime.spark.packing import PackedInput, Packer
from watersmeet.runtime.spark.processor import BucketProcessor, run_finite
from watersmeet.runtime.spark.results import BLOB, Emission, unpacked
from watersmeet.runtime.spark.session import check_session
from watersmeet.runtime.spark.session import session as local_session


def on_spark(
    query: Query | str,
    sources: Sources,
    *,
    plan: Plan | None = None,
    session: SparkSession | None = None,
    buckets: int | None = None,
    remembers: bool = True,
) -> DataFrame:
    """The query's rows as a DataFrame: streaming when any source streams, else finite.

    `buckets` is the number of pieces the query is spread over, one per shuffle partition unless said otherwise. `remembers` lets workers
    keep decoded state in memory between batches; rows do not depend on it.
    """
    spark = session or SparkSession.getActiveSession() or local_session()
    bound = bound_query(query, sources)
    config = settled_config(bound, plan or Plan())
    streaming = any(_streams(sources[config.inputs[i].name]) for i in config.streams)
    check_session(spark, streaming=streaming)
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 200)
    if buckets is not None and buckets < 1:
        raise InputError(f"a query runs in at least one bucket, not in {buckets}")
    layout = choose_layout(config, buckets or partitions)
    labels = bucket_labels(layout.cells, partitions)
    packers = _packers(config, sources, layout, labels)
    packed = reduce(DataFrame.unionByName, (packed_stream(spark, _stream(sources, packer.name), packer) for packer in packers))
    bucket = _bucket(config, sources, packers)
    emission = Emission(metric_names(bucket))
    if streaming:
        processor = BucketProcessor(bucket, emission, _signature(bound, bucket), uuid.uuid4().hex, remembers=remembers)
        emitted = packed.groupBy("bucket").transformWithStateInPandas(processor, from_arrow_schema(emission.schema), "Append", "None")
    else:
        run = partial(run_finite, bucket, emission)
        emitted = packed.repartition(partitions, "bucket").mapInArrow(run, from_arrow_schema(emission.schema))
    fields = spark_fields(config.result)
    blobs = observed(emitted, bucket).filter(F.col(BLOB).isNotNull()).select(BLOB)
    return blobs.mapInArrow(partial(unpacked, fields), from_arrow_schema(fields))


def _streams(source: Stream | Relation) -> bool:
    return isinstance(source, Stream) and source.is_endless


def _stream(sources: Sources, name: str) -> Stream:
    source = sources[name]
    if not isinstance(source, Stream):
        raise InternalError(f'"{name}" is no stream')
    return source


def _packers(config: MeetConfig, sources: Sources, layout: Layout, labels: tuple[int, ...]) -> list[Packer]:
    """One per physical stream: a self join reads its stream once."""
    names = list(dict.fromkeys(config.inputs[i].name for i in config.streams))
    return [
        Packer(
            stream=number,
            name=name,
            time=_stream(sources, name).time,
            inputs=tuple(_packed_input(config.inputs[i]) for i in config.streams if config.inputs[i].name == name),
            layout=layout,
            labels=labels,
            counts_late=True,
        )
        for number, name in enumerate(names)
    ]


def _packed_input(source: MeetInput) -> PackedInput:
    """Rows that are counted all travel, with all columns: WHERE looks at them after the count, and ties are decided by any column."""
    if isinstance(source.window, RowsWindow):
        return PackedInput(source.number, tuple(source.fields.names), keys=())
    names = dict.fromkeys([*names_read(replace(source, selection=None)), source.time or ""])
    return PackedInput(source.number, tuple(names), source.keys, source.selection)


def _bucket(config: MeetConfig, sources: Sources, packers: list[Packer]) -> Bucket:
    """What is done with an input once it is packed: its selection is behind it, unless its rows were to be counted first."""
    inputs = tuple(
        each if isinstance(each.window, RowsWindow) or not each.is_stream else replace(each, selection=None) for each in config.inputs
    )
    remaining = replace(config, inputs=inputs)
    relations = {each.number: table_bytes(_pruned(each, whole(sources[each.name]))) for each in config.inputs if not each.is_stream}
    travelling = {
        each.number: pa.schema([config.inputs[each.number].fields.field(name) for name in each.columns])
        for packer in packers
        for each in packer.inputs
    }
    return Bucket(
        operator=MeetOperator(remaining, relations),
        config=remaining,
        travelling=dict(sorted(travelling.items())),
        streams=tuple(packer.name for packer in packers),
        lateness=lateness_of(config, sources),
        layout=packers[0].layout,
        labels=packers[0].labels,
    )


def _pruned(source: MeetInput, table: pa.Table) -> pa.Table:
    return table.select(names_read(source))


def _signature(bound: BoundQuery, bucket: Bucket) -> dict[str, str]:
    """What a checkpoint belongs to. State is the windows only, so the plan is not part of it."""
    schemas = {source.schema.name: source.schema for source in bound.sources}
    about = {"query": str(bound.query), "the number of buckets": str(len(bucket.labels))}
    return about | {f'the schema of "{name}"': str(schema.fields.remove_metadata()) for name, schema in schemas.items()}
