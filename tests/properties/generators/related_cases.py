"""Cases derived from other cases, with a known relation between their results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

from tests.oracle.values import column_values, is_nan
from tests.properties.generators.cases import QueryCase, QueryPiece, SourceData
from tests.properties.generators.event_times import from_counts, to_counts
from watersmeet.algebra.windows import TumbleWindow

_COUNTED = re.compile(r"\d+")
_ORDERED_KEY = re.compile(r"\.k (<|>)(?!>)")
_FURTHEST_US = 2**52


def select_only_ids(case: QueryCase) -> QueryCase:
    """Return the case with ids as its only outputs."""
    return replace(
        case, select=tuple(QueryPiece(f"{item.alias}.id AS {item.alias}_id", (item.alias,)) for item in case.items)
    )


def drop_calendar_predicates(case: QueryCase) -> QueryCase:
    """Drop predicates on absolute times; keep those on distances."""
    return replace(case, predicates=tuple(p for p in case.predicates if ".ts" not in p.text or len(p.aliases) > 1))


def shift_times(rng: Random, case: QueryCase) -> QueryCase | None:
    """Move all event times by one distance, a multiple of every tumbling window.

    Return None if times cannot move that far.
    """
    lengths_us = [source.window.length_us for source in case.bound.sources if isinstance(source.window, TumbleWindow)]
    kinds = [source.table.schema.field(source.time or "").type for source in case.streams.values()]
    step_us = math.lcm(*lengths_us, *(_grain_us(source) for source in case.streams.values()))
    distance_us = rng.choice((-7, -1, 1, 3, 1_000)) * step_us
    if abs(distance_us) > min(_FURTHEST_US, *(_room_us(kind) for kind in kinds)):
        return None
    return case.with_tables(
        case.tables | {name: _move_times(source, distance_us) for name, source in case.streams.items()}
    )


def rename_keys(rng: Random, case: QueryCase) -> QueryCase | None:
    """Replace every value of `k` by another, equal values by equal values.

    Return None if the query compares the order of keys. Columns decide ties in ROWS windows from left to right, so the
    ids come first and decide before `k`. Decimals next to doubles cannot be renamed: two different decimals may equal
    one double, so equality has no classes there.
    """
    kinds = [source.table.schema.field("k").type for source in case.sources]
    if any(map(pa.types.is_decimal, kinds)) and any(map(pa.types.is_floating, kinds)):
        return None
    if any(_ORDERED_KEY.search(piece.text) for piece in case.predicates):
        return None
    names: dict[Any, int] = {}
    fresh = rng.sample(range(-1000, 1000), 100)
    tables = {source.name: _rename_keys(source.table, names, fresh) for source in case.sources}
    return case.with_tables(tables)


def put_ids_first(case: QueryCase) -> QueryCase:
    def put_id_first(table: pa.Table) -> pa.Table:
        return table.select(["id", *(name for name in table.column_names if name != "id")])

    return case.with_tables({name: put_id_first(table) for name, table in case.tables.items()})


def enlarge_a_window(rng: Random, case: QueryCase) -> QueryCase | None:
    """Lengthen one window or pair constraint; return None if there is none.

    Tumbling windows grow to a multiple.
    """
    windows = [i for i, item in enumerate(case.items) if _COUNTED.search(item.window)]
    places = [("items", i) for i in windows] + [("constraints", i) for i in range(len(case.constraints))]
    if not places:
        return None
    field, at = rng.choice(places)
    parts = list(getattr(case, field))
    if field == "items":
        parts[at] = replace(parts[at], window=_lengthen_window(rng, parts[at].window))
    else:
        parts[at] = replace(parts[at], text=_lengthen_window(rng, parts[at].text))
    changed: Mapping[str, Any] = {field: tuple(parts)}
    return replace(case, **changed)


def _lengthen_window(rng: Random, text: str) -> str:
    if "WEEKS" in text:
        return text.replace("5000", "10000")
    more = rng.randrange(2, 4) if "TUMBLE" in text else 1
    return _COUNTED.sub(lambda count: str(int(count[0]) * more + ("TUMBLE" not in text) * rng.choice((1, 2))), text)


def _grain_us(source: SourceData) -> int:
    """Return the smallest distance by which the times of a stream can move."""
    kind = source.table.schema.field(source.time or "").type
    if pa.types.is_date(kind):
        return 86_400_000_000
    return {"s": 1_000_000, "ms": 1_000}.get(source.unit or kind.unit, 1)


def _room_us(kind: pa.DataType) -> int:
    """Return the largest distance by which the times of a column can move: short integers have little room."""
    return 1 << (kind.bit_width - 2) if pa.types.is_integer(kind) else _FURTHEST_US


def _move_times(source: SourceData, distance_us: int) -> pa.Table:
    assert source.time is not None
    column = source.table.column(source.time).combine_chunks()
    distance = _in_counts(distance_us, source)
    moved = from_counts([count + distance for count in to_counts(column)], column.type)
    return source.table.set_column(source.table.column_names.index(source.time), source.time, moved)


def _in_counts(distance_us: int, source: SourceData) -> int:
    kind = source.table.schema.field(source.time or "").type
    if not pa.types.is_date(kind) and (source.unit or kind.unit) == "ns":
        return distance_us * 1_000
    if pa.types.is_date64(kind):
        return distance_us // 1_000
    return distance_us // _grain_us(source)


def _rename_keys(table: pa.Table, names: dict[Any, int], fresh: list[int]) -> pa.Table:
    values = column_values(table.column("k"))
    renamed = [
        None if value is None else names.setdefault("NaN" if is_nan(value) else value, fresh[len(names)])
        for value in values
    ]
    return table.set_column(table.column_names.index("k"), "k", pa.array(renamed, pa.int64()))
