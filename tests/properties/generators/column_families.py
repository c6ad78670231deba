"""Families of column types whose values compare with one another, with pools of awkward values."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

NULL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """Types that compare with each other, and the values of a generated column.

    `portable` if DuckDB compares them alike.
    """

    types: tuple[pa.DataType, ...]
    pool: tuple[Any, ...]
    portable: bool = True


def _utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type,misc]  # the parts are a year, a month, a day, …


_DAYS = (dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29))
_NAIVE = (dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12))
_FRACTIONS = (Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("2.00"), Decimal("1.15"), Decimal("0.57"))
#: Decimals whose nearest double a rounded power of ten misses, and one that is a double itself.
PRICES = (Decimal("1.15"), Decimal("4.35"), Decimal("-0.57"), Decimal("8.20"), Decimal("2.50"))
#: Decimals with more digits than a double holds. The first two have the same nearest double; the next two round twice
#: on the way through the double nearest to their digits.
_LONG = tuple(
    map(Decimal, ("9007199254740993.15", "9007199254740993.16", "5534688923553527.39", "4466737540192532.75", "1.15"))
)

FAMILIES: dict[str, ColumnFamily] = {
    "signed": ColumnFamily((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (-1, 0, 1, 2, 127)),
    "integer": ColumnFamily((pa.uint8(), pa.uint16(), pa.uint32(), pa.int8(), pa.int64()), (0, 1, 2, 100)),
    "unsigned": ColumnFamily((pa.uint64(), pa.uint8()), (0, 1, 2, 255)),
    "big": ColumnFamily((pa.int64(),), (-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1)),
    "float": ColumnFamily((pa.float32(), pa.float64()), (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, 0.1)),
    "number": ColumnFamily((pa.int32(), pa.float64()), (0, 1, 2)),
    "text": ColumnFamily(
        (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())), ("", "a", "A", "ab", "b", "é", "a%")
    ),
    "bytes": ColumnFamily((pa.binary(), pa.large_binary()), (b"", b"a", b"\x00", b"\xff", b"ab")),
    "decimal": ColumnFamily((pa.decimal128(5, 2), pa.decimal128(12, 4), pa.decimal128(20, 2)), _FRACTIONS),
    "price": ColumnFamily((pa.decimal128(7, 2), pa.decimal128(12, 4), pa.float64()), PRICES),
    "long": ColumnFamily((pa.decimal128(36, 2), pa.decimal128(18, 2), pa.float64()), _LONG, portable=False),
    "bool": ColumnFamily((pa.bool_(),), (True, False)),
    "date": ColumnFamily((pa.date32(), pa.date64()), _DAYS),
    "moment": ColumnFamily((pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")), _NAIVE),
    "zoned": ColumnFamily(
        (
            pa.timestamp("s", "UTC"),
            pa.timestamp("us", "UTC"),
            pa.timestamp("ms", "Europe/Berlin"),
            pa.timestamp("ns", "UTC"),
        ),
        tuple(_utc(*moment.timetuple()[:6]) for moment in _NAIVE),
    ),
    "clock": ColumnFamily(
        (pa.time32("s"), pa.time32("ms"), pa.time64("us")), (dt.time(0), dt.time(23, 59, 59), dt.time(12))
    ),
    "span": ColumnFamily(
        (pa.duration("s"), pa.duration("us")), tuple(dt.timedelta(seconds=n) for n in (-1, 0, 1, 3600))
    ),
    "fixed": ColumnFamily((pa.binary(2), pa.binary()), (b"ab", b"\x00\xff", b"zz")),
    "half": ColumnFamily((pa.float16(), pa.float32()), (0.0, -0.0, 0.5, math.nan)),
    "coded": ColumnFamily((pa.dictionary(pa.int8(), pa.int64()), pa.int64()), (0, 1, 2)),
}

#: Columns of lists, structs and maps: queries never compare them, but they break ties between rows of equal times.
_LIST = pa.list_(pa.int64())
_STRUCT = pa.struct([("i", pa.int32()), ("t", pa.string())])
_LISTS: tuple[list[int | None], ...] = ([], [1], [1, 2], [1, None], [2], [None])
NESTED: tuple[ColumnFamily, ...] = (
    ColumnFamily((_LIST, pa.large_list(pa.int32()), pa.list_(pa.float64())), _LISTS),
    ColumnFamily((_STRUCT,), tuple({"i": i, "t": t} for i in (None, 1, 2) for t in (None, "a", "b"))),
    ColumnFamily(
        (pa.map_(pa.string(), pa.int64()),), ([], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    ),
    ColumnFamily((pa.list_(_LIST),), ([], [[]], [None], [[1], [2]], [[1], None], [[1, 2]])),
    ColumnFamily(
        (pa.struct([("l", _LIST), ("s", _STRUCT)]),),
        tuple({"l": each, "s": {"i": 1, "t": "a"}} for each in (None, *_LISTS)),
    ),
    ColumnFamily((pa.list_(pa.float64()),), ([0.0], [-0.0], [math.nan], [1.5, math.nan])),
    ColumnFamily((pa.list_(pa.int64(), 2),), ([1, 2], [1, None], [2, 1])),
)

#: Weights: common types more often.
FAMILY_WEIGHTS = dict.fromkeys(FAMILIES, 1) | {"signed": 4, "float": 3, "text": 3, "price": 2, "long": 2}


def choose_family(rng: Random) -> ColumnFamily:
    name = rng.choices(tuple(FAMILY_WEIGHTS), tuple(FAMILY_WEIGHTS.values()))[0]
    return FAMILIES[name]


def generate_column(rng: Random, family: ColumnFamily, pool: tuple[Any, ...], rows: int) -> pa.Array[Any]:
    """Return a column of one of the family's types, with values of the pool and nulls."""
    values = [None if rng.random() < NULL_SHARE else rng.choice(pool) for _ in range(rows)]
    return build_array(values, rng.choice(family.types))


def build_array(values: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return an array of any type, dictionaries included; NaN stays NaN.

    >>> build_array([1, None, 1], pa.dictionary(pa.int8(), pa.int64())).to_pylist()
    [1, None, 1]
    """
    if pa.types.is_dictionary(kind):
        plain: pa.Array[Any] = pa.array(values, kind.value_type)
        return plain.dictionary_encode().cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.array([None if value is None else _number(value, kind) for value in values], kind)
    return pa.array(values, kind)


def _number(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    return float(value)
