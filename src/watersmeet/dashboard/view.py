"""An explanation as the page wants it: the verdict, the picture, and the plans that lost with how much more they cost."""

from __future__ import annotations

import math
from typing import Any

from watersmeet.dashboard.picture import picture
from watersmeet.dashboard.words import plan_words
from watersmeet.planner.explain import Explanation

#: Plans that lost and are listed; the rest is counted.
LISTED = 12


def view(about: Explanation) -> dict[str, Any]:
    """Everything of an explanation the page shows, as plain values."""
    facts = about.to_dict()
    cost = facts["cost"]
    shown: dict[str, Any] = finite(
        {
            "query": facts["query"],
            "plan": plan_words(about.plan),
            "feasible": facts["feasible"],
            "reason": facts["reason"],
            "utilisation": facts["utilisation"],
            "processors": about.budget.processors,
            "cpu_per_s": cost["cpu_per_s"],
            "state_rows": cost["state_rows"],
            "state_bytes": cost["state_bytes"],
            "rows_out_per_s": cost["rows_out_per_s"],
            "drop": _drop(about),
            "remedies": list(about.remedies.sentences()) if about.remedies is not None else [],
            "orders": [" → ".join([origin, *order]) for origin, order in facts["orders"].items() if order],
            "waits_for_watermark": facts["waits_for_watermark"],
            "weights": f"{about.profile.name}{f', {about.profile.source}' if about.profile.source else ''}",
            "cards": [card.to_dict() for card in picture(facts)],
            "losers": _losers(about),
            "losers_left_out": max(0, len(about.others) - LISTED),
        }
    )
    return shown


def finite(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not have.

    >>> finite({"a": [1.0, float("inf")]})
    {'a': [1.0, None]}
    """
    match value:
        case dict():
            return {key: finite(each) for key, each in value.items()}
        case list():
            return [finite(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _drop(about: Explanation) -> dict[str, float]:
    """The share of each stream to drop: as the plan says, or as would keep most of the answer where it cannot keep up."""
    found = about.remedies.approximation if about.remedies is not None else None
    shares = about.plan.drop if found is None else tuple((name, 1 - share) for name, share in found.keep)
    return {name: share for name, share in shares if share > 0}


def _losers(about: Explanation) -> list[dict[str, Any]]:
    best = about.chosen.cost.cpu_per_s
    return [
        {
            "plan": plan_words(each.plan),
            "cpu_per_s": each.cost.cpu_per_s,
            "state_bytes": each.cost.state_bytes,
            "times": each.cost.cpu_per_s / best if best else None,
            "feasible": about.budget.shortfall(each.cost) is None,
        }
        for each in about.others[:LISTED]
    ]
