"""A failing case made small: one thing less at a time, as long as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable

from watersmeet.errors import WatersmeetError

from .cases import Case, smaller_cases


def shrink(case: Case, fails: Callable[[Case], bool], budget_s: float = 20.0) -> Case:
    """The smallest failing case that greedy steps find within the budget. A case that no longer is a query does not count as failing."""
    until = time.monotonic() + budget_s
    smaller: Case | None = case
    while smaller is not None:
        case = smaller
        smaller = next(
            (candidate for candidate in smaller_cases(case) if time.monotonic() < until and _still_fails(candidate, fails)), None
        )
    return case


def _still_fails(case: Case, fails: Callable[[Case], bool]) -> bool:
    try:
        _ = case.bound
    except WatersmeetError:
        return False
    return fails(case)
