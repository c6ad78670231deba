"""Conjunctions of predicates under the rule for errors, and expressions that raise on some rows.

Law: a row fails a conjunction if any conjunct is false or NULL, whatever the others do. An error counts only on a row
that no conjunct rejects. So an error never depends on the order in which conjuncts are tested.

Everything is evaluated on all rows at once. Only if that raises, the rows are examined more closely: first without the
rows that other conjuncts reject, then by halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import Arithmetic, Call, Cast, Column, Expr, Negate, walk
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.evaluator import EVALUATORS, evaluate
from watersmeet.operators.expressions.rows import Array, Bools, EvaluationRows, RowNumbers

Columns = Callable[[Column], Array]
#: Evaluations that may raise before an early test stops searching for the failing rows and keeps the rest.
MAX_ERRORS = 64


@dataclass(frozen=True, slots=True)
class EarlyTest:
    """Rows that may still be results: all conjuncts are true, or some raise and none is known to fail.

    `raised` are the conjuncts that raised.
    """

    keep: Bools
    raised: tuple[Expr, ...]


def all_true(predicates: Sequence[Expr], columns: Columns, length: int) -> Bools:
    """Return the rows on which every predicate is true.

    Raise if one of them raises on a row that none rejects.

    >>> from watersmeet.algebra.expressions import Arithmetic, Comparison, Literal
    >>> x, zero = Column("x", source="a"), Literal(0, pa.int64())
    >>> squared = Comparison(">", Arithmetic("*", x, x), zero)
    >>> all_true((squared, Comparison("<", x, Literal(9, pa.int64()))), lambda column: pa.array([2, 2**40]), 2)
    array([ True, False])
    """
    keep = np.zeros(length, np.bool_)
    _ConjunctionTest(tuple(predicates), EvaluationRows(columns, length, EVALUATORS), keep, None).test_rows(
        np.arange(length)
    )
    return keep


def maybe_true(predicates: Sequence[Expr], columns: Columns, length: int) -> EarlyTest:
    """Return the rows that the predicates do not reject.

    Rows on which a predicate raises are kept: a later test decides about them.
    """
    keep = np.zeros(length, np.bool_)
    search = _ConjunctionTest(tuple(predicates), EvaluationRows(columns, length, EVALUATORS), keep, MAX_ERRORS)
    search.test_rows(np.arange(length))
    return EarlyTest(keep, tuple(search.raised))


def evaluate_or_null(expr: Expr, columns: Columns, length: int) -> tuple[Array, Bools]:
    """Return the values of an expression, NULL on rows where it raises, and those rows."""
    rows, errs = EvaluationRows(columns, length, EVALUATORS), np.zeros(length, np.bool_)
    try:
        return rows.evaluate_array(expr), errs
    except QueryError:
        pieces = list(_values_by_halves(expr, rows, np.arange(length), errs))
    kind = next((values.type for values in pieces if not pa.types.is_null(values.type)), pa.null())
    return pa.concat_arrays([values if values.type == kind else pa.nulls(len(values), kind) for values in pieces]), errs


def may_raise(expr: Expr, no_rows: Callable[[Column], Array]) -> bool:
    """Return whether some row could make the expression raise; `no_rows` returns columns without rows, for their types.

    Comparisons, logic and the arithmetic of floats never raise. Casts and function calls are assumed to raise.

    >>> x = Column("x", source="a")
    >>> may_raise(Arithmetic("+", x, x), lambda column: pa.array([], pa.int64()))
    True
    >>> may_raise(Arithmetic("+", x, x), lambda column: pa.array([], pa.float64()))
    False
    """
    return any(_node_may_raise(node, no_rows) for node in walk(expr))


def _node_may_raise(node: Expr, no_rows: Callable[[Column], Array]) -> bool:
    if isinstance(node, Arithmetic | Negate):
        return not pa.types.is_floating(evaluate(node, no_rows, 0).type)
    return isinstance(node, Cast | Call)


def _values_by_halves(expr: Expr, rows: EvaluationRows, numbers: RowNumbers, errs: Bools) -> list[Array]:
    try:
        return [rows.select(numbers).evaluate_array(expr)]
    except QueryError:
        if numbers.size == 1:
            errs[numbers] = True
            return [pa.nulls(1)]
        middle = numbers.size // 2
        halves = (numbers[:middle], numbers[middle:])
        return [values for half in halves for values in _values_by_halves(expr, rows, half, errs)]


@dataclass(slots=True)
class _ConjunctionTest:
    """A test of predicates on blocks of rows.

    With `errors_left` None, an error that counts is raised. Otherwise its block is kept.
    """

    predicates: tuple[Expr, ...]
    rows: EvaluationRows
    keep: Bools
    errors_left: int | None
    raised: dict[Expr, None] = field(default_factory=dict)

    def test_rows(self, numbers: RowNumbers) -> None:
        left, errors = self._reject(numbers)
        if not errors or not left.size:
            self.keep[left] = True
        elif self.errors_left is None and (len(errors) == 1 or left.size == 1):
            raise next(iter(errors.values()))  # no other conjunct rejects any of these rows
        elif left.size == 1 or (self.errors_left is not None and self.errors_left <= 0):
            self.raised |= dict.fromkeys(errors)
            self.keep[left] = True
        else:
            middle = left.size // 2
            self.test_rows(left[:middle])
            self.test_rows(left[middle:])

    def _reject(self, numbers: RowNumbers) -> tuple[RowNumbers, dict[Expr, QueryError]]:
        """Return the rows that no predicate is known to reject, and the predicates that still raise on them."""
        left, open_predicates = numbers, list(self.predicates)
        while True:
            errors: dict[Expr, QueryError] = {}
            before = left.size
            for predicate in open_predicates:
                if not left.size:
                    break
                try:
                    holds = self.rows.select(left).evaluate_predicate(predicate)
                except QueryError as error:
                    errors[predicate] = error
                    self.errors_left = None if self.errors_left is None else self.errors_left - 1
                else:
                    left = left if holds.all() else left[holds]
            if not errors or left.size == before or not left.size:
                return left, errors
            open_predicates = list(errors)  # the others are true on all remaining rows
