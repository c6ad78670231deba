"""Every kind of source as a DataFrame of packets.

Spark DataFrames are pruned in the JVM and packed by a Python step after it. Files are read by that step itself, straight into Arrow: Spark
finds them, remembers which it has taken, and hands over their paths. Tables of this process are packed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from watersmeet.errors import InputError
from watersmeet.runtime.inputs.feeds import PathFeed, SparkFeed
from watersmeet.runtime.inputs.files import is_data_file, read_files
from watersmeet.runtime.inputs.schemas import as_declared, difference
from watersmeet.runtime.sources import Stream
from watersmeet.runtime.spark.columns import column_of, translated
from watersmeet.runtime.spark.packets import PACKED, PACKED_DDL
from watersmeet.runtime.spark.packing import PackedInput, Packer


def packed_stream(spark: SparkSession, source: Stream, packer: Packer) -> DataFrame:
    """The stream as packets: a streaming DataFrame if it streams."""
    if isinstance(source.feed, SparkFeed):
        return _packed_frame(source.feed.frame, source.schema, packer)
    if isinstance(source.feed, PathFeed):
        return _packed_files(spark, source.feed, packer)
    return _packed_tables(spark, source, packer)


def _packed_frame(frame: DataFrame, schema: pa.Schema, packer: Packer) -> DataFrame:
    """Only the columns some input reads leave the JVM, and where a selection can be done there, a flag says which rows pass."""
    flags = {each.number: _flag(each, schema) for each in packer.inputs}
    inputs = (each if flags[each.number] is None else replace(each, selection=None, flag=_flag_name(each)) for each in packer.inputs)
    packer = replace(packer, inputs=tuple(inputs))
    names = packer.names_read()
    lean = frame.select(*(column_of(name) for name in names), *(flag for flag in flags.values() if flag is not None))
    declared = pa.schema([schema.field(name) for name in names])
    return lean.mapInArrow(partial(_pack_batches, packer, declared), PACKED_DDL)


def _flag(each: PackedInput, schema: pa.Schema) -> Column | None:
    flag = None if each.selection is None else translated(each.selection, schema)
    return None if flag is None else flag.alias(_flag_name(each))


def _flag_name(each: PackedInput) -> str:
    return f"\0keep{each.number}"


def _pack_batches(packer: Packer, declared: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return packer.packed(_declared(pa.Table.from_batches([batch]), declared) for batch in batches)


def _declared(table: pa.Table, declared: pa.Schema) -> pa.Table:
    """The table in the types the query was bound against; flags stay as they are."""
    for number, field in enumerate(declared):
        if table.schema.field(number).type != field.type:
            table = table.set_column(number, field, table.column(number).cast(field.type))
    return table


def _packed_files(spark: SparkSession, feed: PathFeed, packer: Packer) -> DataFrame:
    if feed.following is not None:
        reader = spark.readStream.format("binaryFile").schema("path string, modificationTime timestamp, length long, content binary")
        if feed.following.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", feed.following.files_per_batch)
        paths = reader.load(str(feed.path)).select("path")
    else:
        files = [(str(path.resolve()),) for path in feed.files]
        paths = spark.createDataFrame(files, "path string").repartition(min(len(files), spark.sparkContext.defaultParallelism))
    return paths.mapInArrow(partial(_pack_files, packer, feed.schema, feed.time), PACKED_DDL)


def _pack_files(packer: Packer, schema: pa.Schema, time: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    paths = (Path(path.as_py().removeprefix("file:")) for batch in batches for path in batch.column(0))
    return packer.packed(_read(path, schema, time, packer.names_read()) for path in paths if is_data_file(path))


def _read(path: Path, schema: pa.Schema, time: str | None, names: list[str]) -> pa.Table:
    table = read_files([path], time, names)
    wanted = pa.schema([schema.field(name) for name in names])
    words = difference(wanted, table.schema)
    if words is not None:
        raise InputError(f'"{path}" differs from the files the query was made for: {words}')
    return as_declared(table, wanted)


def _packed_tables(spark: SparkSession, source: Stream, packer: Packer) -> DataFrame:
    rounds = enumerate(source.batches())
    packed = [batch for number, table in rounds for batch in packer.packed([table.select(packer.names_read())], number)]
    return spark.createDataFrame(pa.Table.from_batches(packed, PACKED), PACKED_DDL)
