"""Selectivity: the share of rows, or of combinations of rows, that pass a predicate.

Columns are assumed independent, values equally frequent, and the values of one side of an equality contained in the
other's. Nulls pass no test except IS NULL, and `NOT` is the complement. Equalities that follow from others (a = b, b =
c, a = c) are multiplied like any. A caller with equivalence classes should pass only the equalities that connect them.

References: Selinger et al., "Access Path Selection in a Relational Database Management System", 1979, table 1.
The rules are 1/v, 1/max(v, v), 1/3, 1/4, 1/10 without statistics, products for AND, inclusion and exclusion for OR.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.expressions import (
    And,
    Between,
    Cast,
    Column,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    columns_of,
)
from watersmeet.errors import InputError
from watersmeet.stats.stream_stats import Estimate, Provenance, assume, derive

#: Statistic of a column, or None if there is none.
Lookup = Callable[[Column], Estimate | None]

_EQUALITY = assume(1 / 10, "an equality with no statistics")
_RANGE = assume(1 / 3, "a range with no statistics of the values in it")
_BETWEEN = assume(1 / 4, "BETWEEN with no statistics of the values in it")
_LIKE = assume(1 / 10, "LIKE with no statistics of the text")
_NULL = assume(1 / 10, "IS NULL with no statistics of nulls")
_TRUTH = assume(1 / 2, "a truth value with no statistics")
_NEVER = Estimate(0, Provenance.DERIVED, "NULL passes no predicate")
_ANY = assume(1 / 3, "a predicate without a rule")

_UNESCAPED_WILDCARD = re.compile(r"(?:[^\\%_]|\\.)*[%_]", re.DOTALL)


def estimate_selectivity(predicate: Expr, distinct: Lookup, null_share: Lookup = lambda column: None) -> Estimate:
    """Estimate the share that passes a bound predicate, from the distinct values and the share of nulls of each column.

    >>> values = {"item": Estimate(500, Provenance.MEASURED), "store": Estimate(50, Provenance.DECLARED)}
    >>> same = Comparison("=", Column("item", "a"), Column("store", "b"))
    >>> print(estimate_selectivity(same, lambda column: values.get(column.name)))
    0.002 (derived)

    """
    return _Estimator(distinct, null_share).share(predicate)


def measure_selectivity(mask: NDArray[np.bool_] | pa.BooleanArray | pa.ChunkedArray[Any]) -> Estimate:
    """Measure the share of a sample that passed; a null did not pass.

    If none of n passed, return 1/(n + 2) by the rule of succession: rare, not impossible.

    >>> print(measure_selectivity(np.array([True, False, False, False])))
    0.25 (measured)

    """
    passed, rows = _count_passed(mask)
    if not rows:
        return assume(_ANY.value, "a predicate on a sample of no rows")
    if not passed:
        return Estimate(1 / (rows + 2), Provenance.MEASURED, f"none of {rows} rows passed")
    return Estimate(passed / rows, Provenance.MEASURED, f"{passed} of {rows} rows passed")


@dataclass(frozen=True, slots=True)
class _Estimator:
    distinct: Lookup
    null_share: Lookup

    def share(self, expr: Expr) -> Estimate:
        rule = _RULES.get(type(expr))
        return _ANY if rule is None else rule(self, expr)

    def literal(self, expr: Literal) -> Estimate:
        return Estimate(1, Provenance.DERIVED, "always true") if expr.value is True else _NEVER

    def conjunction(self, expr: And) -> Estimate:
        parts = [self.share(arg) for arg in expr.args]
        return derive(math.prod(part.value for part in parts), *parts, note="the product of the parts of AND")

    def disjunction(self, expr: Or) -> Estimate:
        parts = [self.share(arg) for arg in expr.args]
        return derive(
            1 - math.prod(1 - part.value for part in parts), *parts, note="inclusion and exclusion over the parts of OR"
        )

    def complement(self, expr: Not) -> Estimate:
        return _complement(self.share(expr.arg))

    def comparison(self, expr: Comparison) -> Estimate:
        if _is_null(expr.left) or _is_null(expr.right):
            return _NEVER
        if expr.op not in {"=", "<>"}:
            return _RANGE
        equal = self._equality(expr.left, expr.right)
        return equal if expr.op == "=" else _complement(equal)

    def membership(self, expr: In) -> Estimate:
        options = {option for option in expr.options if not _is_null(option)}
        one = self._equality_with_constant(expr.arg)
        return derive(min(1.0, len(options) * one.value), one, note=f"IN of {len(options)} values")

    def pattern(self, expr: Like) -> Estimate:
        return _LIKE if _UNESCAPED_WILDCARD.match(expr.pattern) else self._equality_with_constant(expr.arg)

    def nulls(self, expr: IsNull) -> Estimate:
        subject = _subject(expr.arg)
        known = self.null_share(subject) if isinstance(subject, Column) else None
        return _NULL if known is None else derive(known.value, known, note="the column's share of nulls")

    def _equality(self, left: Expr, right: Expr) -> Estimate:
        """Estimate an equality by containment.

        Each value of the side with fewer values occurs on the other side, in a share 1/max(v1, v2) of all pairs.
        """
        if left == right:
            return Estimate(1, Provenance.DERIVED, "both sides are the same")
        counts = [self._values(side) for side in (left, right) if columns_of(side)]
        known = [count for count in counts if count is not None]
        if not counts or len(known) < len(counts):
            return _EQUALITY
        return derive(1 / max(count.value for count in known), *known, note="1 / the larger number of distinct values")

    def _equality_with_constant(self, arg: Expr) -> Estimate:
        count = self._values(arg)
        return _EQUALITY if count is None else derive(1 / count.value, count, note="1 / the number of distinct values")

    def _values(self, side: Expr) -> Estimate | None:
        """Return the distinct values of a column, or of an expression over one column, assumed to have as many."""
        subject = _subject(side)
        columns = columns_of(subject)
        if len(columns) != 1 or (count := self.distinct(columns[0])) is None:
            return None
        if count.value < 1:
            raise InputError(f'column "{columns[0].name}" cannot have {count.value:g} distinct values')
        return count if subject == columns[0] else assume(count.value, f'as many values as column "{columns[0].name}"')


_RULES: dict[type[Expr], Callable[[_Estimator, Any], Estimate]] = {
    Literal: _Estimator.literal,
    Column: lambda estimator, expr: _TRUTH,
    Cast: lambda estimator, expr: estimator.share(expr.arg),
    And: _Estimator.conjunction,
    Or: _Estimator.disjunction,
    Not: _Estimator.complement,
    Comparison: _Estimator.comparison,
    In: _Estimator.membership,
    Between: lambda estimator, expr: _BETWEEN,
    Like: _Estimator.pattern,
    IsNull: _Estimator.nulls,
}


def _complement(share: Estimate) -> Estimate:
    return derive(1 - share.value, share, note="the complement")


def _subject(expr: Expr) -> Expr:
    """Return the expression below casts and minus signs, which map distinct values to distinct values."""
    while isinstance(expr, Cast | Negate):
        expr = expr.arg
    return expr


def _is_null(expr: Expr) -> bool:
    subject = _subject(expr)
    return isinstance(subject, Literal) and subject.value is None


def _count_passed(mask: Any) -> tuple[int, int]:
    if isinstance(mask, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(mask.type):
        return pc.sum(mask).as_py() or 0, len(mask)
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.ndim == 1:
        return int(np.count_nonzero(mask)), len(mask)
    raise InputError("a sampled predicate must be an array of booleans")
