"""The algebra's values refuse to be built wrong, and compare by meaning."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.algebra.expressions import (
    And,
    Case,
    Column,
    Comparison,
    In,
    Literal,
    Negate,
    children,
    columns_of,
    conjunction,
    conjuncts,
    rewrite,
    sources_of,
    walk,
)
from watersmeet.algebra.query import PairConstraint, Query, SelectItem, Source, Star
from watersmeet.algebra.time_bounds import close_bounds
from watersmeet.algebra.windows import (
    FOREVER_US,
    MAX_LENGTH_US,
    RangeWindow,
    RowsWindow,
    TumbleWindow,
    format_sql_duration,
)
from watersmeet.errors import InternalError, QueryError, Span

A, B, C = Column("a", "s"), Column("b", "s"), Column("c", "t")


def test_the_place_of_an_expression_does_not_count() -> None:
    assert Column("x", span=Span(0, 1)) == Column("x", span=Span(5, 6)) == Column("x")
    assert hash(Column("x", span=Span(0, 1))) == hash(Column("x"))


def test_walking_goes_parents_first_and_from_left_to_right() -> None:
    expr = Case(((Comparison("=", A, B), C),), Negate(A))
    assert [type(node).__name__ for node in walk(expr)] == [
        "Case",
        "Comparison",
        "Column",
        "Column",
        "Column",
        "Negate",
        "Column",
    ]
    assert children(expr) == (Comparison("=", A, B), C, Negate(A))
    assert columns_of(expr) == (A, B, C)
    assert sources_of(expr) == {"s", "t"}


def test_rewriting_nothing_gives_the_very_same_value() -> None:
    expr = And((Comparison("=", A, B), In(C, (A, B))))
    assert rewrite(expr, lambda node: node) is expr


def test_conjuncts_and_conjunction_are_inverse() -> None:
    parts = (Comparison("=", A, B), Comparison("=", B, C))
    assert conjuncts(conjunction(parts)) == parts
    assert conjunction(()) is None
    assert conjuncts(None) == ()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Comparison("==", A, B),
        lambda: And((A,)),
        lambda: sources_of(Column("x")),
        lambda: Span(5, 4),
    ],
)
def test_our_own_mistakes_are_internal_errors(build: object) -> None:
    assert callable(build)
    with pytest.raises(InternalError):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: In(A, ()),
        lambda: Case(()),
        lambda: RangeWindow(-1),
        lambda: TumbleWindow(0),
        lambda: TumbleWindow(-1),
        lambda: RangeWindow(MAX_LENGTH_US + 1),
        lambda: RowsWindow(0),
        lambda: RowsWindow(5, ("a", "a")),
        lambda: PairConstraint("a", "a", 5),
        lambda: PairConstraint("a", "b", -1),
        lambda: Query((), (Star(),)),
        lambda: Query((Source("s", "s"),), ()),
        lambda: Query((Source("s", "s"), Source("t", "s")), (Star(),)),
        lambda: Query((Source("s", "s"),), (Star(),), pairs=(PairConstraint("s", "t", 5),)),
        lambda: Query((Source("s", "s"),), (Star(),), every_us=0),
        lambda: Query((Source("s", "s"),), (Star(),), all_pairs_us=-1),
    ],
)
def test_invalid_values_are_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(QueryError):
        build()


@pytest.mark.parametrize(
    ("length_us", "text"),
    [
        (0, "0 SECONDS"),
        (1, "1 MICROSECOND"),
        (1_500, "1500 MICROSECONDS"),
        (60_000_000, "1 MINUTE"),
        (-5_000_000, "-5 SECONDS"),
    ],
)
def test_a_length_is_written_in_the_largest_unit_that_divides_it(length_us: int, text: str) -> None:
    assert format_sql_duration(length_us) == text


def test_derived_bounds_are_shortest_paths() -> None:
    bounds = close_bounds([[0, 5, FOREVER_US], [0, 0, 3], [FOREVER_US, FOREVER_US, 0]])
    assert bounds.later_by_us == ((0, 5, 8), (0, 0, 3), (FOREVER_US, FOREVER_US, 0))
    assert bounds.retention_us(0, [0, 1, 2]) == 8


def test_queries_are_equal_whatever_text_they_came_from() -> None:
    one = Query((Source("s", "s"),), (SelectItem(Literal(1, pa.int64())),), text="SELECT 1 FROM s")
    assert one == Query((Source("s", "s"),), (SelectItem(Literal(1, pa.int64())),), text="select 1 from s")
