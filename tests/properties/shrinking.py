"""A failing case made small: one thing less at a time, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable

from tests.properties.generators.cases import QueryCase, smaller_cases
from watersmeet.errors import WatersmeetError


def shrink(case: QueryCase, fails: Callable[[QueryCase], bool], most_tries: int = 2_000) -> QueryCase:
    """Return the smallest failing case that greedy steps find. A case that no longer is a query does not count as
    failing.

    Tries are counted, not seconds, so that every machine finds the same case.
    """
    tries = iter(range(most_tries))
    smaller: QueryCase | None = case
    while smaller is not None:
        case = smaller
        candidates = zip(smaller_cases(case), tries, strict=False)
        smaller = next((candidate for candidate, _ in candidates if _still_fails(candidate, fails)), None)
    return case


def _still_fails(case: QueryCase, fails: Callable[[QueryCase], bool]) -> bool:
    try:
        _ = case.bound
    except WatersmeetError:
        return False
    return fails(case)
