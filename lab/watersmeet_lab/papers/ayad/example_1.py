"""Example 1: rates, buffers, utilisation and feasibility of three plans.

Also the measured output rates of the same query.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.planner.models.ayad import BinaryPlanCost, JoinNode, PlanNode, RowBudget, plan_cost
from watersmeet_lab.papers.ayad.models import example_1_plans
from watersmeet_lab.papers.claims import Claim, exact_claim, shape_claim, words_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import BarPanel, Bars, Exhibit, Plot, Table

PLANS = {"a": "(A ⋈ B) ⋈ C", "b": "A ⋈ (B ⋈ C)", "c": "(A × C) ⋈ B"}
RATES = {"a": 10, "b": 20, "c": 70}
#: The first join of each plan, and the whole query: sources, predicate, and rows per second by the model.
QUERIES = {
    "A ⋈ B": ("a [ROWS 10], b [ROWS 10]", "a.a = b.a", 150),
    "B ⋈ C": ("b [ROWS 10], c [ROWS 10]", "b.b = c.b", 180),
    "A × C": ("a [ROWS 10], c [ROWS 10]", "", 800),
    "A ⋈ B ⋈ C": ("a [ROWS 10], b [ROWS 10], c [ROWS 10]", "a.a = b.a AND b.b = c.b", 1000),
}
WHOLE_QUERY = "A ⋈ B ⋈ C"
_SECONDS = 1000
_SECOND_US = 1_000_000


def example_1(effort: Effort) -> Exhibit:
    effort.report("ayad, Example 1: output rates of the engine")
    costs = {name: plan_cost(plan) for name, plan in example_1_plans(0.0005).items()}
    seconds = effort.scale_rows(_SECONDS, least=100)
    measured = {label: measure_output_rate(label, seconds) for label in QUERIES}
    return Exhibit(
        "Example 1: three plans",
        "[ROWS 10] three times, λ 10, 20 and 70, selectivities 0.5 and 0.2; from the cost model. The output rates were "
        f"measured as well: {seconds} seconds of streams with two values of a and five of b, run by our engine.",
        (
            *_exact_claims(costs),
            *_feasibility_claims(),
            *(_engine_rate_claim(label, rate) for label, rate in measured.items()),
        ),
        (_table(costs), _measured_table(measured)),
        (_plot(costs, measured),),
    )


def measure_output_rate(label: str, seconds: int, kept: Mapping[str, float] | None = None) -> float:
    """Return the engine's output rows per second for a query of `QUERIES`.

    `kept` is the share of A, B and C that drop boxes keep.
    """
    sources, predicate, _ = QUERIES[label]
    rng = np.random.default_rng(0)
    streams = {
        name: wm.stream(_random_stream(rng, rate, seconds), time="ts", unit="us") for name, rate in RATES.items()
    }
    used = {name: stream for name, stream in streams.items() if f"{name} [" in sources}
    select = ", ".join(f"{name}.ts AS {name}" for name in used)
    plan = wm.plan(drop={name.lower(): 1 - share for name, share in (kept or {}).items()})
    rows = wm.collect(f"SELECT {select} FROM {sources}" + (f" WHERE {predicate}" if predicate else ""), used, plan=plan)
    return int(rows.num_rows) / seconds


def _random_stream(rng: np.random.Generator, rate: int, seconds: int) -> pa.Table:
    count = rate * seconds
    times = np.sort(rng.integers(0, seconds * _SECOND_US, count))
    return pa.table(
        {
            "ts": pa.array(times),
            "a": pa.array(rng.integers(0, 2, count)),
            "b": pa.array(rng.integers(0, 5, count)),
            "id": pa.array(np.arange(count)),
        }
    )


def _exact_claims(costs: dict[str, BinaryPlanCost]) -> list[Claim]:
    plans = [costs[name] for name in PLANS]
    return [
        exact_claim(
            "ayad.example1.rates",
            "intermediate rates of plans a, b, c per second",
            (150, 180, 800),
            _intermediate_rates(),
        ),
        exact_claim(
            "ayad.example1.buffers",
            "buffers of plans a, b, c in tuples",
            (80, 50, 130),
            [cost.memory_rows for cost in plans],
        ),
        exact_claim(
            "ayad.example1.handled",
            "tuples per second that enter joins, input and intermediate",
            (250, 280, 900),
            [cost.handled_rows_per_s for cost in plans],
        ),
        exact_claim(
            "ayad.example1.utilisation",
            "utilisation in per cent at 0.5 ms a tuple; for c the paper prints 50, its own rates give 45",
            (12.5, 14.0, 45.0),
            [100 * cost.cpu for cost in plans],
            1,
        ),
        exact_claim(
            "ayad.example1.output",
            "output rows per second, the same for every plan",
            (1000,) * 3,
            [cost.output.rows_per_s for cost in plans],
        ),
    ]


def _intermediate_rates() -> list[float]:
    return [plan_cost(_first_join(plan)).output.rows_per_s for plan in example_1_plans(0.0005).values()]


def _first_join(plan: PlanNode) -> JoinNode:
    """Return the join below the topmost one."""
    assert isinstance(plan, JoinNode)
    return next(each for each in (plan.left, plan.right) if isinstance(each, JoinNode))


def _feasibility_claims() -> list[Claim]:
    printed = {0.0005: "a, b, c", 0.004: "a", 0.005: "none"}
    return [
        words_claim(
            f"ayad.example1.feasible.{1000 * row_s:g}ms",
            f"plans that are feasible at {1000 * row_s:g} ms a tuple",
            plans,
            _list_feasible_plans(row_s),
        )
        for row_s, plans in printed.items()
    ]


def _list_feasible_plans(row_s: float) -> str:
    return (
        ", ".join(name for name, plan in example_1_plans(row_s).items() if RowBudget().holds(plan_cost(plan))) or "none"
    )


def _engine_rate_claim(label: str, rate: float) -> Claim:
    expected = QUERIES[label][2]
    return shape_claim(
        f"ayad.example1.measured.{label.replace(' ', '')}",
        f"our engine reaches the output rate that the model gives for {label}",
        f"{expected} per second",
        f"{rate:,.1f} per second",
        holds=abs(rate / expected - 1) < 0.03,
        reason="the run is too short for windows and values to average out",
    )


def _table(costs: dict[str, BinaryPlanCost]) -> Table:
    inner = dict(zip(PLANS, _intermediate_rates(), strict=True))
    rows = tuple(
        (
            f"({name}) {PLANS[name]}",
            inner[name],
            cost.memory_rows,
            cost.handled_rows_per_s,
            f"{cost.cpu:.1%}",
            cost.output.rows_per_s,
        )
        for name, cost in costs.items()
    )
    columns = (
        "plan",
        "intermediate rows per s",
        "buffers, tuples",
        "tuples into joins per s",
        "utilisation at 0.5 ms",
        "rows out per s",
    )
    return Table("example-1", "Example 1 by plan", columns, rows)


def _measured_table(measured: dict[str, float]) -> Table:
    rows = tuple((label, QUERIES[label][2], rate) for label, rate in measured.items())
    return Table(
        "example-1-measured", "Output rates, measured", ("join", "model, rows per s", "measured, rows per s"), rows
    )


def _plot(costs: dict[str, BinaryPlanCost], measured: dict[str, float]) -> Plot:
    modelled = tuple(float(QUERIES[label][2]) for label in measured)
    return Plot(
        "example-1",
        "Example 1: three plans of one query",
        (
            BarPanel(
                "output rates",
                "rows per second",
                tuple(measured),
                (Bars("model", modelled, "model"), Bars("engine", tuple(measured.values()))),
            ),
            BarPanel(
                "cost of a plan",
                "tuples",
                tuple(f"({name})" for name in costs),
                (
                    Bars("into joins per second", tuple(cost.handled_rows_per_s for cost in costs.values()), "model"),
                    Bars("buffers", tuple(cost.memory_rows for cost in costs.values()), "model"),
                ),
            ),
        ),
    )
