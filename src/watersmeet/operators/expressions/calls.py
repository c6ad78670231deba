"""The scalar functions by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from watersmeet.algebra.expressions import Call
from watersmeet.errors import InternalError
from watersmeet.operators.expressions import arithmetic, conditional, strings, temporal
from watersmeet.operators.expressions.rows import Datum, EvaluationRows

FUNCTIONS: Mapping[str, Callable[[Call, EvaluationRows], Datum]] = {
    "ABS": arithmetic.evaluate_abs,
    "FLOOR": arithmetic.evaluate_floor,
    "CEIL": arithmetic.evaluate_ceil,
    "ROUND": arithmetic.evaluate_round,
    "SQRT": arithmetic.evaluate_sqrt,
    "LOWER": strings.evaluate_lower,
    "UPPER": strings.evaluate_upper,
    "LENGTH": strings.evaluate_length,
    "TRIM": strings.evaluate_trim,
    "LTRIM": strings.evaluate_ltrim,
    "RTRIM": strings.evaluate_rtrim,
    "SUBSTRING": strings.evaluate_substring,
    "CONCAT": strings.evaluate_concat,
    "REPLACE": strings.evaluate_replace,
    "STARTS_WITH": strings.evaluate_starts_with,
    "ENDS_WITH": strings.evaluate_ends_with,
    "CONTAINS": strings.evaluate_contains,
    "COALESCE": conditional.evaluate_coalesce,
    "NULLIF": conditional.evaluate_nullif,
    "GREATEST": conditional.evaluate_greatest,
    "LEAST": conditional.evaluate_least,
    "YEAR": temporal.evaluate_year,
    "MONTH": temporal.evaluate_month,
    "DAY": temporal.evaluate_day,
    "HOUR": temporal.evaluate_hour,
    "MINUTE": temporal.evaluate_minute,
    "SECOND": temporal.evaluate_second,
}


def evaluate_call(node: Call, rows: EvaluationRows) -> Datum:
    function = FUNCTIONS.get(node.name)
    if function is None:
        raise InternalError(f"no evaluator for the function {node.name}")
    return function(node, rows)
