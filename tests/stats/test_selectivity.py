"""Selectivities by rule: the values of the 1979 table, their provenance, and properties of every predicate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.algebra.expressions import (
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
from watersmeet.errors import InputError
from watersmeet.stats.selectivity import estimate_selectivity, measure_selectivity
from watersmeet.stats.stream_stats import Estimate, Provenance

ITEM, STORE, PRICE, OTHER = Column("item", "a"), Column("store", "b"), Column("price", "a"), Column("other", "b")
ONE, TWO, NULL = Literal(1, pa.int64()), Literal(2, pa.int64()), Literal(None, pa.null())
TRUE, FALSE = Literal(True, pa.bool_()), Literal(False, pa.bool_())

DISTINCT = {
    ITEM: Estimate(500, Provenance.MEASURED),
    STORE: Estimate(50, Provenance.DECLARED),
    PRICE: Estimate(10, Provenance.ASSUMED),
}
NULLS = {ITEM: Estimate(0.25, Provenance.MEASURED)}


def share(predicate: Expr) -> Estimate:
    return estimate_selectivity(predicate, DISTINCT.get, NULLS.get)


def equal(left: Expr, right: Expr) -> Expr:
    return Comparison("=", left, right)


RULES: list[tuple[str, Expr, float, Provenance]] = [
    ("columns", equal(ITEM, STORE), 1 / 500, Provenance.DERIVED),
    ("columns the other way", equal(STORE, ITEM), 1 / 500, Provenance.DERIVED),
    ("an assumed column", equal(ITEM, PRICE), 1 / 500, Provenance.ASSUMED),
    ("an unknown column", equal(ITEM, OTHER), 1 / 10, Provenance.ASSUMED),
    ("a column and itself", equal(ITEM, ITEM), 1, Provenance.DERIVED),
    ("a constant", equal(ITEM, ONE), 1 / 500, Provenance.DERIVED),
    ("a constant on the left", equal(ONE, STORE), 1 / 50, Provenance.DERIVED),
    ("a cast", equal(Cast(STORE, pa.float64()), ONE), 1 / 50, Provenance.DERIVED),
    ("a negated column", equal(Negate(STORE), ONE), 1 / 50, Provenance.DERIVED),
    ("something computed", equal(Arithmetic("+", STORE, ONE), TWO), 1 / 50, Provenance.ASSUMED),
    ("something computed from two", equal(Arithmetic("+", STORE, ITEM), TWO), 1 / 10, Provenance.ASSUMED),
    ("two constants", equal(ONE, TWO), 1 / 10, Provenance.ASSUMED),
    ("no equality", Comparison("<>", STORE, ONE), 1 - 1 / 50, Provenance.DERIVED),
    ("a range", Comparison("<", ITEM, ONE), 1 / 3, Provenance.ASSUMED),
    ("null", equal(ITEM, NULL), 0, Provenance.DERIVED),
    ("not null", Comparison("<>", ITEM, Cast(NULL, pa.int64())), 0, Provenance.DERIVED),
    ("between", Between(ITEM, ONE, TWO), 1 / 4, Provenance.ASSUMED),
    ("in", In(STORE, (ONE, TWO, TWO, NULL)), 2 / 50, Provenance.DERIVED),
    ("in of too many", In(STORE, tuple(Literal(value, pa.int64()) for value in range(99))), 1, Provenance.DERIVED),
    ("in of unknown", In(OTHER, (ONE, TWO)), 2 / 10, Provenance.ASSUMED),
    ("like", Like(ITEM, "pen%"), 1 / 10, Provenance.ASSUMED),
    ("like one sign", Like(ITEM, "p_n"), 1 / 10, Provenance.ASSUMED),
    ("like with no wildcard", Like(ITEM, r"100\%"), 1 / 500, Provenance.DERIVED),
    ("is null", IsNull(ITEM), 1 / 4, Provenance.DERIVED),
    ("is null of unknown", IsNull(STORE), 1 / 10, Provenance.ASSUMED),
    ("is null of computed", IsNull(Arithmetic("+", ITEM, ONE)), 1 / 10, Provenance.ASSUMED),
    ("and", And((equal(ITEM, ONE), equal(STORE, ONE))), 1 / 25_000, Provenance.DERIVED),
    ("and with assumed", And((equal(ITEM, ONE), Between(STORE, ONE, TWO))), 1 / 2_000, Provenance.ASSUMED),
    ("or", Or((equal(STORE, ONE), IsNull(ITEM))), 1 / 50 + 1 / 4 - 1 / 200, Provenance.DERIVED),
    ("not", Not(IsNull(ITEM)), 3 / 4, Provenance.DERIVED),
    ("true", TRUE, 1, Provenance.DERIVED),
    ("false", FALSE, 0, Provenance.DERIVED),
    ("a truth column", OTHER, 1 / 2, Provenance.ASSUMED),
    ("a call", Call("STARTS_WITH", (ITEM,)), 1 / 3, Provenance.ASSUMED),
    ("a case", Case(((TRUE, FALSE),)), 1 / 3, Provenance.ASSUMED),
]


@pytest.mark.parametrize(
    ("predicate", "value", "provenance"), [each[1:] for each in RULES], ids=[each[0] for each in RULES]
)
def test_each_predicate_has_its_rule_its_provenance_and_a_note(
    predicate: Expr, value: float, provenance: Provenance
) -> None:
    found = share(predicate)
    assert found.value == pytest.approx(value)
    assert found.provenance is provenance
    assert found.note


LEAVES = st.sampled_from([each[1] for each in RULES])
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=4).map(lambda args: And(tuple(args))),
        st.lists(inner, min_size=2, max_size=4).map(lambda args: Or(tuple(args))),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(PREDICATES)
def test_every_selectivity_is_a_share_and_its_complement_the_rest(predicate: Expr) -> None:
    found = share(predicate)
    assert 0 <= found.value <= 1
    assert share(Not(predicate)).value == pytest.approx(1 - found.value)


@settings(deadline=None)
@given(PREDICATES, PREDICATES)
def test_and_passes_no_more_and_or_no_less_than_either_part(first: Expr, second: Expr) -> None:
    parts = [share(first).value, share(second).value]
    assert share(And((first, second))).value <= min(parts) + 1e-12
    assert share(Or((first, second))).value >= max(parts) - 1e-12


def test_containment_matches_a_count_over_contained_values() -> None:
    small, large = np.arange(1000) % 50, np.arange(1000) % 500
    assert np.mean(small[:, None] == large[None, :]) == pytest.approx(share(equal(ITEM, STORE)).value)


def test_a_column_without_values_is_refused() -> None:
    with pytest.raises(InputError, match='"item" cannot have 0 distinct values'):
        estimate_selectivity(equal(ITEM, ONE), lambda column: Estimate(0, Provenance.DECLARED))


@pytest.mark.parametrize(
    "mask",
    [
        np.array([True, False, False, False]),
        pa.array([True, False, None, None]),
        pa.chunked_array([[True, None], [False, False]]),
    ],
)
def test_a_sampled_share_counts_true_values(mask: Any) -> None:
    assert measure_selectivity(mask) == Estimate(0.25, Provenance.MEASURED, "1 of 4 rows passed")


def test_a_predicate_that_no_sampled_row_passed_is_rare_not_impossible() -> None:
    assert measure_selectivity(np.zeros(98, np.bool_)) == Estimate(0.01, Provenance.MEASURED, "none of 98 rows passed")
    assert measure_selectivity(pa.nulls(98, pa.bool_())).value == 0.01


def test_an_empty_sample_gives_an_assumed_share() -> None:
    assert measure_selectivity(np.zeros(0, np.bool_)).is_assumed


@pytest.mark.parametrize("mask", [np.array([1, 0]), pa.array([1, 0]), [True], None, np.ones((2, 2), np.bool_)])
def test_a_mask_must_be_an_array_of_booleans(mask: Any) -> None:
    with pytest.raises(InputError, match="array of booleans"):
        measure_selectivity(mask)
