"""Generated range queries: every plan gives the oracle's rows, or stops with an error where the oracle does.

Values include nulls, NaN, infinities, both zeros, wide decimals, dates, and the edges of int64. WATERSMEET_SEED moves
the whole run to other seeds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.properties.engine import add_failure_note, collect, expected_rows
from tests.properties.generators.cases import FromItem, QueryCase, QueryPiece, SourceData
from tests.properties.generators.random_plans import random_plans
from tests.properties.test_against_the_oracle import FIRST_SEED
from tests.properties.test_query_errors import rows_or_error
from tests.volume import VOLUME, scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.errors import QueryError
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.tactics.sorted_ranges import list_range_conditions

CHUNKS = 10
#: `make test-long` checks 5,000 queries, `make test` a few.
SEEDS_PER_CHUNK = scale_volume(25) if VOLUME > 1 else 4
PLANNED_SEEDS_PER_CHUNK = scale_volume(1)

_EDGES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
_FLOATS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.1, 0.2, 0.3, 1e308, -1e308, 5e-324]


@dataclass(frozen=True)
class RangeKind:
    """A type of values: how to draw one, and the constants that predicates add."""

    kind: pa.DataType
    draw: Callable[[Random], Any]
    constants: tuple[str, ...]


KINDS = (
    RangeKind(pa.int64(), lambda rng: rng.randrange(-20, 20), ("0", "3", "-2")),
    RangeKind(pa.int64(), lambda rng: rng.choice(_EDGES), ("0", "1", "9223372036854775807")),
    RangeKind(pa.int32(), lambda rng: rng.randrange(-9, 9), ("2", "-1")),
    RangeKind(pa.float64(), lambda rng: rng.choice(_FLOATS), ("0.1", "1.5", "0.0")),
    RangeKind(pa.float64(), lambda rng: rng.random(), ("0.1", "0.01")),
    RangeKind(pa.float32(), lambda rng: rng.choice(_FLOATS[:8]), ("0.1", "0.2")),
    RangeKind(pa.decimal128(10, 2), lambda rng: Decimal(rng.randrange(-500, 500)) / 100, ("1.25", "0.5", "2")),
    RangeKind(pa.decimal128(30, 1), lambda rng: Decimal(rng.choice([10**24, -(10**24), 3, 4])), ("1", "0.5")),
    RangeKind(pa.date32(), lambda rng: dt.date(2024, 1, 1) + dt.timedelta(rng.randrange(20)), ("INTERVAL '2' DAY",)),
    RangeKind(
        pa.timestamp("us"),
        lambda rng: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=rng.randrange(40)),
        ("INTERVAL '3' SECOND", "INTERVAL '0' SECOND"),
    ),
)

_FORMS = (
    "{a}.x >= {b}.x - {c} AND {a}.x <= {b}.x + {c}",
    "{a}.x BETWEEN {b}.x - {c} AND {b}.x + {c}",
    "{a}.x < {b}.x + {c}",
    "{b}.x - {c} > {a}.x",
    "{a}.x - {b}.x <= {c}",
    "{a}.x - {b}.x > {c}",
    "{a}.x - {b}.x BETWEEN {b}.y - {b}.y AND {c}",
    "{a}.x < {b}.x AND {a}.y > {b}.y",
    "{a}.x <= {b}.y AND {b}.x <= {a}.y",
    "{a}.x < {b}.x AND {b}.x < {a}.y",
    "{a}.k = {b}.k AND {a}.x <= {b}.x AND {a}.y >= {b}.x",
)
#: Forms that not every type has: times have no absolute value and no sum.
_NUMBER_FORMS = (
    "ABS({a}.x - {b}.x) <= {c}",
    "ABS({a}.x - {b}.x) < {c}",
    "{c} >= ABS({b}.x - {a}.x)",
    "{a}.x + {b}.x < {c}",
    "{a}.k * {b}.k - {a}.k <= 1 AND {a}.x <= {b}.x",
    "-{a}.x + {b}.x >= {c}",
    "{a}.k = {b}.k AND ABS({a}.x - {b}.x) <= {c} AND {a}.y <> {b}.y",
)
_WINDOWS = ("[RANGE 20 SECONDS]", "[RANGE 5 SECONDS]", "[ROWS 30]", "[LANDMARK]")


def generate_range_case(seed: int) -> QueryCase:
    """Return a query of two or three sources with a range between each pair of neighbours."""
    rng = Random(seed)
    values = rng.choice(KINDS)
    names = "abc"[: rng.choice([2, 2, 3])]
    rows = rng.choice([8, 30, 90]) if len(names) == 2 else rng.choice([6, 12])
    sources = tuple(SourceData(name, _random_table(rng, values, rows), "ts", "us") for name in names)
    predicates = []
    for left, right in pairwise(names):
        forms = _FORMS if pa.types.is_temporal(values.kind) else (*_FORMS, *_NUMBER_FORMS)
        text = rng.choice(forms).format(a=left, b=right, c=rng.choice(values.constants))
        predicates.append(QueryPiece(text, (left, right)))
    return QueryCase(
        seed,
        sources,
        tuple(FromItem(name, name, rng.choice(_WINDOWS)) for name in names),
        tuple(QueryPiece(f"{name}.id AS {name}_id", (name,)) for name in names),
        tuple(predicates),
    )


def _random_table(rng: Random, values: RangeKind, rows: int) -> pa.Table:
    def column() -> pa.Array[Any]:
        return pa.array([None if rng.random() < 0.1 else values.draw(rng) for _ in range(rows)], values.kind)

    times = sorted(rng.randrange(60_000_000) for _ in range(rows))
    return pa.table(
        {
            "ts": times,
            "id": list(range(rows)),
            "k": [rng.randrange(3) for _ in range(rows)],
            "x": column(),
            "y": column(),
        }
    )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_sorted_ranges_give_the_oracles_rows(chunk: int) -> None:
    for seed in _seeds(chunk, SEEDS_PER_CHUNK):
        case = _bindable(seed)
        if case is not None and _is_range(case):
            _check(case, Plan("sorted-ranges"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_plan_of_a_range_query_gives_the_oracles_rows(chunk: int) -> None:
    for seed in _seeds(chunk, PLANNED_SEEDS_PER_CHUNK):
        case = _bindable(seed)
        if case is not None:
            for plan in random_plans(Random(seed), case):
                _check(case, plan)


def test_most_generated_queries_are_ranges() -> None:
    cases = [case for case in map(_bindable, range(200)) if case is not None]
    assert len(cases) > 150
    assert sum(map(_is_range, cases)) > 0.9 * len(cases)


def _seeds(chunk: int, count: int) -> range:
    return range(FIRST_SEED + chunk * count, FIRST_SEED + (chunk + 1) * count)


def _bindable(seed: int) -> QueryCase | None:
    """Return the case, or None if its predicates are not defined for its type."""
    case = generate_range_case(seed)
    try:
        return case if case.bound else None
    except QueryError:
        return None


def _is_range(case: QueryCase) -> bool:
    return bool(list_range_conditions(compile_join_config(case.bound, Plan("sorted-ranges"))))


def _check(case: QueryCase, plan: Plan) -> None:
    with add_failure_note(f"{plan} on {case}"):
        expected = rows_or_error(lambda: expected_rows(case))
        found = rows_or_error(lambda: collect(case, plan).rows)
        assert found == expected
