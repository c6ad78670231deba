"""Changes to a generated case that the generators do not make themselves; the rest of the case stays the same.

- Predicates that mix two or three sources on one side.
- An expression key next to a predicate on the same source.
- Keys in bursts: runs of equal keys close in time.
- Values on which expressions raise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

from tests.properties.generators.cases import QueryCase, QueryPiece
from tests.properties.generators.column_families import build_array

LARGEST = 2**63 - 1

#: Predicates that mix sources on one side, so that no kernel can test them.
MIXED_SIDES = (
    "ABS({a}.v - {b}.v) < {n}",
    "MOD({a}.v * 7 + {b}.v * 13, 3) = {n}",
    "{a}.v * {b}.v <> {n}",
    "{a}.v + {b}.v BETWEEN 0 AND {n}",
    "COALESCE({a}.v, {b}.v) >= {n}",
)
MIXED_TRIPLES = ("ABS({a}.v - {b}.v) <= {c}.v", "{a}.v + {b}.v * {c}.v > {n}")

#: An expression key next to a predicate of the same source.
GUARDED_KEYS = (
    ("{a}.v IS NOT NULL", "{a}.v + 1 = {b}.v"),
    ("{a}.x < 2", "CAST({a}.x AS BIGINT) = {b}.v"),
    ("{a}.s = 'a'", "ABS({a}.v) = {b}.v"),
    ("{a}.v < 3", "{a}.v * 2 = {b}.v + {b}.v"),
)

#: Expressions that raise on NaN, infinities and the largest numbers.
RAISING_OWN = (
    "{a}.v + 1 > 0",
    "CAST({a}.x AS BIGINT) >= 0",
    "-{a}.v < 5",
    "{a}.v * 3 BETWEEN -9 AND 9",
    "{a}.v / 2 < 9",
)
RAISING_PAIRS = (
    "{a}.v < {b}.v + 1",
    "{a}.v + 1 = {b}.v",
    "CAST({a}.x AS BIGINT) = {b}.v",
    "{a}.v * {b}.v > 1",
    "ABS({a}.v - {b}.v) < 3",
    "{a}.v + {b}.v <> 2",
    "{a}.v IN ({b}.v + 1, {b}.v)",
    "{a}.v BETWEEN {b}.v - 1 AND {b}.v + {a}.v",
    "{a}.v BETWEEN {b}.v AND {a}.v * {b}.v",
    "{a}.v BETWEEN {b}.v AND {a}.v - {b}.v",
    "CASE WHEN {a}.v > 2 THEN {b}.v + 1 ELSE 0 END < 2",
    "({a}.v = {b}.v OR {a}.v + 1 > {b}.v)",
    "COALESCE({a}.v, {b}.v + 1) > 0",
    "CAST({a}.x * {b}.x AS BIGINT) < 3",
    "{a}.v / {b}.v >= 0",
)
RAISING_TRIPLES = ("{a}.v + {b}.v > {c}.v", "{a}.v * {b}.v <= {c}.v + 1")


def change_some_cases(case: QueryCase) -> QueryCase:
    """Change one case in three, in one of the ways above that raise nothing."""
    rng = Random(f"mixed {case.seed}")
    return rng.choice(CHANGES)(rng, case) if rng.random() < 0.33 else case


def make_raising(case: QueryCase) -> QueryCase:
    """Add the largest numbers and infinities to the values, and predicates that raise on them."""
    rng = Random(f"raising {case.seed}")
    tables = {name: _add_extreme_numbers(rng, table) for name, table in case.tables.items()}
    pieces = [_piece(rng, case, rng.choice(RAISING_OWN), 1) for _ in range(rng.choice((0, 0, 1, 2)))]
    if len(case.items) > 1:
        pieces += [_piece(rng, case, rng.choice(RAISING_PAIRS), 2) for _ in range(rng.choice((1, 1, 2)))]
    if len(case.items) > 2 and rng.random() < 0.4:
        pieces.append(_piece(rng, case, rng.choice(RAISING_TRIPLES), 3))
    remaining = tuple(piece for piece in case.predicates if rng.random() < 0.7)
    predicates = [*remaining, *pieces]
    rng.shuffle(predicates)
    select = (
        case.select
        if rng.random() < 0.6
        else (*case.select, QueryPiece(f"{case.items[0].alias}.v + 1 AS next_v", (case.items[0].alias,)))
    )
    return replace(case.with_tables(tables), predicates=tuple(predicates), select=select)


def _mix_sides(rng: Random, case: QueryCase) -> QueryCase:
    if len(case.items) < 2:
        return case
    triple = len(case.items) > 2 and rng.random() < 0.3
    piece = _piece(rng, case, rng.choice(MIXED_TRIPLES if triple else MIXED_SIDES), 3 if triple else 2)
    return replace(case, predicates=(*case.predicates, piece))


def _add_guarded_key(rng: Random, case: QueryCase) -> QueryCase:
    if len(case.items) < 2:
        return case
    a, b = rng.sample([item.alias for item in case.items], 2)
    own, key = rng.choice(GUARDED_KEYS)
    pieces = [
        QueryPiece(own.format(a=a), (a,), portable=False),
        QueryPiece(key.format(a=a, b=b), (a, b), portable=False),
    ]
    rng.shuffle(pieces)
    tables = case.tables
    if "CAST" in key:  # the guard has something to guard against
        (name,) = (item.name for item in case.items if item.alias == a)
        tables = tables | {name: _add_infinities(rng, tables[name])}
    return replace(case.with_tables(tables), predicates=(*case.predicates, *pieces))


def _sort_keys_into_bursts(rng: Random, case: QueryCase) -> QueryCase:
    """Order equal keys after one another in time, like devices that report in bursts."""
    tables = {}
    for name, table in case.tables.items():
        by_time = table.sort_by("ts")
        values = sorted(by_time.column("k").combine_chunks().to_pylist(), key=repr)
        kind = table.schema.field("k").type
        tables[name] = (
            by_time.set_column(by_time.column_names.index("k"), "k", build_array(values, kind))
            if _is_plain(kind)
            else table
        )
    return case.with_tables(tables)


CHANGES: tuple[Callable[[Random, QueryCase], QueryCase], ...] = (_mix_sides, _add_guarded_key, _sort_keys_into_bursts)


def _piece(rng: Random, case: QueryCase, text: str, count: int) -> QueryPiece:
    aliases = rng.sample([item.alias for item in case.items], count)
    names = dict(zip("abc", aliases, strict=False))
    return QueryPiece(text.format(**names, n=rng.randrange(1, 4)), tuple(aliases), portable=False)


def _add_extreme_numbers(rng: Random, table: pa.Table) -> pa.Table:
    numbers = [
        rng.choice((LARGEST, -LARGEST)) if rng.random() < 0.12 else value for value in table.column("v").to_pylist()
    ]
    wide = table.set_column(table.column_names.index("v"), "v", pa.array(numbers, pa.int64()))
    return _add_infinities(rng, wide)


def _add_infinities(rng: Random, table: pa.Table) -> pa.Table:
    values: list[Any] = [float("inf") if rng.random() < 0.1 else value for value in table.column("x").to_pylist()]
    return table.set_column(table.column_names.index("x"), "x", pa.array(values, pa.float64()))


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))
