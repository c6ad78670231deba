"""Figure 7: output of each plan of Example 1 with its drop boxes, as the cost per tuple grows.

Also the knapsack problem behind it.
"""

from __future__ import annotations

from watersmeet.planner.models.ayad import plan_cost
from watersmeet.planner.models.ayad_drops import best_approximation, best_drops, source_coefficients
from watersmeet_lab.papers.ayad.example_1 import WHOLE_QUERY, measure_output_rate
from watersmeet_lab.papers.ayad.models import example_1, example_1_plans
from watersmeet_lab.papers.ayad.models import figure_7 as modelled
from watersmeet_lab.papers.claims import Claim, exact_claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Line, LinePanel, Plot, Table, lines_table, model_lines

#: Cost per tuple-time of A, B and C without drops; their output is the same in every plan.
STREAM_COSTS = {"a": (60, 120, 70), "b": (10, 60, 210), "c": (110, 20, 770)}
STREAM_OUTPUTS = (100, 200, 700)
MEASURED_ROW_S = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1)
#: Minimum share kept of a stream, so that its window is never empty.
MIN_KEEP_SHARE = 0.02
_SECONDS = 3000


def figure_7(effort: Effort) -> Exhibit:
    effort.report("ayad, Figure 7: output of the engine with drop boxes")
    figure = modelled()
    measured = _measure_outputs(effort)
    panel = LinePanel("highest output rate", "seconds per tuple", "rows per second", (*model_lines(figure), *measured))
    return Exhibit(
        "Figure 7: the best plan to approximate",
        "From the cost model: the three plans of Example 1, each with the drop boxes that maximize its output. Dots: "
        f"our engine with the same shares, on {effort.scale_rows(_SECONDS, least=100)} seconds of Example 1's streams, "
        f"but no stream below {MIN_KEEP_SHARE:.0%}.",
        (*_coefficient_claims(), *_point_claims(), *_crossing_claims(), _search_claim(), _engine_claim(measured)),
        (
            _knapsack_table(),
            lines_table("figure-7", "Figure 7: rows per second", model_lines(figure), "seconds per tuple"),
            lines_table("figure-7-measured", "Figure 7: rows per second, measured", measured, "seconds per tuple"),
        ),
        (Plot("figure-7", "Figure 7: output with drop boxes", (panel,)),),
    )


def best_output_rows_per_s(plan: str, row_s: float) -> float:
    return best_drops(example_1_plans(row_s)[plan]).output_rows_per_s


def find_crossing_s(first: str, second: str, low_s: float, high_s: float) -> float:
    """Find the cost per tuple at which the second plan reaches the first, by bisection between two costs."""
    for _ in range(40):
        middle = (low_s + high_s) / 2
        behind = best_output_rows_per_s(first, middle) - best_output_rows_per_s(second, middle) > 1e-6
        low_s, high_s = (middle, high_s) if behind else (low_s, middle)
    return high_s


def best_keep_shares(plan: str, row_s: float) -> dict[str, float]:
    """Return the best shares of a plan to keep, with a minimum per stream."""
    return {name: max(share, MIN_KEEP_SHARE) for name, share in best_drops(example_1_plans(row_s)[plan]).kept}


def _measure_outputs(effort: Effort) -> tuple[Line, ...]:
    """Measure the output of the engine with each plan's shares dropped.

    The plan decides the shares; the rows are the same, whichever plan joins them.
    """
    costs, seconds = effort.choose_points(MEASURED_ROW_S), effort.scale_rows(_SECONDS, least=100)
    return tuple(
        Line(
            name,
            costs,
            tuple(measure_output_rate(WHOLE_QUERY, seconds, best_keep_shares(name, row_s)) for row_s in costs),
        )
        for name in STREAM_COSTS
    )


