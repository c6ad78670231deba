"""Costs of expressions by the kinds of their nodes: one predicate per kind, evaluated on a table of random values.

A predicate that needs a comparison around its node is charged without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.schema import StreamSchema
from watersmeet.calibration.measurement import measure_cpu
from watersmeet.operators.expressions import is_true
from watersmeet.operators.expressions.node_kinds import NUMBER, TEXT, list_node_kinds
from watersmeet.planner.models.expression_costs import ExpressionCosts
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

_TYPES: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us"),
    "n": pa.int64(),
    "x": pa.float64(),
    "word": pa.string(),
    "digits": pa.string(),
}
_FIELDS = pa.schema(_TYPES)
_WORDS = 20_000

#: A predicate of each kind. Those of numbers and text come first: the others contain their comparisons.
PREDICATES = {
    "number": "a.x * 2.0 > 0.5",
    "text": "a.word >= 'item-010000'",
    "member": "a.n IN (1, 2, 3, 4, 5)",
    "pattern": "a.word LIKE '%5-7%'",
    "text_call": "LOWER(a.word) = 'item-000001-1'",
    "text_cast": "CAST(a.digits AS BIGINT) > 5",
    "time_call": "HOUR(a.ts) = 3",
    "branch": "CASE WHEN a.n > 500 THEN a.x ELSE 0.0 END > 0.5",
}


def measure_expression_costs(repeats: int, *, quick: bool) -> ExpressionCosts:
    """Measure the seconds per row of each kind of node."""
    rows = 20_000 if quick else 100_000
    table = _generate_table(rows)
    weights: dict[str, float] = {}
    for kind, text in PREDICATES.items():
        bound = bind(parse(f"SELECT a.n FROM a [ROWS 1] WHERE {text}"), {"a": StreamSchema("a", _FIELDS, "ts")})
        assert bound.where is not None
        seconds = _measure_predicate(bound.where, table, rows, repeats)
        kinds = list_node_kinds(bound.where, lambda column: _TYPES[column.name])
        known_s = sum(weights[each] for each in kinds if each != kind and each in (NUMBER, TEXT))
        weights[kind] = max(0.0, seconds / rows - known_s) / kinds.count(kind)
    return ExpressionCosts(**{f"{kind}_s": weight for kind, weight in weights.items()})


def _measure_predicate(predicate: Expr, table: dict[str, pa.Array[Any]], rows: int, repeats: int) -> float:
    return measure_cpu(lambda: is_true(predicate, lambda column: table[column.name], rows), repeats).seconds


def _generate_table(rows: int) -> dict[str, pa.Array[Any]]:
    rng = np.random.default_rng(4)
    words = np.array([f"item-{number:06d}-{number % 97}" for number in range(_WORDS)])
    return {
        "ts": pa.array(np.arange(rows) * 1000, pa.timestamp("us")),
        "n": pa.array(rng.integers(0, 1000, rows)),
        "x": pa.array(rng.random(rows)),
        "word": pa.array(words[rng.integers(0, _WORDS, rows)]),
        "digits": pa.array(rng.integers(0, _WORDS, rows).astype(str)),
    }
