"""Kinds of expression nodes by what they cost per row: a comparison of numbers takes a nanosecond, LIKE hundreds.

The planner charges for each kind (`planner.models.expression_costs`). The evaluator of AND and OR asks whether an
argument is worth skipping on rows that are already decided.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from watersmeet.algebra.arrow_types import is_text
from watersmeet.algebra.expressions import (
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expr,
    In,
    Like,
    Literal,
    children,
    walk,
)

#: Type of a column.
ColumnTypes = Callable[[Column], pa.DataType]

NUMBER, TEXT, MEMBER, PATTERN = "number", "text", "member", "pattern"
TEXT_CALL, TEXT_CAST, TIME_CALL, BRANCH = "text_call", "text_cast", "time_call", "branch"
NODE_KINDS = (NUMBER, TEXT, MEMBER, PATTERN, TEXT_CALL, TEXT_CAST, TIME_CALL, BRANCH)

#: Kinds that cost more per row than it costs to select the rows that need them.
COSTLY_KINDS = frozenset({PATTERN, TEXT_CALL, TEXT_CAST, TIME_CALL, BRANCH})

#: Functions that return text, and functions of other kinds than numbers.
_TEXT_FUNCTIONS = ("LOWER", "UPPER", "TRIM", "LTRIM", "RTRIM", "SUBSTRING", "CONCAT", "REPLACE")
_CALL_KINDS = {
    **dict.fromkeys(_TEXT_FUNCTIONS, TEXT_CALL),
    **dict.fromkeys(("LENGTH", "STARTS_WITH", "ENDS_WITH"), TEXT),
    "CONTAINS": PATTERN,
    **dict.fromkeys(("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DATE_TRUNC", "TIME_BUCKET"), TIME_CALL),
}
_KINDS: dict[type[Expr], str] = {Like: PATTERN, In: MEMBER, Case: BRANCH}


def list_node_kinds(expr: Expr, type_of: ColumnTypes) -> list[str]:
    """Return the kind of every node that does work; columns and constants do none.

    >>> x = Column("x", source="a")
    >>> list_node_kinds(Comparison("=", Call("LOWER", (x,)), Literal("b", pa.string())), lambda column: pa.string())
    ['text', 'text_call']
    """
    return [kind for node in walk(expr) if (kind := _classify(node, type_of)) is not None]


def is_costly(expr: Expr, type_of: ColumnTypes) -> bool:
    """Return whether it pays to evaluate the expression only on the rows that need it.

    >>> is_costly(Like(Column("x", source="a"), "%b%"), lambda column: pa.string())
    True
    """
    return any(kind in COSTLY_KINDS for kind in list_node_kinds(expr, type_of))


def _classify(node: Expr, type_of: ColumnTypes) -> str | None:
    if isinstance(node, Column | Literal):
        return None
    if isinstance(node, Call):
        return _CALL_KINDS.get(node.name, NUMBER)
    if isinstance(node, Cast):
        return TEXT_CAST if _returns_text(node, type_of) or _returns_text(node.arg, type_of) else NUMBER
    if isinstance(node, Comparison | Between):
        return TEXT if any(_returns_text(part, type_of) for part in children(node)) else NUMBER
    return _KINDS.get(type(node), NUMBER)


def _returns_text(expr: Expr, type_of: ColumnTypes) -> bool:
    match expr:
        case Column():
            return _is_text(type_of(expr))
        case Literal() | Cast():
            return _is_text(expr.type)
        case Call():
            return expr.name in _TEXT_FUNCTIONS or (
                _CALL_KINDS.get(expr.name, NUMBER) == NUMBER and any(_returns_text(part, type_of) for part in expr.args)
            )
        case Case():
            return any(_returns_text(result, type_of) for _, result in expr.branches)
        case _:
            return False


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind) or pa.types.is_dictionary(kind)
