"""Inputs of a query: every kind of source as a DataFrame of packets.

- Spark DataFrames are pruned in the JVM and packed by a Python step after it.
- Files are read by that Python step, straight into Arrow. Spark lists them, tracks the processed ones and passes paths.
- Tables of this process are packed on the driver.

**Finite sources in a streaming query.** Spark does not union a finite DataFrame with a streaming one. A round is one
batch of a finite source. Our data source emits the numbers of the rounds (0, 1, 2, …), and the step after it replaces
each number by the packets of that round. The packets are part of the query's plan, so Spark frees them with the query.
A data source that held them would stay registered until the session ends. An offset is the number of rounds read, so a
restart continues after the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.algebra.expressions import conjunction
from watersmeet.errors import InputError
from watersmeet.operators.parallel import prefetch
from watersmeet.operators.row_identity import is_part_of_identity
from watersmeet.operators.shed.sampling import DropBox
from watersmeet.runtime.buckets.packets import PACKED, PACKED_DDL, decode_table, encode_table
from watersmeet.runtime.buckets.packing import PackedInput, Packer
from watersmeet.runtime.buckets.state_store import forget_ended_runs
from watersmeet.runtime.spark.predicate_pushdown import quote_column, translate_predicate
from watersmeet.runtime.spark.python_steps import map_in_arrow, task_batch_id, use_driver_python
from watersmeet.runtime.spark.round_numbers import ROUNDS, RoundNumbers
from watersmeet.runtime.spark.session import is_first_time
from watersmeet.runtime.spark.versions import current_traits
from watersmeet.sources.declarations import Stream
from watersmeet.sources.feeds import PathFeed, SparkFeed
from watersmeet.sources.files import is_data_file, read_file_in_batches
from watersmeet.sources.schemas import apply_schema, describe_schema_difference
from watersmeet.sources.times import ARRIVAL_COLUMN, stamp_rows

_BOX_FLAG, _HASHES = "\0box", "\0hash"


def pack_stream(spark: SparkSession, source: Stream, packer: Packer, *, streaming: bool) -> DataFrame:
    """Return the stream as a DataFrame of packets, which streams if the query does.

    Tables are packed before the query runs, so their shed rates are those of the query's own plan throughout.
    """
    is_finite_in_streaming = streaming and not source.is_unbounded
    if is_finite_in_streaming or not isinstance(source.feed, SparkFeed | PathFeed):
        packets = _pack_tables(source, replace(packer, planned=None))
        if not streaming:
            return spark.createDataFrame(packets, PACKED_DDL)
        return as_streaming_source(spark, packets, packer.name)
    if isinstance(source.feed, SparkFeed):
        return _pack_frame(source.feed.frame, source.schema, packer)
    return _read_and_pack_files(spark, source.feed, packer)


def _pack_frame(frame: DataFrame, schema: pa.Schema, packer: Packer) -> DataFrame:
    """Pack a DataFrame. Only columns that some input reads leave the JVM.

    Where the JVM can evaluate a selection, a flag carries its result. Rows that fail it leave the JVM as well, because
    their times advance the watermark.
    """
    flags: dict[str, Column] = {}
    inputs = tuple(_flag_in_jvm(each, schema, flags) for each in packer.inputs)
    packer = replace(packer, inputs=inputs)
    if packer.planned is not None:
        flags[_HASHES] = _hash_rows(packer.planned.initial_box, schema)
        packer = replace(packer, identity=(), hashes=_HASHES)
    elif packer.box is not None:
        flags[_BOX_FLAG] = _hash_rows(packer.box, schema) < F.lit(packer.box.hash_limit).cast("long")
        packer = replace(packer, box=None, identity=packer.identity if packer.with_hidden else (), box_flag=_BOX_FLAG)
    names = packer.names_read()
    columns = [*(quote_column(name) for name in names), *flags.values()]
    # Python restores the names: a name may contain any character.
    pruned = frame.select(*(column.alias(f"c{number}") for number, column in enumerate(columns)))
    declared = pa.schema([schema.field(name) for name in names])
    return map_in_arrow(
        pruned, f"pack {packer.name}", partial(_pack_batches, packer, declared, list(flags)), PACKED_DDL
    )


def _flag_in_jvm(each: PackedInput, schema: pa.Schema, flags: dict[str, Column]) -> PackedInput:
    """Return the input with its selection replaced by a flag that the JVM computes, where Spark can evaluate it.

    The flag is added to `flags`, the columns that the frame computes.
    """
    selection = conjunction(each.predicates)
    flag = None if selection is None else translate_predicate(selection, schema)
    if flag is None:
        return each
    name = f"\0keep{each.number}"
    flags[name] = flag
    return replace(each, predicates=(), flag=name)


def _hash_rows(box: DropBox, schema: pa.Schema) -> Column:
    """Return the column of row hashes that a drop box reads.

    A row's identity is Spark's own hash of its columns, so columns that no input reads need not leave the JVM.
    """
    columns = [quote_column(field.name) for field in schema if is_part_of_identity(field.type)]
    return F.xxhash64(*columns, F.lit(box.stream_seed).cast("long"))


def _pack_batches(
    packer: Packer, declared: pa.Schema, flags: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    forget_ended_runs()
    packer = packer.for_batch(task_batch_id())
    return prefetch(
        packer.pack(_cast_to_declared(pa.Table.from_batches([batch]), declared, flags) for batch in batches)
    )


def _cast_to_declared(table: pa.Table, declared: pa.Schema, flags: list[str]) -> pa.Table:
    """Cast the table to the types the query was bound against.

    The flags are the last columns. Their names start with NUL, so that no column of the frame has the same name.
    """
    table = table.rename_columns([*declared.names, *flags])
    for number, field in enumerate(declared):
        if table.schema.field(number).type != field.type:
            table = table.set_column(number, field, table.column(number).cast(field.type))
    return table


def _read_and_pack_files(spark: SparkSession, feed: PathFeed, packer: Packer) -> DataFrame:
    if feed.follow is not None:
        reader = spark.readStream.format("binaryFile").schema(
            "path string, modificationTime timestamp, length long, content binary"
        )
        if feed.follow.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", feed.follow.files_per_batch)
        if feed.follow.bytes_per_batch is not None:
            reader = reader.option("maxBytesPerTrigger", feed.follow.bytes_per_batch)
        paths = reader.load(str(feed.path))
        # A replayed batch gets the same time again.
        arrived_us = F.unix_micros(F.current_timestamp())
    else:
        files = [(str(path.resolve()),) for path in feed.files]
        paths = spark.createDataFrame(files, "path string").repartition(len(files))
        arrived_us = F.lit(feed.arrived_us).cast("long")
    is_stamped = feed.arrived_us is not None
    return map_in_arrow(
        paths.select("path", arrived_us.alias("arrived_us")),  # Spark reads the content of files only if it is selected
        f"read and pack {packer.name}",
        partial(_pack_files, packer, feed.schema, feed.time, is_stamped),
        PACKED_DDL,
    )


def _pack_files(
    packer: Packer, schema: pa.Schema, time: str | None, is_stamped: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    forget_ended_runs()
    packer = packer.for_batch(task_batch_id())
    stamp = {ARRIVAL_COLUMN} if is_stamped else set()
    in_files = pa.schema([schema.field(name) for name in packer.names_read() if name not in stamp])
    pieces = (
        (path, piece, arrived_us)
        for path, arrived_us in _list_paths(batches)
        if is_data_file(path)
        for piece in read_file_in_batches(path, time, in_files.names)
    )
    tables = ((_check_columns(path, piece, in_files), arrived_us) for path, piece, arrived_us in prefetch(pieces))
    return prefetch(packer.pack(stamp_rows(table, arrived) if is_stamped else table for table, arrived in tables))


def _list_paths(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Path, int]]:
    """Yield the path of every file, and the time at which its batch was read."""
    for batch in batches:
        for path, arrived_us in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Path(path.removeprefix("file:")), arrived_us


def _check_columns(path: Path, table: pa.Table, expected: pa.Schema) -> pa.Table:
    for number, field in enumerate(expected):
        if pa.types.is_null(table.schema.field(number).type):  # an empty column has no type
            table = table.set_column(number, field, table.column(number).cast(field.type))
    problem = describe_schema_difference(expected, table.schema)
    if problem is not None:
        raise InputError(f'"{path}" differs from the files the query was made for: {problem}')
    return apply_schema(table, expected)


def _pack_tables(source: Stream, packer: Packer) -> pa.Table:
    rounds = enumerate(source.batches())
    packed = [batch for number, table in rounds for batch in packer.pack([table.select(packer.names_read())], number)]
    return pa.Table.from_batches(packed, PACKED)


def as_streaming_source(spark: SparkSession, packets: pa.Table, name: str) -> DataFrame:
    """Return the packets of a stream as a streaming DataFrame, one round per micro-batch.

    After the last round it emits nothing.
    """
    rounds = packets.column("round")
    last = max(cast("list[int]", rounds.to_pylist()), default=-1)
    blobs = [encode_table(packets.filter(pa.compute.equal(rounds, pa.scalar(number)))) for number in range(last + 1)]
    if is_first_time(spark, "register rounds"):
        with use_driver_python(spark):
            spark.dataSource.register(RoundNumbers)
    has_one_round = current_traits().reads_limited_offsets
    numbers = spark.readStream.format(RoundNumbers.name()).option(ROUNDS, str(len(blobs))).load()
    return map_in_arrow(numbers, f"emit {name}", partial(_emit_round_packets, blobs, has_one_round), PACKED_DDL)


def _emit_round_packets(
    blobs: Sequence[bytes], has_one_round: bool, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Replace round numbers by packets. If a micro-batch is one round, its packets no longer need the number."""
    for number in (number for batch in numbers for number in cast("list[int]", batch.column(0).to_pylist())):
        packets = decode_table(blobs[number])
        if not has_one_round:
            yield from packets.to_batches()
            continue
        in_one_round = packets.set_column(1, PACKED.field("round"), pa.nulls(len(packets), pa.int32()).fill_null(0))
        yield from in_one_round.to_batches()
