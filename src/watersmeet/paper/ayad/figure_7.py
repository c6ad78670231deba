"""Figure 7: what each plan of Example 1 puts out with its drop boxes, as tuples get dearer; and the knapsack behind it."""

from __future__ import annotations

from watersmeet.cost.ayad_drops import best_approximation, best_drops, coefficients
from watersmeet.cost.ayad_figures import example_1, example_1_plans
from watersmeet.cost.ayad_figures import figure_7 as modelled
from watersmeet.cost.series import Figure
from watersmeet.paper.claims import Claim, exact, shape
from watersmeet.paper.effort import Effort
from watersmeet.paper.exhibit import Exhibit, LinePanel, Plot, Table, columns_of, model_lines

#: Cost per tuple-time of A, B and C when each is kept whole; the output they bring is the same in every plan.
COSTS = {"a": (60, 120, 70), "b": (10, 60, 210), "c": (110, 20, 770)}
OUTPUT = (100, 200, 700)


def figure_7(effort: Effort) -> Exhibit:
    figure = modelled()
    panel = LinePanel("highest output rate", "seconds per tuple", "rows per second", model_lines(figure))
    return Exhibit(
        "Figure 7: the best plan to approximate",
        "From the cost model: the three plans of Example 1, each with the drop boxes that let it put out the most.",
        (*_coefficients(), *_points(), *_crossings(), _search(figure)),
        (_knapsack(), columns_of("figure-7", "Figure 7: rows per second", model_lines(figure), "seconds per tuple")),
        (Plot("figure-7", "Figure 7: output with drop boxes", (panel,)),),
    )


def output(plan: str, row_s: float) -> float:
    return best_drops(example_1_plans(row_s)[plan]).output_rows_per_s


def meeting(first: str, second: str, low_s: float, high_s: float) -> float:
    """The cost per tuple at which the second plan comes up with the first, between the two given, by bisection."""
    for _ in range(40):
        middle = (low_s + high_s) / 2
        behind = output(first, middle) - output(second, middle) > 1e-6
        low_s, high_s = (middle, high_s) if behind else (low_s, middle)
    return high_s


def _coefficients() -> list[Claim]:
    known = {name: coefficients(plan) for name, plan in example_1_plans(1.0).items()}
    return [
        *(
            exact(f"ayad.knapsack.{n}.cost", f"cost of A, B, C in plan ({n})", costs, [known[n][s][1] for s in "ABC"])
            for n, costs in COSTS.items()
        ),
        *(exact(f"ayad.knapsack.{n}.output", f"output of A, B, C in plan ({n})", OUTPUT, [known[n][s][0] for s in "ABC"]) for n in COSTS),
    ]


def _points() -> list[Claim]:
    return [
        exact("ayad.figure7.full", "all plans put out everything at 1 ms a tuple", (1000,) * 3, [output(plan, 0.001) for plan in "abc"]),
        exact("ayad.figure7.a.4ms", "plan (a) puts out everything up to 4 ms a tuple", 1000, output("a", 0.004)),
        exact("ayad.figure7.ac.50ms", "(a) and (c) at 0.05 s a tuple", (200, 200), [output("a", 0.05), output("c", 0.05)]),
        exact("ayad.figure7.100ms", "all plans at 0.1 s a tuple", (100,) * 3, [output(plan, 0.1) for plan in "abc"]),
    ]


def _crossings() -> list[Claim]:
    return [
        exact("ayad.figure7.meet.ac", "seconds per tuple at which (c) comes up with (a)", 0.05, meeting("a", "c", 0.01, 0.08), 3),
        exact(
            "ayad.figure7.meet.bc",
            "seconds per tuple from which (c) beats (b); the text reads 0.022",
            0.021,
            meeting("b", "c", 0.01, 0.05),
            3,
        ),
        exact(
            "ayad.figure7.meet.all",
            "seconds per tuple from which all are equal; the text reads 0.097",
            0.1,
            meeting("c", "b", 0.05, 0.2),
            3,
        ),
    ]


def _search(figure: Figure) -> Claim:
    between = [0.025, 0.05, 0.09]
    better = {row_s: (output("b", row_s), output("c", row_s)) for row_s in between}
    found = {row_s: best_approximation(example_1(row_s)).output_rows_per_s for row_s in between}
    return shape(
        "ayad.figure7.search",
        "the best plan to approximate is not the best feasible plan, so plans are searched with their drop boxes",
        "plan (b) costs less than (c) and yet puts out less from 0.022 to 0.095 s a tuple",
        "; ".join(f"{row_s:g} s: (b) {b:,.0f}, (c) {c:,.0f}, search {found[row_s]:,.0f}" for row_s, (b, c) in better.items()),
        holds=all(b < c for b, c in better.values()) and all(found[row_s] >= max(better[row_s]) - 1e-6 for row_s in between),
    )


def _knapsack() -> Table:
    known = {name: coefficients(plan) for name, plan in example_1_plans(1.0).items()}
    rows = tuple((f"({name})", s, *known[name][s], known[name][s][0] / known[name][s][1]) for name in COSTS for s in "ABC")
    return Table("knapsack", "Knapsack of the drop boxes", ("plan", "stream", "output", "cost", "output per cost"), rows)
