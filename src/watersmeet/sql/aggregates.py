"""The aggregate functions: the types that each takes, and the type of its result.

`operators.aggregate.functions` has a row for each of them too: how a group computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.render import format_type
from watersmeet.errors import InternalError, QueryError, Span
from watersmeet.sql.coercion import convert_to, convert_to_plain
from watersmeet.sql.types import Family, TypedExpr, decimal_size, plain_type

#: The argument converted to the right type, and the type of the result.
AggregateTypes = tuple[Expr, pa.DataType]


@dataclass(frozen=True, slots=True)
class AggregateSignature:
    """Typing rule of an aggregate, and whether it `counts_rows` when a star is its argument."""

    resolve: Callable[[str, TypedExpr], AggregateTypes]
    counts_rows: bool = False


def resolve_aggregate_signature(
    function: str, arg: TypedExpr | None, span: Span | None = None
) -> tuple[Expr | None, pa.DataType]:
    """Return the converted argument of an aggregate, and the type of its result."""
    signature = AGGREGATES.get(function)
    if signature is None:
        raise InternalError(f"{function!r} is no aggregate function")
    if arg is not None:
        return signature.resolve(function, arg)
    if not signature.counts_rows:
        raise QueryError(f"{function} needs an argument", span=span)
    return None, pa.int64()


def _type_count(function: str, arg: TypedExpr) -> AggregateTypes:
    return arg.expr, pa.int64()


def _type_sum(function: str, arg: TypedExpr) -> AggregateTypes:
    kind = arg.type if arg.family is Family.DURATION else _widest_number(function, arg)
    return convert_to(arg, kind), kind


def _type_average(function: str, arg: TypedExpr) -> AggregateTypes:
    return convert_to(arg, _widest_number(function, arg)), pa.float64()


def _type_extreme(function: str, arg: TypedExpr) -> AggregateTypes:
    _refuse_unordered(function, arg)
    used = convert_to_plain(arg)
    return used.expr, used.type


def _widest_number(function: str, arg: TypedExpr) -> pa.DataType:
    """Return the widest type of the argument's family: sums and averages add up in it."""
    _refuse_unordered(function, arg)
    match arg.family:
        case Family.INTEGER:
            return pa.decimal128(38, 0) if plain_type(arg.type) == pa.uint64() else pa.int64()
        case Family.DECIMAL:
            return pa.decimal128(38, decimal_size(arg)[1])
        case Family.FLOAT | Family.NULL:
            return pa.float64()
    hint = "COUNT the rows, or SUM(CASE WHEN … THEN 1 ELSE 0 END)" if arg.family is Family.BOOLEAN else None
    raise QueryError(f"{function} takes a number, not a {format_type(arg.type)}", span=arg.span, hint=hint)


def _refuse_unordered(function: str, arg: TypedExpr) -> None:
    if arg.family is Family.OTHER:
        raise QueryError(f"{function} cannot take a {format_type(arg.type)}", span=arg.span)


AGGREGATES: dict[str, AggregateSignature] = {
    "COUNT": AggregateSignature(_type_count, counts_rows=True),
    "SUM": AggregateSignature(_type_sum),
    "AVG": AggregateSignature(_type_average),
    "MIN": AggregateSignature(_type_extreme),
    "MAX": AggregateSignature(_type_extreme),
}
