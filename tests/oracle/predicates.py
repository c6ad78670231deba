"""The WHERE clause row by row: which rows a source admits, which combinations hold, and which errors count.

- A row fails its source if any predicate that reads this source alone is false or NULL. No other expression is
  evaluated on it.
- A predicate over several sources may contain parts that read only this source. Such a part is evaluated on every row
  that does not fail, unless a CASE, AND, OR or COALESCE can skip it. An error there counts even if the row matches no
  other.
- A combination fails if any predicate is false or NULL. An error counts only on a combination that does not fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.oracle.expressions import Row, evaluate
from watersmeet.algebra.expressions import (
    Aggregate,
    And,
    Between,
    Call,
    Case,
    Comparison,
    Expr,
    Or,
    children,
    sources_of,
    walk,
)
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import QueryError


@dataclass(frozen=True, slots=True)
class WherePredicates:
    """The predicates of a query: those of each source alone (`own`), and those over several sources (`shared`).

    `operands` has, per source, the parts of other expressions that read only this source and are always evaluated.
    """

    own: tuple[tuple[Expr, ...], ...]
    shared: tuple[Expr, ...]
    operands: tuple[tuple[Expr, ...], ...]


def split_where(bound: BoundQuery) -> WherePredicates:
    """Split the WHERE clause by the sources that its conjuncts read."""
    parts = [] if bound.where is None else list(_conjuncts(bound.where))
    aliases = [source.alias for source in bound.sources]
    first_stream = aliases[bound.stream_inputs[0]]
    shared = tuple(part for part in parts if len(sources_of(part)) > 1)
    alone = [(next(iter(sources_of(part)), first_stream), part) for part in parts if len(sources_of(part)) <= 1]
    operands = [*(operand for part in shared for operand in _operands(part)), *_list_grouped_expressions(bound)]
    return WherePredicates(
        own=tuple(tuple(part for owner, part in alone if owner == alias) for alias in aliases),
        shared=shared,
        operands=tuple(tuple(operand for operand in operands if sources_of(operand) == {alias}) for alias in aliases),
    )


def find_admitted_rows(where: WherePredicates, number: int, rows: Iterable[Row]) -> list[bool]:
    """Return whether each row of a source can be part of a combination; raise an error that counts."""
    found = []
    for row in rows:
        found.append(holds(where.own[number], row))
        if found[-1]:
            for operand in where.operands[number]:
                evaluate(operand, row)
    return found


def holds(predicates: Sequence[Expr], row: Row) -> bool:
    """Return whether all predicates are true. One that is false or NULL decides, whatever the others raise."""
    first_error: QueryError | None = None
    for predicate in predicates:
        try:
            if evaluate(predicate, row) is not True:
                return False
        except QueryError as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return True


def _conjuncts(where: Expr) -> Iterator[Expr]:
    """Yield the conjuncts; `x BETWEEN l AND h` is `x >= l AND x <= h`."""
    if isinstance(where, And):
        for arg in where.args:
            yield from _conjuncts(arg)
    elif isinstance(where, Between):
        yield Comparison(">=", where.arg, where.low)
        yield Comparison("<=", where.arg, where.high)
    else:
        yield where


def _operands(expr: Expr) -> Iterator[Expr]:
    """Yield the largest parts over one source that no CASE, AND, OR or COALESCE can skip."""
    if len(sources_of(expr)) == 1:
        yield expr
        return
    match expr:
        case Case(branches=((condition, _), *_)):
            parts: Iterable[Expr] = (condition,)
        case And(args=(first, *_)) | Or(args=(first, *_)) | Call(name="COALESCE", args=(first, *_)):
            parts = (first,)
        case _:
            parts = children(expr)
    for part in parts:
        yield from _operands(part)


def _list_grouped_expressions(bound: BoundQuery) -> Iterator[Expr]:
    """Yield group keys and arguments of aggregates; those over one source are evaluated on its rows."""
    yield from bound.group_by
    shown = [*(output.expr for output in bound.outputs), *([] if bound.having is None else [bound.having])]
    yield from (
        node.arg for expr in shown for node in walk(expr) if isinstance(node, Aggregate) and node.arg is not None
    )
