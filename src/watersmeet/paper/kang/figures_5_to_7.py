"""Figures 5 to 7: who gets the probes and who gets the memory when there is too little of either."""

from __future__ import annotations

from watersmeet.cost.kang_figures import figure_5, figure_6, figure_7
from watersmeet.paper.claims import Claim, exact, words
from watersmeet.paper.effort import Effort
from watersmeet.paper.exhibit import BarPanel, Bars, Exhibit, Plot, Table

#: The output rates that follow from the paper's parameters, the best strategy first.
PRINTED = {
    5: {"MaxA": 200.0, "by rate": 180.0, "equal": 150.0, "by window": 133.3, "MaxB": 100.0},
    6: {"MaxA": 250.0, "inverse": 216.7, "equal": 150.0, "proportional": 83.3, "MaxB": 50.0},
    7: {"MaxA/MaxB": 10.0, "MaxB/MaxA": 10.0, "equal": 5.0, "MaxA/MaxA": 0.0, "MaxB/MaxB": 0.0},
}
SHORT = {5: "computing is short", 6: "memory is short", 7: "both are short"}


def figures_5_to_7(effort: Effort) -> Exhibit:
    found = {5: figure_5(), 6: figure_6(), 7: figure_7()}
    claims = [claim for number, printed in PRINTED.items() for claim in _claims(number, printed, found[number])]
    rows = tuple(
        (f"Figure {number}", name, rate, found[number][name]) for number, printed in PRINTED.items() for name, rate in printed.items()
    )
    return Exhibit(
        "Figures 5 to 7: limited resources",
        "From the cost model. Figure 5: λa 800, λb 200, A 100, B 200, σ 0.01, μ 100. Figure 6: λa 10, λb 50, M 1000, σ 0.005. Figure 7: "
        "μ 10, "
        "M 100, σ 0.01.",
        tuple(claims),
        (Table("figures-5-to-7", "Output rate by strategy", ("figure", "strategy", "paper", "ours"), rows),),
        (Plot("figures-5-to-7", "Figures 5 to 7: output rate by strategy", tuple(_panel(n, found[n]) for n in PRINTED)),),
    )


def _claims(number: int, printed: dict[str, float], found: dict[str, float]) -> list[Claim]:
    best = max(found.values())
    winners = tuple(name for name in printed if found[name] == best)
    return [
        *(
            exact(f"kang.figure{number}.{name}", f"rows per second by {name}, {SHORT[number]}", rate, found[name], 1)
            for name, rate in printed.items()
        ),
        words(f"kang.figure{number}.winner", f"the best strategy, {SHORT[number]}", tuple(printed)[: len(winners)], winners),
    ]


def _panel(number: int, found: dict[str, float]) -> BarPanel:
    names = tuple(PRINTED[number])
    return BarPanel(
        f"Figure {number}: {SHORT[number]}",
        "rows per second",
        names,
        (
            Bars("cost model", tuple(found[name] for name in names), "model"),
            Bars("paper", tuple(PRINTED[number].values()), "paper"),
        ),
    )
