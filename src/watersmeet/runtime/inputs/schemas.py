"""Whether two batches of one source have the same columns, and if not, how they differ."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.errors import listing

#: Types most Arrow kernels do not know, and the ones that stand in for them.
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def difference(first: pa.Schema, other: pa.Schema) -> str | None:
    """How `other` differs from `first`, in words; None if it does not. Nullability and metadata do not count.

    >>> difference(pa.schema({"k": pa.int64()}), pa.schema({"k": pa.string()}))
    'column "k" is string, was int64'
    """
    if first.names != other.names:
        return _names_difference(first.names, other.names)
    for was, now in zip(first, other, strict=True):
        if was.type != now.type:
            return f'column "{was.name}" is {now.type}, was {was.type}'
    return None


def as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns under the first batch's schema, so that nullability and metadata agree."""
    return pa.table(table.columns, schema=schema)


def plain(table: pa.Table) -> pa.Table:
    """The table without string and binary views, for which Arrow has few kernels, and without metadata."""
    fields = [pa.field(field.name, _PLAIN.get(field.type, field.type)) for field in table.schema]
    columns = [
        column.cast(field.type) if column.type != field.type else column for column, field in zip(table.columns, fields, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields)) if columns else table


def _names_difference(was: list[str], now: list[str]) -> str:
    missing, new = [n for n in was if n not in now], [n for n in now if n not in was]
    words = []
    if missing:
        words.append(f"without {listing(missing)}")
    if new:
        words.append(f"with {listing(new)} as well")
    return "it comes " + " and ".join(words) if words else f"its columns are in another order: {listing(now)}"
