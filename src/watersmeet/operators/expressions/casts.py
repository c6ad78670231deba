"""CAST: every coercion the binder writes, and those the caller does.

Towards zero for whole numbers, NULL for text that does not read as the wanted type, an error for a number that does not
fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from watersmeet.algebra.expressions import Cast
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.numbers import to_decimal, to_float, to_integer
from watersmeet.operators.expressions.parse import parse_text
from watersmeet.operators.expressions.rows import (
    Array,
    Datum,
    EvaluationRows,
    broadcast,
    expression_excerpt,
    make_nulls,
)
from watersmeet.operators.expressions.temporal import convert_unit


def evaluate_cast(node: Cast, rows: EvaluationRows) -> Datum:
    arg = rows.evaluate_datum(node.arg)
    if arg.type == node.type:
        return arg
    try:
        if isinstance(arg, pa.Scalar):
            only: Datum = convert(broadcast(arg, 1), node.type)[0]
            return only
        return convert(arg, node.type)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise QueryError(
            f"a value does not fit into {node.type} in {expression_excerpt(node)}", span=node.span
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise QueryError(f"{arg.type} cannot be cast to {node.type}", span=node.span) from error


def convert(values: Array, kind: pa.DataType) -> Array:
    """The values as another type; raises `pa.ArrowInvalid` for a number that does not fit.

    >>> convert(pa.array([1.9, -1.9, None]), pa.int32()).to_pylist()
    [1, -1, None]
    """
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if values.type == kind:
        return values
    if pa.types.is_null(values.type) or pa.types.is_null(kind):
        return make_nulls(kind, len(values))
    if _is_text(values.type) and not (_is_text(kind) or _is_bytes(kind)):
        return parse_text(values, kind)
    for is_kind, convert in _RULES:
        if is_kind(kind):
            return convert(values, kind)
    return values.cast(kind)


def _to_boolean(values: Array, kind: pa.DataType) -> Array:
    return values.cast(kind)


def _to_text(values: Array, kind: pa.DataType) -> Array:
    written = values.type
    plain = pa.types.is_integer(written) or pa.types.is_boolean(written) or _is_text(written) or _is_bytes(written)
    if plain:
        return values.cast(kind)
    if pa.types.is_date(written):
        return values.cast(pa.date32()).cast(kind)
    raise pa.ArrowNotImplementedError(f"{written} to {kind}")


def _to_date(values: Array, kind: pa.DataType) -> Array:
    """The day in UTC."""
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.timestamp(values.type.unit)).cast(pa.date32())
    return values.cast(kind)


def _to_timestamp(values: Array, kind: pa.TimestampType[Any, Any]) -> Array:
    """The same instant: a time without a zone is UTC, a date is its first moment, a finer unit is cut off downwards."""
    if pa.types.is_timestamp(values.type):
        return convert_unit(values.view(pa.timestamp(values.type.unit)), kind.unit).view(kind)
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp(kind.unit)).view(kind)
    return values.cast(kind)


def _to_duration(values: Array, kind: pa.DurationType[Any]) -> Array:
    return convert_unit(values, kind.unit) if pa.types.is_duration(values.type) else values.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or bool(pa.types.is_fixed_size_binary(kind))


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Array]], ...] = (
    (pa.types.is_integer, to_integer),
    (pa.types.is_floating, to_float),
    (pa.types.is_decimal, to_decimal),
    (pa.types.is_boolean, _to_boolean),
    (_is_text, _to_text),
    (pa.types.is_date, _to_date),
    (pa.types.is_timestamp, _to_timestamp),
    (pa.types.is_duration, _to_duration),
)
