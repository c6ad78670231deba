"""Random bound expressions of a requested type, over six columns full of edge values."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from watersmeet.algebra.expressions import (
    ARITHMETIC,
    COMPARISONS,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
)
from watersmeet.sql.functions import TRUNCATED_UNITS

TIME = pa.timestamp("us")
SPAN = pa.duration("us")
PRICE = pa.decimal128(24, 2)
KINDS: dict[str, pa.DataType] = {
    "flag": pa.bool_(),
    "whole": pa.int64(),
    "real": pa.float64(),
    "price": PRICE,
    "text": pa.string(),
    "at": TIME,
}

_EPOCH = dt.datetime(1970, 1, 1)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "whole": st.sampled_from([0, 1, -1, 2, 3, -7, 10, 2**31, 2**62, 2**63 - 1, -(2**63)]),
    "real": st.sampled_from(
        [0.0, -0.0, 1.0, 0.5, -0.5, 2.5, -2.5, 1e300, 2.0**63, math.inf, -math.inf, math.nan, 0.49999999999999994]
    ),
    "price": st.sampled_from(
        ["0.00", "1.15", "4.35", "-0.57", "8.20", "90071992547409.93", "9007199254740993.15", "-1e21"]
    )
    .map(Decimal)
    .map(lambda value: value.quantize(Decimal("0.01"))),
    "text": st.sampled_from(
        [
            "",
            " ",
            "a",
            "A",
            "ab",
            " ab ",
            "ba%_\\",
            "ß",
            "ŉ",
            "日本\n語",
            "12",
            "-3",
            "+4",
            "1.5e3",
            "0x1F",
            "true",
            "2020-02-29",
        ]
    ),
    "at": st.integers(-(10**16), 10**16).map(lambda us: _EPOCH + dt.timedelta(microseconds=us))
    | st.sampled_from([_EPOCH, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2000, 2, 29)]),
}


def tables(most_rows: int = 6) -> st.SearchStrategy[pa.Table]:
    """A few rows with a column of each kind, nulls among them."""
    row = st.tuples(*(st.none() | values for values in _VALUES.values()))
    return st.lists(row, max_size=most_rows).map(_table)


@cache
def expressions(kind: str, depth: int = 3) -> st.SearchStrategy[Expr]:
    """A bound expression whose value is of that kind."""
    leaves = _leaves(kind)
    return leaves if depth == 0 else leaves | st.deferred(lambda: _branches(kind, depth - 1))


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(KINDS)
    return pa.table(
        {name: pa.array(list(values), kind) for (name, kind), values in zip(KINDS.items(), columns, strict=True)}
    )


def _leaves(kind: str) -> st.SearchStrategy[Expr]:
    arrow = KINDS[kind]
    literals = _VALUES[kind].map(lambda value: Literal(value, arrow))
    return st.just(Column(kind, source="s")) | literals | st.just(Cast(Literal(None, pa.null()), arrow))


def _branches(kind: str, depth: int) -> st.SearchStrategy[Expr]:
    return st.one_of(_BRANCHES[kind](depth), _any_kind(kind, depth))


def _any_kind(kind: str, depth: int) -> st.SearchStrategy[Expr]:
    same, flag = expressions(kind, depth), expressions("flag", depth)
    return st.one_of(
        st.builds(Case, st.lists(st.tuples(flag, same), min_size=1, max_size=2).map(tuple), st.none() | same),
        st.builds(
            Call, st.sampled_from(["COALESCE", "GREATEST", "LEAST"]), st.lists(same, min_size=2, max_size=3).map(tuple)
        ),
        st.builds(Call, st.just("NULLIF"), st.tuples(same, same)),
    )


def _flags(depth: int) -> st.SearchStrategy[Expr]:
    flag, text = expressions("flag", depth), expressions("text", depth)
    several = st.lists(flag, min_size=2, max_size=3).map(tuple)
    patterns = st.text(alphabet="%_\\aAb日\n.", max_size=5)
    per_kind = [_comparing(kind, depth) for kind in KINDS]
    return st.one_of(
        st.builds(And, several),
        st.builds(Or, several),
        st.builds(Not, flag),
        *per_kind,
        st.builds(Like, text, patterns),
        st.builds(Call, st.sampled_from(["STARTS_WITH", "ENDS_WITH", "CONTAINS"]), st.tuples(text, text)),
        _casts("flag", ["text", "whole"], depth),
    )


def _comparing(kind: str, depth: int) -> st.SearchStrategy[Expr]:
    side = expressions(kind, depth)
    return st.one_of(
        st.builds(Comparison, st.sampled_from(COMPARISONS), side, side),
        st.builds(In, side, st.lists(side, min_size=1, max_size=3).map(tuple)),
        st.builds(Between, side, side, side),
        st.builds(IsNull, side),
    )


def _integers(depth: int) -> st.SearchStrategy[Expr]:
    whole, at, text = expressions("whole", depth), expressions("at", depth), expressions("text", depth)
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "%"]), whole, whole),
        st.builds(Negate, whole),
        st.builds(Call, st.sampled_from(["ABS", "FLOOR", "CEIL", "ROUND"]), st.tuples(whole)),
        st.builds(Call, st.sampled_from(["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]), st.tuples(at)),
        st.builds(Call, st.just("LENGTH"), st.tuples(text)),
        _casts("whole", ["text", "real", "flag"], depth),
    )


def _reals(depth: int) -> st.SearchStrategy[Expr]:
    real = expressions("real", depth)
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from(ARITHMETIC), real, real),
        st.builds(Negate, real),
        st.builds(Call, st.sampled_from(["ABS", "FLOOR", "CEIL", "ROUND", "SQRT"]), st.tuples(real)),
        _casts("real", ["text", "whole", "flag", "price", "price"], depth),
    )


def _prices(depth: int) -> st.SearchStrategy[Expr]:
    price = expressions("price", depth)
    return st.one_of(
        st.builds(Negate, price), st.builds(Call, st.just("ABS"), st.tuples(price)), _casts("price", ["whole"], depth)
    )


def _texts(depth: int) -> st.SearchStrategy[Expr]:
    text, whole = expressions("text", depth), expressions("whole", depth)
    return st.one_of(
        st.builds(Call, st.sampled_from(["LOWER", "UPPER", "TRIM", "LTRIM", "RTRIM"]), st.tuples(text)),
        st.builds(Call, st.just("SUBSTRING"), st.tuples(text, whole) | st.tuples(text, whole, whole)),
        st.builds(Call, st.just("CONCAT"), st.lists(text, min_size=1, max_size=3).map(tuple)),
        st.builds(Call, st.just("REPLACE"), st.tuples(text, text, text)),
        _casts("text", ["whole", "flag"], depth),
    )


def _times(depth: int) -> st.SearchStrategy[Expr]:
    at = expressions("at", depth)
    spans = st.integers(-(10**12), 10**12).map(lambda us: Literal(dt.timedelta(microseconds=us), SPAN))
    between = st.builds(Arithmetic, st.just("-"), at, at)
    units = st.sampled_from(TRUNCATED_UNITS).map(lambda unit: Literal(unit.lower(), pa.string()))
    widths = st.integers(1, 10**12).map(lambda us: Literal(dt.timedelta(microseconds=us), SPAN))
    return st.one_of(
        st.builds(Call, st.just("DATE_TRUNC"), st.tuples(units, at)),
        st.builds(Call, st.just("TIME_BUCKET"), st.tuples(widths, at)),
        st.builds(Arithmetic, st.sampled_from("+-"), at, spans),
        st.builds(lambda a, b, c: Arithmetic("+", a, Arithmetic("-", b, c)), at, at, st.just(Column("at", source="s"))),
        st.builds(lambda a, span: Arithmetic("+", span, a), at, between),
        at.map(lambda a: Cast(Cast(a, pa.date32()), TIME)),
        at.map(lambda a: Cast(Cast(a, pa.timestamp("ms", "Europe/Paris")), TIME)),
        _casts("at", ["text"], depth),
    )


def _casts(kind: str, origins: list[str], depth: int) -> st.SearchStrategy[Expr]:
    return st.one_of([expressions(origin, depth) for origin in origins]).map(lambda arg: Cast(arg, KINDS[kind]))


_BRANCHES = {"flag": _flags, "whole": _integers, "real": _reals, "price": _prices, "text": _texts, "at": _times}
