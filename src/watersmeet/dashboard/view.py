"""Values that the page shows: the explanation of a plan, and the live state of a run.

The plan is drawn as cards: one per input, one per origin that probes, and one for the rows out. Every operator of the
predicted cost is on exactly one card. Measured times are found by the operator names in `BatchMetrics`. The live state
has the metrics of recent batches, totals, and the log of plan changes. Either host feeds it from its own thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from watersmeet.algebra.plan import Plan, describe_plan
from watersmeet.metrics import BatchMetrics
from watersmeet.planner.explain import Explanation, describe_profile
from watersmeet.planner.live_report import LiveReport, Verdict
from watersmeet.planner.probe_orders import describe_order
from watersmeet.units import format_count, format_rate

#: Plans that lost in the list; the rest are only counted.
MAX_LOSING_PLANS = 12
#: Batches kept for the charts; totals count all of them.
MAX_BATCHES = 2_000
_MAX_CHANGES = 200


def build_view(explanation: Explanation) -> dict[str, Any]:
    """Return everything that the page shows of an explanation, as plain values."""
    facts = explanation.to_dict()
    cost = facts["cost"]
    shown: dict[str, Any] = replace_non_finite(
        {
            "query": facts["query"],
            "plan": describe_plan(explanation.plan),
            "feasible": facts["feasible"],
            "reason": facts["reason"],
            "utilisation": facts["utilisation"],
            "processors": explanation.budget.processors,
            "cpu_per_s": cost["cpu_per_s"],
            "state_rows": cost["state_rows"],
            "state_bytes": cost["state_bytes"],
            "rows_out_per_s": cost["rows_out_per_s"],
            "drop": _shed_shares(explanation),
            "remedies": list(explanation.remedies.describe()) if explanation.remedies is not None else [],
            "orders": [describe_order(origin, order) for origin, order in facts["orders"].items() if order],
            "waits_for_watermark": facts["waits_for_watermark"],
            "weights": describe_profile(explanation.profile),
            "cards": [card.to_dict() for card in build_cards(facts)],
            "losers": _list_losing_plans(explanation),
            "losers_left_out": max(0, len(explanation.others) - MAX_LOSING_PLANS),
        }
    )
    return shown


def replace_non_finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None.

    >>> replace_non_finite({"a": [1.0, float("inf")]})
    {'a': [1.0, None]}
    """
    match value:
        case dict():
            return {key: replace_non_finite(each) for key, each in value.items()}
        case list():
            return [replace_non_finite(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _shed_shares(explanation: Explanation) -> dict[str, float]:
    """Return the share of each stream to shed: of the plan, or, if it cannot keep up, of the recommended remedy."""
    remedy = explanation.remedies.approximation if explanation.remedies is not None else None
    shares = explanation.plan.drop if remedy is None else tuple((name, 1 - share) for name, share in remedy.keep)
    return {name: share for name, share in shares if share > 0}


def _list_losing_plans(explanation: Explanation) -> list[dict[str, Any]]:
    best = explanation.chosen.cost.cpu_per_s
    return [
        {
            "plan": describe_plan(each.plan),
            "cpu_per_s": each.cost.cpu_per_s,
            "state_bytes": each.cost.state_bytes,
            "times": each.cost.cpu_per_s / best if best else None,
            "feasible": explanation.budget.shortfall(each.cost) is None,
        }
        for each in explanation.others[:MAX_LOSING_PLANS]
    ]


#: Operators on the card of an input, by name and by prefix.
_INPUT_OPERATORS = ("ingest {}", "count {}", "select {}", "lay out {}")
_STORE_PREFIX = "store {} as "

#: Work per batch that is measured with the probes, so the probe cards share it.
_SHARED_PROBE_OPERATORS = ("batches of probes", "batches of loops")


#: Names of operators with their predicted CPU seconds per second.
Operators = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Card:
    """Box in the drawing of a plan: its column, its predecessors and its cost."""

    key: str
    column: int
    title: str
    lines: tuple[str, ...]
    after: tuple[str, ...]
    predicted_s: float
    measured: tuple[str, ...]
    operators: Operators

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "column": self.column,
            "title": self.title,
            "lines": list(self.lines),
            "after": list(self.after),
            "predicted_s": self.predicted_s,
            "measured": list(self.measured),
            "operators": [{"name": name, "predicted_s": seconds} for name, seconds in self.operators],
        }


def build_cards(facts: Mapping[str, Any]) -> list[Card]:
    """Build the cards of an explanation (`Explanation.to_dict()`), inputs first, rows out last."""
    left = {part["name"]: float(part["cpu_per_s"]) for part in facts["cost"]["operators"]}
    inputs = [_build_input_card(each, left) for each in facts["inputs"]]
    origins = {alias: order for alias, order in facts["orders"].items() if order or f"probe {alias}" in left}
    shared = tuple(
        (name, seconds / max(1, len(origins)))
        for name, seconds in _take_operators(left, lambda name: name in _SHARED_PROBE_OPERATORS)
    )
    probes = [_build_probe_card(alias, order, left, shared) for alias, order in origins.items()]
    out_operators = _take_operators(left, lambda name: name == "emit")
    others = [_build_other_card(name, seconds, inputs) for name, seconds in left.items()]
    after = tuple(card.key for card in (*probes, *others) if card.after) or tuple(card.key for card in inputs)
    rows_out = facts["cost"]["rows_out_per_s"]
    out = _build_card("out", 2, "rows out", (format_rate(rows_out),), after, out_operators, ("emit",))
    return [*inputs, *probes, *others, out]


def _build_input_card(each: Mapping[str, Any], left: dict[str, float]) -> Card:
    alias, name = each["alias"], each["source"]
    mine = {*(each.format(alias) for each in _INPUT_OPERATORS), f"shed from {name}", f"shed from {alias}"}
    operators = _take_operators(
        left, lambda operator: operator in mine or operator.startswith(_STORE_PREFIX.format(alias))
    )
    rate, held = each["rows_per_s"], each["held_rows"]
    lines = (
        f"[{each['window']}]" if each["window"] else f"keeps {each['keeps']}",
        f"{format_rate(rate['value'])}, {rate['provenance']}",
        f"{format_count(held['value'])} rows stored, {held['provenance']}",
    )
    measured = (f"ingest {alias}", f"store {alias}")
    return _build_card(
        f"input {alias}", 0, alias if alias == name else f"{name} as {alias}", lines, (), operators, measured
    )


def _build_probe_card(alias: str, order: list[str], left: dict[str, float], shared: Operators) -> Card:
    operators = shared + _take_operators(
        left, lambda name: name == f"probe {alias}" or name.startswith((f"probe {alias} → ", f"probe {alias}: "))
    )
    lines = (describe_order(alias, order),)
    after = tuple(f"input {each}" for each in dict.fromkeys((alias, *order)))
    return _build_card(f"probe {alias}", 1, f"new row of {alias}", lines, after, operators, (f"probe {alias}",))


def _build_other_card(name: str, seconds: float, inputs: list[Card]) -> Card:
    if name == "batches":  # no rows flow through it
        return _build_card("other batches", 1, "every batch", (), (), ((name, seconds),), (name,))
    return _build_card(f"other {name}", 1, name, (), tuple(card.key for card in inputs), ((name, seconds),), (name,))


def _build_card(
    key: str,
    column: int,
    title: str,
    lines: tuple[str, ...],
    after: tuple[str, ...],
    operators: Operators,
    measured: tuple[str, ...],
) -> Card:
    return Card(key, column, title, lines, after, sum(seconds for _, seconds in operators), measured, operators)


def _take_operators(left: dict[str, float], belongs: Callable[[str], bool]) -> Operators:
    """Remove the operators of a card from those that are left, and return them."""
    names = [name for name in left if belongs(name)]
    return tuple((name, left.pop(name)) for name in names)


@dataclass
class LiveRun:
    """Metrics of a run. A host calls `observe` after each batch, from any thread; the page calls `since`."""

    recent: deque[BatchMetrics] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES))
    changes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MAX_CHANGES))
    status: str = "waiting"
    seen: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    shed: int = 0
    report: LiveReport | None = None
    _plan: Plan | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def observe(self, metrics: BatchMetrics, report: LiveReport | None = None) -> None:
        """Add the metrics of a batch and the report on the run after it; log a change of the plan or of the verdict."""
        with self._lock:
            if report is not None:
                before = Verdict.UNKNOWN if self.report is None else self.report.verdict
                if report.verdict is not before:
                    self._note(metrics.batch, report.sentence)
                self.report = report
            if self._plan is not None and metrics.plan != self._plan:
                self._note(metrics.batch, _describe_plan_change(self._plan, metrics.plan))
            elif self._plan is None:
                self._note(metrics.batch, f"started with {describe_plan(metrics.plan)}")
            self._plan = metrics.plan
            self.recent.append(metrics)
            self.seen += 1
            self.rows_in += sum(metrics.rows_in.values())
            self.rows_out += metrics.rows_out
            self.late += sum(metrics.late.values())
            self.shed += sum(metrics.shed.values())
            self.status = "running"

    def note(self, text: str) -> None:
        """Add a line to the log of decisions."""
        with self._lock:
            self._note(self.recent[-1].batch if self.recent else 0, text)

    def end(self, status: str) -> None:
        with self._lock:
            self.status = status

    def since(self, seen: int) -> dict[str, Any]:
        """Return the metrics of batches after the first `seen`, the totals and the whole log."""
        with self._lock:
            new = min(max(self.seen - seen, 0), len(self.recent))
            latest = list(self.recent)[len(self.recent) - new :]
            return {
                "status": self.status,
                "seen": self.seen,
                "totals": {"rows_in": self.rows_in, "rows_out": self.rows_out, "late": self.late, "shed": self.shed},
                "figures": [each.to_dict() for each in latest],
                "changes": list(self.changes),
                "live": None if self.report is None else describe_report(self.report),
            }

    def _note(self, batch: int, text: str) -> None:
        self.changes.append({"at_s": time.time(), "batch": batch, "words": text})


def describe_report(report: LiveReport) -> dict[str, Any]:
    """Return what the page shows of a report: the verdict, a table, and the assumptions that failed."""
    return {
        "verdict": str(report.verdict),
        "is_known": report.verdict is not Verdict.UNKNOWN,
        "sentence": report.sentence,
        "table": [each.cells() for each in report.comparisons],
        "failed": [str(each) for each in report.failed],
    }


def _describe_plan_change(before: Plan, now: Plan) -> str:
    """Describe a plan change. Plans with the same description differ in their probe orders."""
    old, new = describe_plan(before), describe_plan(now)
    return f"{new} as before, with a new probe order" if new == old else f"now {new}, before {old}"