def _engine_claim(measured: tuple[Line, ...]) -> Claim:
    errors = [
        abs(
            rate / plan_cost(example_1_plans(row_s)[line.name], best_keep_shares(line.name, row_s)).output.rows_per_s
            - 1
        )
        for line in measured
        for row_s, rate in zip(line.x, line.y, strict=True)
    ]
    return shape_claim(
        "ayad.figure7.engine",
        "the engine's output equals the model's when it drops the model's shares",
        "eq. 27",
        f"{len(errors)} settings, at most {max(errors):.1%} off what the model gives for the same shares",
        holds=max(errors) < 0.1,
        difference=f"at least {MIN_KEEP_SHARE:.0%} of each stream is kept. A stream that is dropped completely has an "
        "empty window here and joins nothing. The model keeps its window full of its first rows "
        "(the paper's remark 1 of section 5.2)",
        reason="too few rows are kept for windows and values to average out",
    )


def _coefficient_claims() -> list[Claim]:
    known = {name: source_coefficients(plan) for name, plan in example_1_plans(1.0).items()}
    return [
        *(
            exact_claim(
                f"ayad.knapsack.{n}.cost", f"cost of A, B, C in plan ({n})", costs, [known[n][s][1] for s in "ABC"]
            )
            for n, costs in STREAM_COSTS.items()
        ),
        *(
            exact_claim(
                f"ayad.knapsack.{n}.output",
                f"output of A, B, C in plan ({n})",
                STREAM_OUTPUTS,
                [known[n][s][0] for s in "ABC"],
            )
            for n in STREAM_COSTS
        ),
    ]


def _point_claims() -> list[Claim]:
    return [
        exact_claim(
            "ayad.figure7.full",
            "all plans emit the full result at 1 ms a tuple",
            (1000,) * 3,
            [best_output_rows_per_s(plan, 0.001) for plan in "abc"],
        ),
        exact_claim(
            "ayad.figure7.a.4ms",
            "plan (a) emits the full result up to 4 ms a tuple",
            1000,
            best_output_rows_per_s("a", 0.004),
        ),
        exact_claim(
            "ayad.figure7.ac.50ms",
            "(a) and (c) at 0.05 s a tuple",
            (200, 200),
            [best_output_rows_per_s("a", 0.05), best_output_rows_per_s("c", 0.05)],
        ),
        exact_claim(
            "ayad.figure7.100ms",
            "all plans at 0.1 s a tuple",
            (100,) * 3,
            [best_output_rows_per_s(plan, 0.1) for plan in "abc"],
        ),
    ]


def _crossing_claims() -> list[Claim]:
    return [
        exact_claim(
            "ayad.figure7.meet.ac",
            "seconds per tuple at which (c) comes up with (a)",
            0.05,
            find_crossing_s("a", "c", 0.01, 0.08),
            3,
        ),
        exact_claim(
            "ayad.figure7.meet.bc",
            "seconds per tuple from which (c) beats (b); the text reads 0.022",
            0.021,
            find_crossing_s("b", "c", 0.01, 0.05),
            3,
        ),
        exact_claim(
            "ayad.figure7.meet.all",
            "seconds per tuple from which all are equal; the text reads 0.097",
            0.1,
            find_crossing_s("c", "b", 0.05, 0.2),
            3,
        ),
    ]


def _search_claim() -> Claim:
    between = [0.025, 0.05, 0.09]
    better = {row_s: (best_output_rows_per_s("b", row_s), best_output_rows_per_s("c", row_s)) for row_s in between}
    found = {row_s: best_approximation(example_1(row_s)).output_rows_per_s for row_s in between}
    return shape_claim(
        "ayad.figure7.search",
        "the best plan to approximate is not the best feasible plan, so plans are searched with their drop boxes",
        "plan (b) costs less than (c) but emits less from 0.022 to 0.095 s a tuple",
        "; ".join(
            f"{row_s:g} s: (b) {b:,.0f}, (c) {c:,.0f}, search {found[row_s]:,.0f}" for row_s, (b, c) in better.items()
        ),
        holds=all(b < c for b, c in better.values())
        and all(found[row_s] >= max(better[row_s]) - 1e-6 for row_s in between),
    )


def _knapsack_table() -> Table:
    known = {name: source_coefficients(plan) for name, plan in example_1_plans(1.0).items()}
    rows = tuple(
        (f"({name})", s, *known[name][s], known[name][s][0] / known[name][s][1]) for name in STREAM_COSTS for s in "ABC"
    )
    return Table(
        "knapsack", "Knapsack of the drop boxes", ("plan", "stream", "output", "cost", "output per cost"), rows
    )
