"""Schemas of a source: duplicate columns, types that Arrow's kernels lack, and batches whose columns differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from watersmeet.algebra.arrow_types import BYTES_VIEWS, TEXT_VIEWS
from watersmeet.errors import InputError, abbreviate, listing

#: Levels of nested types that are searched for views.
MAX_TYPE_DEPTH = 64

_VIEW_REPLACEMENTS: dict[pa.DataType, pa.DataType] = {
    **dict.fromkeys(TEXT_VIEWS, pa.string()),
    **dict.fromkeys(BYTES_VIEWS, pa.binary()),
}


def describe_schema_difference(first: pa.Schema, other: pa.Schema) -> str | None:
    """Describe how `other` differs from `first`; None if it does not. Nullability and metadata do not count.

    >>> describe_schema_difference(pa.schema({"k": pa.int64()}), pa.schema({"k": pa.string()}))
    'column "k" is string, was int64'
    """
    if first.names != other.names:
        return _describe_name_difference(first.names, other.names)
    for was, now in zip(first, other, strict=True):
        if was.type != now.type:
            return f'column "{was.name}" is {now.type}, was {was.type}'
    return None


def refuse_duplicate_columns(names: Sequence[str], where: str) -> None:
    """Refuse a source that has two columns of one name: a query could not distinguish them.

    >>> refuse_duplicate_columns(["ts", "ts", "k"], "bids.csv")
    Traceback (most recent call last):
    watersmeet.errors.InputError: bids.csv has 2 columns named "ts"
    rename all but one of them
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f'{where} has {names.count(twice)} columns named "{abbreviate(twice)}"', hint="rename all but one of them"
        )


def apply_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the same columns under the first batch's schema, so that nullability and metadata agree."""
    return pa.table(table.columns, schema=schema)


def normalize_table(table: pa.Table, where: str = "a table") -> pa.Table:
    """Return the table without string and binary views, for which Arrow has few kernels, and without metadata.

    Every source passes through here, so duplicate column names are refused here.
    """
    refuse_duplicate_columns(table.column_names, where)
    fields = [pa.field(field.name, _replace_views(field.type)) for field in table.schema]
    columns = [
        column.cast(field.type) if column.type != field.type else column
        for column, field in zip(table.columns, fields, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields)) if columns else table


def _replace_views(kind: pa.DataType, levels: int = MAX_TYPE_DEPTH) -> pa.DataType:
    """Return the type with strings and binaries in place of views; the same type where it has none.

    Types that are nested deeper than `levels` keep their views, because Python's recursion is bounded.
    """
    if kind in _VIEW_REPLACEMENTS:
        return _VIEW_REPLACEMENTS[kind]
    if levels == 0:
        return kind
    parts = [_replace_views(kind.field(number).type, levels - 1) for number in range(kind.num_fields)]
    if all(part == kind.field(number).type for number, part in enumerate(parts)):
        return kind
    rebuild = next((make for is_kind, make in _NESTED_TYPES if is_kind(kind)), None)
    return (
        kind
        if rebuild is None
        else rebuild(kind, [kind.field(number).with_type(part) for number, part in enumerate(parts)])
    )


#: Nested types by their test, and how to rebuild one with other fields. List views stay: Arrow casts one to an
#: invalid list.
_NESTED_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, list[Any]], pa.DataType]], ...] = (
    (pa.types.is_struct, lambda _, fields: pa.struct(fields)),
    (pa.types.is_map, lambda _, fields: pa.map_(fields[0].type.field(0).type, fields[0].type.field(1).type)),
    (pa.types.is_fixed_size_list, lambda kind, fields: pa.list_(fields[0], kind.list_size)),
    (pa.types.is_large_list, lambda _, fields: pa.large_list(fields[0])),
    (pa.types.is_list, lambda _, fields: pa.list_(fields[0])),
)


def _describe_name_difference(was: list[str], now: list[str]) -> str:
    missing, new = [n for n in was if n not in now], [n for n in now if n not in was]
    words = []
    if missing:
        words.append(f"lacks {listing(missing)}")
    if new:
        words.append(f"adds {listing(new)}")
    return "it " + " and ".join(words) if words else f"its columns are in another order: {listing(now)}"
