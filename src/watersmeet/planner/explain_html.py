"""An explanation for a notebook: the verdict first, then what each operator costs, what is known of the streams, the
plans that lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from watersmeet.algebra.html import code, paragraph, table

_HTML_PLANS = 10


def explanation_html(facts: Mapping[str, Any]) -> str:
    """The page of `Explanation.to_dict()`."""
    return f"<div>{''.join(_html_parts(facts))}</div>"


def _html_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    cost = facts["cost"]
    yield code(facts["query"])
    verdict = "it keeps up" if facts["feasible"] else f"it cannot keep up: {facts['reason']}"
    yield paragraph(f"plan {_plan_name(facts['plan'])}: {verdict}", strong=True)
    yield paragraph(
        f"{facts['utilisation']:.1%} of the processors, {cost['state_rows']:,.0f} rows of state in {cost['state_bytes'] / 1e6:,.1f} MB, "
        f"{cost['rows_out_per_s']:,.6g} rows out per second"
    )
    operators = [(each["name"], f"{each['cpu_per_s']:.3g}", f"{each['rows_per_s']:,.6g}") for each in cost["operators"]]
    yield table(("operator", "CPU s per s", "rows per s"), operators, "predicted cost")
    yield table(("source", "window", "rows per s", "rows held"), [_input_row(each) for each in facts["inputs"]], "streams")
    if facts["alternatives"]:
        yield table(("plan", "CPU s per s", "times as much"), _losing_plans(facts), "plans that lost")


def _input_row(each: Mapping[str, Any]) -> tuple[str, str, str, str]:
    window = f"[{each['window']}]" if each["window"] else each["keeps"]
    return each["alias"], window, _html_estimate(each["rows_per_s"]), _estimate_text(each["held_rows"])


def _html_estimate(estimate: Mapping[str, Any]) -> str:
    return f"{estimate['value']:,.6g} ({estimate['provenance']})"


def _losing_plans(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    best = facts["cost"]["cpu_per_s"]
    for each in facts["alternatives"][:_HTML_PLANS]:
        cpu = each["cost"]["cpu_per_s"]
        yield _plan_name(each["plan"]), f"{cpu:.3g}", f"{cpu / best:,.2f}" if best else ""


def _plan_name(plan: Mapping[str, Any]) -> str:
    indexes = ", ".join(f"{alias} {index}" for alias, index in plan["indexes"].items())
    return f"{plan['algorithm']} ({indexes})" if indexes else plan["algorithm"]
