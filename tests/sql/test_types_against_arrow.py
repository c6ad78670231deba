"""The types that the binder infers are the types that Arrow computes, and bound expressions stay bound."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.algebra.random_queries import LITERALS, compound
from tests.sql.schemas import KINDS, SCHEMAS
from watersmeet.algebra.expressions import Arithmetic, Column, Comparison, Expr, has_aggregate
from watersmeet.algebra.query import BoundSource
from watersmeet.errors import QueryError
from watersmeet.sql.binder import Binder
from watersmeet.sql.scope import Scope
from watersmeet.sql.type_inference import type_of

SOURCES = (BoundSource("k", SCHEMAS["kinds"]),)
NAMES = KINDS.names

ARROW = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}


def bound(expr: Expr) -> Expr | None:
    try:
        return Binder(Scope(SOURCES)).bind(expr).expr
    except QueryError:
        return None


def empty(kind: pa.DataType) -> pa.Array[Any]:
    return pa.array([], kind)


@pytest.mark.parametrize("op", ARROW)
def test_arithmetic_has_the_type_that_arrow_gives_it(op: str) -> None:
    defined = 0
    for left, right in product(NAMES, NAMES):
        expr = bound(Arithmetic(op, Column(left, "k"), Column(right, "k")))
        if isinstance(expr, Arithmetic):
            sides = (empty(type_of(expr.left, SOURCES)), empty(type_of(expr.right, SOURCES)))
            assert _arrow_type(op, *sides) == type_of(expr, SOURCES), (left, op, right)
            defined += 1
    assert defined > 50


def _arrow_type(op: str, left: pa.Array[Any], right: pa.Array[Any]) -> pa.DataType:
    """Return the type of Arrow's result. Decimals have at most 38 digits here, where Arrow would need more."""
    if not pa.types.is_decimal(left.type):
        kind: pa.DataType = ARROW[op](left, right).type
        return kind
    wide = [each.cast(pa.decimal256(min(each.type.precision, 37), each.type.scale)) for each in (left, right)]
    found = ARROW[op](*wide).type
    return pa.decimal128(min(found.precision, 38), found.scale)


def test_both_sides_of_a_comparison_have_one_type_that_arrow_compares() -> None:
    for left, right in product(NAMES, NAMES):
        expr = bound(Comparison("=", Column(left, "k"), Column(right, "k")))
        if isinstance(expr, Comparison):
            one, other = type_of(expr.left, SOURCES), type_of(expr.right, SOURCES)
            assert one == other, (left, right)
            assert pc.equal(empty(one), empty(other)).type == pa.bool_()


def test_comparing_is_symmetric() -> None:
    for left, right in product(NAMES, NAMES):
        there = bound(Comparison("=", Column(left, "k"), Column(right, "k")))
        back = bound(Comparison("=", Column(right, "k"), Column(left, "k")))
        if isinstance(there, Comparison):
            assert isinstance(back, Comparison)
            assert (back.left, back.right) == (there.right, there.left)
        else:
            assert back is None


EXPRESSIONS = st.recursive(
    LITERALS | st.sampled_from(NAMES).map(lambda name: Column(name, "k")), compound, max_leaves=6
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(EXPRESSIONS)
def test_a_random_expression_is_refused_or_binds_to_itself(expr: Expr) -> None:
    once = bound(expr)
    if once is not None:
        assert type_of(once, SOURCES) == Binder(Scope(SOURCES)).bind(expr).type
        if not has_aggregate(once):
            assert bound(once) == once
