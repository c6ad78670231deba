"""The identity of a row equals Spark's own `xxhash64` of its columns, bit for bit, for every type both sides have."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everyone writes it

from watersmeet.operators.row_identity import hash_rows, is_part_of_identity
from watersmeet.operators.shed.sampling import DropBox

pytestmark = pytest.mark.filterwarnings("default")

_INT = (0, 1, -1, 127, -128)
_LONG = (0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1)
_FLOAT = (0.0, -0.0, 1.5, -1.5, math.nan, -math.nan, math.inf, -math.inf, 0.1)
_TEXT = ("", "a", "é", "abcdefg", "abcdefgh", "x" * 31, "x" * 32, "y" * 33, "z" * 77)
_DECIMAL = tuple(Decimal(text) for text in ("0.00", "1.50", "-1.50", "327.67", "327.68", "-327.68", "-327.69"))
_DAYS = (dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29))
_MOMENTS = (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12))
_STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])

COLUMNS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "int8": (pa.int8(), _INT),
    "int16": (pa.int16(), _INT),
    "int32": (pa.int32(), (*_INT, 2**31 - 1, -(2**31))),
    "int64": (pa.int64(), _LONG),
    "boolean": (pa.bool_(), (True, False)),
    "float": (pa.float32(), _FLOAT),
    "double": (pa.float64(), _FLOAT),
    "text": (pa.string(), _TEXT),
    "large_text": (pa.large_string(), _TEXT),
    "bytes": (pa.binary(), (b"", b"\x00", b"\xff" * 9, b"ab" * 40)),
    "short_decimal": (pa.decimal128(5, 2), _DECIMAL),
    "long_decimal": (pa.decimal128(18, 2), (*_DECIMAL, Decimal("9999999999999999.99"))),
    "wide_decimal": (pa.decimal128(20, 2), (*_DECIMAL, Decimal("-99999999999999999.99"))),
    "widest_decimal": (pa.decimal128(38, 2), (*_DECIMAL, Decimal(10**35))),
    "date": (pa.date32(), _DAYS),
    "zoned": (pa.timestamp("us", "UTC"), tuple(moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS)),
    "naive": (pa.timestamp("us"), _MOMENTS),
    "duration": (pa.duration("us"), tuple(dt.timedelta(seconds=seconds) for seconds in (-1, 0, 3600))),
    "list": (pa.list_(pa.int32()), ([], [1], [1, None, 2], [3] * 5)),
    "record": (_STRUCT, ({"x": 1, "y": "a"}, {"x": None, "y": "b"}, {"x": 2, "y": None})),
    "nested": (pa.list_(_STRUCT), ([], [{"x": 1, "y": "a"}, None], [{"x": None, "y": None}])),
}


def generate_rows(rng: Random, rows: int) -> pa.Table:
    def column(kind: pa.DataType, pool: tuple[Any, ...]) -> pa.Array[Any]:
        return pa.array([None if rng.random() < 0.1 else rng.choice(pool) for _ in range(rows)], kind)

    return pa.table({name: column(kind, pool) for name, (kind, pool) in COLUMNS.items()})


def test_every_type_and_all_types_together_have_the_hash_of_spark(spark: SparkSession) -> None:
    assert all(is_part_of_identity(kind) for kind, _ in COLUMNS.values())
    table = generate_rows(Random(1), 400)
    frame = spark.createDataFrame(table)
    alone = frame.select(
        *(F.xxhash64(name).alias(name) for name in table.column_names), F.xxhash64(*table.column_names).alias("all")
    )
    theirs = alone.toArrow()
    for name in table.column_names:
        ours = hash_rows(table.select([name])).tolist()
        assert ours == theirs[name].to_pylist(), f"{name}: {table[name].to_pylist()[:5]}"
    assert hash_rows(table).tolist() == theirs["all"].to_pylist()


def test_types_that_spark_converts_have_the_hash_of_the_converted_type(spark: SparkSession, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "u8": pa.array([0, 255, None], pa.uint8()),
            "u16": pa.array([0, 65_535, None], pa.uint16()),
            "u32": pa.array([0, 2**32 - 1, None], pa.uint32()),
            "u64": pa.array([0, 2**64 - 1, None], pa.uint64()),
            "ms": pa.array([-1, 1_001, None], pa.timestamp("ms")),
            "coded": pa.array(["a", "b", None]).dictionary_encode(),
            "date64": pa.array((*_DAYS[:2], None), pa.date64()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    theirs = frame.select(*(F.xxhash64(name).alias(name) for name in table.column_names)).toArrow()
    for name in table.column_names:
        assert hash_rows(table.select([name])).tolist() == theirs[name].to_pylist(), name


def test_spark_keeps_the_rows_that_we_keep(spark: SparkSession) -> None:
    table = generate_rows(Random(2), 500).append_column("id", pa.array(range(500), pa.int64()))
    frame = spark.createDataFrame(table)
    for share in (0.0, 0.25, 0.9, 1.0):
        box = DropBox("readings", keep=share, seed=7)
        kept = (
            frame.where(F.xxhash64(*table.column_names, F.lit(box.stream_seed)) < F.lit(box.hash_limit))
            if box.is_dropping
            else frame
        )
        ids: list[Any] = kept.toArrow()["id"].to_pylist()
        assert sorted(ids) == table.filter(pa.array(box.select_kept(table)))["id"].to_pylist()
