"""Which expressions can raise on some row, so that only those are evaluated for their errors alone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from watersmeet.algebra.expressions import Arithmetic, Call, Cast, Column, Expr, Negate, walk
from watersmeet.operators.expressions.evaluator import evaluate
from watersmeet.operators.expressions.rows import Array


def may_raise(expr: Expr, no_rows: Callable[[Column], Array]) -> bool:
    """Return whether some row could make the expression raise; `no_rows` gives columns without rows, for their types.

    Comparisons and logic never raise, and neither does the arithmetic of floats. Casts and function calls are taken to.

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
