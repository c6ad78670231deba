"""Random queries that prefer names and values that are hard to print."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from watersmeet.algebra.expressions import (
    ARITHMETIC,
    COMPARISONS,
    Aggregate,
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
    rewrite,
)
from watersmeet.algebra.query import EmitMode, PairConstraint, Query, SelectItem, Source, Star
from watersmeet.algebra.windows import MAX_LENGTH_US, LandmarkWindow, RangeWindow, RowsWindow, TumbleWindow, Window
from watersmeet.sql.functions import AGGREGATES, FUNCTIONS
from watersmeet.sql.types import TYPES as TYPES_OF_CAST

ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
AWKWARD = (
    "a",
    "Price",
    "unit price",
    'q"uote',
    "back`tick",
    "it's",
    "select",
    "Window",
    "every",
    "interval",
    "date",
    "rows",
    "order",
    "case",
    "a.b",
    "[z]",
    "--",
    "/*",
    "*/",
    "é",
    "1st",
    " ",
    "count",
)
NAMES = st.sampled_from(AWKWARD) | ANY_TEXT.filter(bool)
POSITIVE_LENGTHS_US = st.sampled_from(
    [1, 999, 1_000, 1_000_000, 90_000_000, 3_600_000_000, MAX_LENGTH_US]
) | st.integers(1, MAX_LENGTH_US)
LENGTHS_US = st.just(0) | POSITIVE_LENGTHS_US

INT64 = st.integers(-(2**63), 2**63 - 1)
BEYOND_INT64 = st.integers(2**63, 10**38 - 1) | st.integers(-(10**38) + 1, -(2**63) - 1)
UTC = dt.UTC
FIRST, LAST = dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)

LITERALS: st.SearchStrategy[Expr] = st.one_of(
    st.just(Literal(None, pa.null())),
    st.booleans().map(lambda v: Literal(v, pa.bool_())),
    INT64.map(lambda v: Literal(v, pa.int64())),
    BEYOND_INT64.map(lambda v: Literal(Decimal(v), pa.decimal128(len(str(abs(v))), 0))),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda v: Literal(v, pa.float64())),
    (ANY_TEXT | st.sampled_from(AWKWARD)).map(lambda v: Literal(v, pa.string())),
    st.dates().map(lambda v: Literal(v, pa.date32())),
    st.datetimes().map(lambda v: Literal(v, pa.timestamp("us"))),
    st.datetimes(FIRST, LAST, timezones=st.just(UTC)).map(lambda v: Literal(v, pa.timestamp("us", "UTC"))),
    st.integers(-MAX_LENGTH_US, MAX_LENGTH_US).map(
        lambda us: Literal(dt.timedelta(microseconds=us), pa.duration("us"))
    ),
)
TYPES = st.sampled_from([*TYPES_OF_CAST.values(), pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal128(1, 1)])
PATTERNS = ANY_TEXT.map(lambda text: text.rstrip("\\")) | st.sampled_from(["%", "a_%", "100\\%", "'", "\\\\"])


def compound(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    some = st.lists(inner, min_size=1, max_size=3).map(tuple)
    calls = st.sampled_from(sorted(FUNCTIONS)).flatmap(
        lambda name: st.lists(inner, min_size=FUNCTIONS[name].min_args, max_size=FUNCTIONS[name].max_args or 4).map(
            lambda args: Call(name, tuple(args))
        )
    )
    return st.one_of(
        st.builds(Comparison, st.sampled_from(COMPARISONS), inner, inner),
        st.builds(Arithmetic, st.sampled_from(ARITHMETIC), inner, inner),
        st.builds(Negate, inner),
        st.builds(And, several),
        st.builds(Or, several),
        st.builds(Not, inner),
        st.builds(In, inner, some),
        st.builds(Between, inner, inner, inner),
        st.builds(Like, inner, PATTERNS),
        st.builds(IsNull, inner),
        st.builds(Case, st.lists(st.tuples(inner, inner), min_size=1, max_size=3).map(tuple), st.none() | inner),
        calls,
        st.builds(Cast, inner, TYPES),
        st.builds(Aggregate, st.sampled_from([*AGGREGATES]), inner),
        st.just(Aggregate("COUNT")),
    )


WINDOWS: st.SearchStrategy[Window | None] = st.one_of(
    st.none(),
    st.builds(RangeWindow, LENGTHS_US),
    st.builds(TumbleWindow, POSITIVE_LENGTHS_US),
    st.builds(RowsWindow, st.integers(1, 2**31 - 1), st.lists(NAMES, max_size=3, unique=True).map(tuple)),
    st.just(LandmarkWindow()),
)


# Strategies are slow to build, so there is one for all queries: a column's source is a number, and becomes that
# source's alias later.
EXPRESSIONS: st.SearchStrategy[Expr] = st.recursive(
    LITERALS | st.builds(Column, NAMES, st.none() | st.sampled_from("0123")), compound, max_leaves=10
)
ALIASES = st.lists(NAMES, min_size=1, max_size=4, unique=True)
ITEMS = st.lists(
    st.builds(SelectItem, EXPRESSIONS, st.none() | NAMES) | st.builds(Star, st.none() | st.sampled_from("0123")),
    min_size=1,
    max_size=3,
)
PAIRS = st.lists(st.tuples(st.permutations(range(4)), LENGTHS_US, st.booleans()), max_size=3)
CONDITIONS = st.none() | EXPRESSIONS
KEYS = st.lists(EXPRESSIONS, max_size=2)
SOME_LENGTH_US = st.none() | LENGTHS_US
SOME_POSITIVE_LENGTH_US = st.none() | POSITIVE_LENGTHS_US
SAME_NAME = st.booleans()


@st.composite
def queries(draw: st.DrawFn) -> Query:
    aliases = draw(ALIASES)

    def alias(number: str | int) -> str:
        return aliases[int(number) % len(aliases)]

    def rename_sources(expr: Expr) -> Expr:
        return rewrite(
            expr, lambda e: Column(e.name, alias(e.source)) if isinstance(e, Column) and e.source is not None else e
        )

    def item(written: SelectItem | Star) -> SelectItem | Star:
        if isinstance(written, SelectItem):
            return SelectItem(rename_sources(written.expr), written.alias)
        return Star(None if written.source is None else alias(written.source))

    where, having, emit = draw(CONDITIONS), draw(CONDITIONS), draw(st.sampled_from(EmitMode))
    pairs = [(order[0], order[1], length, directed) for order, length, directed in draw(PAIRS)]
    return Query(
        sources=tuple(Source(alias if draw(SAME_NAME) else draw(NAMES), alias, draw(WINDOWS)) for alias in aliases),
        select=tuple(item(written) for written in draw(ITEMS)),
        where=where and rename_sources(where),
        all_pairs_us=draw(SOME_LENGTH_US),
        pairs=tuple(
            PairConstraint(alias(i), alias(j), length, directed)
            for i, j, length, directed in pairs
            if alias(i) != alias(j)
        ),
        group_by=tuple(rename_sources(key) for key in draw(KEYS)),
        having=having and rename_sources(having),
        every_us=draw(SOME_POSITIVE_LENGTH_US),
        emit=emit,
        operations=emit is EmitMode.CHANGES and draw(st.booleans()),
    )
