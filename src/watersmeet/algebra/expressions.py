"""Expressions as frozen values.

The parser makes them with names as written. The binder returns the same kinds of node, but every column is qualified by
its source's alias and every coercion is a `Cast`. So evaluators (Arrow, Spark, the oracle) never have to guess a type.
Two expressions are equal when they mean the same; their place in the text (`span`) does not count.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.errors import InternalError, QueryError, Span

Value = None | bool | int | float | str | bytes | Decimal | dt.date | dt.datetime | dt.time | dt.timedelta

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")

#: The comparison that holds between b and a when this one holds between a and b.
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """Base of all expressions: the span in the text."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Column(Expr):
    """A column; `source` is the alias of its source, None until it is bound.

    In the condition of a JOIN, only the first `visible` sources of the query are in scope; None means all of them.
    """

    name: str
    source: str | None = None
    visible: int | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant with its Arrow type (`pa.null()` for NULL)."""

    value: Value
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Comparison(Expr):
    """`left op right`, NULL when either side is NULL; NaN equals NaN and is above every other number."""

    op: str
    left: Expr
    right: Expr

    def __post_init__(self) -> None:
        _check_member(self.op, COMPARISONS)


@dataclass(frozen=True, slots=True)
class Arithmetic(Expr):
    """`left op right`. `/` is floating division, division by zero is NULL, integer overflow is an error."""

    op: str
    left: Expr
    right: Expr

    def __post_init__(self) -> None:
        _check_member(self.op, ARITHMETIC)


@dataclass(frozen=True, slots=True)
class Negate(Expr):
    arg: Expr


@dataclass(frozen=True, slots=True)
class And(Expr):
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _check_several(self.args)


@dataclass(frozen=True, slots=True)
class Or(Expr):
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _check_several(self.args)


@dataclass(frozen=True, slots=True)
class Not(Expr):
    arg: Expr


@dataclass(frozen=True, slots=True)
class In(Expr):
    """True when `arg` equals an option; NULL when it equals none and an option or `arg` is NULL."""

    arg: Expr
    options: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise QueryError("IN needs at least one value", span=self.span)


@dataclass(frozen=True, slots=True)
class Between(Expr):
    """`low <= arg AND arg <= high`."""

    arg: Expr
    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class Like(Expr):
    r"""SQL LIKE against a constant pattern: `%` is any run, `_` any one character, `\` escapes the next one."""

    arg: Expr
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    arg: Expr


@dataclass(frozen=True, slots=True)
class Case(Expr):
    """The value of the first branch whose condition is true, else `default` (NULL when None)."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr | None = None

    def __post_init__(self) -> None:
        if not self.branches:
            raise QueryError("CASE needs at least one WHEN", span=self.span)


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A scalar function of `sql.functions`; the name in capitals."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    arg: Expr
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """An aggregate of `sql.functions` over the join's rows; `arg` is None for COUNT(*).

    `where` is the condition of FILTER. A bound aggregate has none: its argument is NULL where the condition fails.
    """

    function: str
    arg: Expr | None = None
    where: Expr | None = None


#: Fields of each kind of expression that may hold sub-expressions.
_PART_NAMES: dict[type[Expr], tuple[str, ...]] = {}


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct sub-expressions, from left to right."""
    found: list[Expr] = []
    for name in _part_names(type(expr)):
        _collect(getattr(expr, name), found)
    return tuple(found)


def _part_names(kind: type[Expr]) -> tuple[str, ...]:
    """Return the fields that may hold sub-expressions. Queries are walked often, and `fields` is slow."""
    names = _PART_NAMES.get(kind)
    if names is None:
        names = _PART_NAMES[kind] = tuple(part.name for part in fields(kind) if part.name != "span")
    return names


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and everything below it, parents first."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return the expression with `change` applied to every node, children first.

    >>> rewrite(Negate(Column("x")), lambda e: Column("y") if isinstance(e, Column) else e)
    Negate(arg=Column(name='y', source=None))
    """
    changed: dict[str, Any] = {name: _rewrite_value(getattr(expr, name), change) for name in _part_names(type(expr))}
    different = {name: value for name, value in changed.items() if value is not getattr(expr, name)}
    return change(replace(expr, **different) if different else expr)


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """Return the parts of a predicate that all have to be true.

    >>> a, b = Column("a"), Column("b")
    >>> conjuncts(And((a, And((b, a))))) == (a, b, a)
    True
    """
    if expr is None:
        return ()
    if isinstance(expr, And):
        return tuple(part for arg in expr.args for part in conjuncts(arg))
    return (expr,)


def conjunction(parts: tuple[Expr, ...]) -> Expr | None:
    """Join the parts by AND: the inverse of `conjuncts`."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(parts)


def columns_of(expr: Expr) -> tuple[Column, ...]:
    """Return every column in the expression, each once, in order of appearance."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Column)))


def sources_of(expr: Expr) -> frozenset[str]:
    """Return the aliases of the sources that a bound expression reads."""
    found: set[str] = set()
    for column in columns_of(expr):
        if column.source is None:
            raise InternalError(f'column "{column.name}" was never bound')
        found.add(column.source)
    return frozenset(found)


def single_source_operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the largest parts of a predicate that read one source and are always evaluated.

    A part that is evaluated for some rows only (a branch of CASE, a later argument of AND, OR or COALESCE) does not
    count.

    >>> x, y = Column("x", source="a"), Column("y", source="b")
    >>> single_source_operands(Comparison("<", Arithmetic("*", x, y), Negate(y))) == (x, y, Negate(y))
    True
    >>> single_source_operands(Or((Comparison("=", x, y), Comparison("=", Negate(x), y)))) == (x, y)
    True
    """
    read = sources_of(expr)
    if len(read) <= 1:
        return (expr,) if read else ()
    return tuple(operand for part in _find_always_evaluated(expr) for operand in single_source_operands(part))


def _find_always_evaluated(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Case):
        return (expr.branches[0][0],)
    if isinstance(expr, And | Or) or (isinstance(expr, Call) and expr.name == "COALESCE"):
        return expr.args[:1]
    return children(expr)


def has_aggregate(expr: Expr) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(expr))


def _check_member(word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise InternalError(f"{word!r} is none of {allowed}")


def _check_several(args: tuple[Expr, ...]) -> None:
    if len(args) < 2:
        raise InternalError("AND and OR join at least two expressions")


def _collect(value: object, found: list[Expr]) -> None:
    if isinstance(value, Expr):
        found.append(value)
    elif isinstance(value, tuple):
        for part in value:
            _collect(part, found)


def _rewrite_value(value: object, change: Callable[[Expr], Expr]) -> object:
    if isinstance(value, Expr):
        return rewrite(value, change)
    if isinstance(value, tuple):
        parts = tuple(_rewrite_value(part, change) for part in value)
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value
