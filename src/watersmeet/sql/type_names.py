"""The names of types in CAST."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.errors import QueryError, Span

MAX_DIGITS = 38

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "BINARY": pa.binary(),
}


def type_named(name: str, sizes: list[str], span: Span) -> pa.DataType:
    """The Arrow type of a name.

    >>> type_named("decimal", ["10", "2"], Span(0, 0))
    Decimal128Type(decimal128(10, 2))
    """
    upper = name.upper()
    if upper == "DECIMAL":
        return _decimal(sizes, span)
    if upper not in TYPES:
        raise QueryError(
            f'there is no type "{name[:40]}"', span=span, hint=f"types: {', '.join([*TYPES, 'DECIMAL(p, s)'])}"
        )
    if sizes:
        raise QueryError(f"{upper} takes no size", span=span)
    return TYPES[upper]


def _decimal(sizes: list[str], span: Span) -> pa.DataType:
    numbers = [int(size) for size in sizes if size.isdecimal()]
    if len(numbers) == len(sizes) and 1 <= len(numbers) <= 2:
        precision, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        if 1 <= precision <= MAX_DIGITS and scale <= precision:
            return pa.decimal128(precision, scale)
    raise QueryError(
        "DECIMAL takes its digits and how many of them stand behind the point",
        span=span,
        hint=f"write it like DECIMAL(10, 2); {MAX_DIGITS} digits at most",
    )
