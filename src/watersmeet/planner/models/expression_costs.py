"""Cost of evaluating an expression: the sum over its nodes, by kind of node, as measured by calibration."""

from __future__ import annotations

from dataclasses import dataclass, fields

from watersmeet.algebra.expressions import Expr
from watersmeet.operators.expressions.node_kinds import ColumnTypes, list_node_kinds
from watersmeet.planner.models.checks import check_not_negative


@dataclass(frozen=True, slots=True)
class ExpressionCosts:
    """Seconds per row and node, by kind of node."""

    number_s: float = 0.0  # comparisons, arithmetic and functions of numbers
    text_s: float = 0.0  # comparisons of text
    member_s: float = 0.0  # IN
    pattern_s: float = 0.0  # LIKE and CONTAINS
    text_call_s: float = 0.0  # functions that return text
    text_cast_s: float = 0.0  # casts from and to text
    time_call_s: float = 0.0  # parts of an instant
    branch_s: float = 0.0  # CASE

    def __post_init__(self) -> None:
        for each in fields(self):
            check_not_negative(getattr(self, each.name), f"the weight {each.name} of an expression")

    def cost_s(self, expr: Expr, type_of: ColumnTypes) -> float:
        """Estimate the seconds per row that an expression takes.

        >>> import pyarrow as pa
        >>> from watersmeet.algebra.expressions import Column, Like
        >>> ExpressionCosts(pattern_s=2e-7).cost_s(Like(Column("x", source="a"), "%b%"), lambda column: pa.string())
        2e-07
        """
        return sum((self.kind_s(kind) for kind in list_node_kinds(expr, type_of)), 0.0)

    def kind_s(self, kind: str) -> float:
        """Return the weight of one kind of node."""
        weight: float = getattr(self, f"{kind}_s")
        return weight
