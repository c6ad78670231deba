"""A paper's claim next to our result, and the verdict: holds, holds with a difference, does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from watersmeet.errors import InternalError

Kind = Literal["exact", "shape"]
Value: TypeAlias = "str | float | tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's claim and our result.

    `difference` names what differs from the paper, or the reason why the claim does not hold. An exact claim is a
    number that must agree to the digits the paper prints; a shape claim is an order, a ratio or a crossing.

    >>> Claim("t.1", "shape", "A beats B", "by half", "by a third", True, "less than half").verdict
    'holds with a difference'
    """

    id: str
    kind: Kind
    statement: str
    paper: Value
    ours: Value
    holds: bool
    difference: str = ""

    def __post_init__(self) -> None:
        if not self.id or not self.statement:
            raise InternalError("a claim needs a name and a statement")
        if not self.holds and not self.difference:
            raise InternalError(f"claim {self.id} does not hold and has no reason")

    @property
    def verdict(self) -> str:
        if not self.holds:
            return "does not hold"
        return "holds with a difference" if self.difference else "holds"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "id": self.id,
            "kind": self.kind,
            "statement": self.statement,
            "paper": _to_plain_values(self.paper),
            "ours": _to_plain_values(self.ours),
            "holds": self.holds,
            "verdict": self.verdict,
            "difference": self.difference,
        }


def exact_claim(
    name: str, statement: str, paper: float | Sequence[float], ours: float | Sequence[float], digits: int = 0
) -> Claim:
    """Return the claim that our numbers, rounded to the paper's digits, equal the paper's.

    >>> exact_claim("t.2", "the cost of a plan", paper=47976.9, ours=47976.923, digits=1).holds
    True
    """
    printed = _round_value(paper, digits)
    found = _round_value(ours, digits)
    holds = printed == found
    return Claim(
        name, "exact", statement, printed, found, holds, "" if holds else "the cost model gives another number"
    )


def words_claim(name: str, statement: str, paper: Value, ours: Value) -> Claim:
    """Return an exact claim about something other than a number: an order, a set of plans."""
    holds = paper == ours
    return Claim(name, "exact", statement, paper, ours, holds, "" if holds else "the cost model gives another answer")


def shape_claim(
    name: str,
    statement: str,
    paper: Value,
    ours: Value,
    *,
    holds: bool,
    difference: str = "",
    reason: str = "see the measurements",
) -> Claim:
    """Return a claim decided by measurement; `difference` applies if it holds, `reason` if it does not."""
    return Claim(name, "shape", statement, paper, ours, holds, difference if holds else reason)


def _round_value(value: float | Sequence[float], digits: int) -> Value:
    if isinstance(value, Sequence):
        return tuple(_round_value(each, digits) for each in value)
    return float(round(value, digits)) if digits else round(value)


def _to_plain_values(value: Value) -> Any:
    return [_to_plain_values(each) for each in value] if isinstance(value, tuple) else value
