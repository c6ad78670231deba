"""AND, OR, NOT, CASE, COALESCE, NULLIF, GREATEST, LEAST: expressions that decide which other expressions count.

Law: an expression that no row reaches must not raise. CASE evaluates a branch only on the rows that take it. AND and
OR evaluate a cheap argument on all rows, and from the first costly one on each argument on the undecided rows only.
COALESCE tries all rows at once. Only if that raises, all of them evaluate each argument on the rows that reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import And, Call, Case, Expr, Not, Or
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.compare import compare
from watersmeet.operators.expressions.node_kinds import is_costly
from watersmeet.operators.expressions.rows import (
    Array,
    Bools,
    Datum,
    EvaluationRows,
    RowNumbers,
    broadcast,
    call_kernel,
    find_null_rows,
    find_true_rows,
)

#: Rows with a final value, and that value.
RowPiece = tuple[RowNumbers, Array]


def evaluate_and(node: And, rows: EvaluationRows) -> Datum:
    return _fold_with_fallback(
        node.args, rows, "and_kleene", lambda flags: find_true_rows(call_kernel("invert", flags))
    )


def evaluate_or(node: Or, rows: EvaluationRows) -> Datum:
    return _fold_with_fallback(node.args, rows, "or_kleene", find_true_rows)


def evaluate_not(node: Not, rows: EvaluationRows) -> Datum:
    return call_kernel("invert", rows.evaluate_datum(node.arg))


def evaluate_case(node: Case, rows: EvaluationRows) -> Datum:
    """Evaluate CASE: every row goes to its first true branch, and every branch sees only its own rows."""
    pieces: list[RowPiece] = []
    remaining = np.arange(rows.length)
    for condition, result in node.branches:
        taken = rows.select(remaining).evaluate_predicate(condition)
        pieces.append((remaining[taken], rows.select(remaining[taken]).evaluate_array(result)))
        remaining = remaining[~taken]
    otherwise = (
        pa.nulls(len(remaining)) if node.default is None else rows.select(remaining).evaluate_array(node.default)
    )
    return scatter([*pieces, (remaining, otherwise)])


def evaluate_coalesce(node: Call, rows: EvaluationRows) -> Datum:
    """Return the first argument that is not NULL."""
    try:
        return call_kernel("coalesce", *(rows.evaluate_datum(arg) for arg in node.args))
    except QueryError:
        return _coalesce_missing_rows(node.args, rows)


def evaluate_nullif(node: Call, rows: EvaluationRows) -> Datum:
    """Return NULL where the two arguments are equal, else the first."""
    first, second = (rows.evaluate_array(arg) for arg in node.args)
    same = find_true_rows(_as_array(compare("=", first, second)))
    return call_kernel("if_else", pa.array(same), pa.scalar(None, first.type), first)


def evaluate_greatest(node: Call, rows: EvaluationRows) -> Datum:
    return reduce(lambda best, other: _pick_better(best, other, "<"), (rows.evaluate_array(arg) for arg in node.args))


def evaluate_least(node: Call, rows: EvaluationRows) -> Datum:
    return reduce(lambda best, other: _pick_better(best, other, ">"), (rows.evaluate_array(arg) for arg in node.args))


def scatter(pieces: list[RowPiece]) -> Array:
    """Assemble one array from pieces that together cover the rows 0, 1, 2 and so on.

    >>> scatter([(np.array([2]), pa.array(["c"])), (np.array([0, 1]), pa.array(["a", "b"]))]).to_pylist()
    ['a', 'b', 'c']
    """
    kind = next((values.type for _, values in pieces if not pa.types.is_null(values.type)), pa.null())
    arrays = [values if values.type == kind else values.cast(kind) for _, values in pieces]
    order = np.concatenate([numbers for numbers, _ in pieces])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return pa.concat_arrays(arrays).take(place)


def _fold_with_fallback(
    args: tuple[Expr, ...], rows: EvaluationRows, kernel: str, decides: Callable[[Array], Bools]
) -> Datum:
    try:
        so_far = rows.evaluate_datum(args[0])
        for place, arg in enumerate(args[1:], start=1):
            if is_costly(arg, lambda column: rows.column(column).type):
                return _fold_undecided_rows(broadcast(so_far, rows.length), args[place:], rows, kernel, decides)
            so_far = call_kernel(kernel, so_far, rows.evaluate_datum(arg))
        return so_far
    except QueryError:
        return _fold_undecided_rows(rows.evaluate_array(args[0]), args[1:], rows, kernel, decides)


def _fold_undecided_rows(
    so_far: Array, args: tuple[Expr, ...], rows: EvaluationRows, kernel: str, decides: Callable[[Array], Bools]
) -> Array:
    """Fold from left to right, each argument on the undecided rows only; raise what a row that gets there raises."""
    pieces: list[RowPiece] = []
    remaining = np.arange(rows.length)
    for arg in args:
        decided = decides(so_far)
        pieces.append((remaining[decided], so_far.filter(pa.array(decided))))
        remaining, so_far = remaining[~decided], so_far.filter(pa.array(~decided))
        so_far = call_kernel(kernel, so_far, rows.select(remaining).evaluate_array(arg))
    return scatter([*pieces, (remaining, so_far)])


def _coalesce_missing_rows(args: tuple[Expr, ...], rows: EvaluationRows) -> Array:
    pieces: list[RowPiece] = []
    remaining = np.arange(rows.length)
    for arg in args:
        values = rows.select(remaining).evaluate_array(arg)
        missing = find_null_rows(values)
        pieces.append((remaining[~missing], values.filter(pa.array(~missing))))
        remaining = remaining[missing]
    return scatter([*pieces, (remaining, pa.nulls(len(remaining)))])


def _pick_better(best: Array, other: Array, op: str) -> Array:
    """Return the better of two values per row: `best op other` means that the other wins. NULL never wins."""
    replaced = call_kernel(
        "or", call_kernel("is_null", best), call_kernel("coalesce", compare(op, best, other), pa.scalar(False))
    )
    return call_kernel("if_else", replaced, other, best)


def _as_array(value: Datum) -> Array:
    assert isinstance(value, pa.Array)
    return value
