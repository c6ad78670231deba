"""Figures 5 to 7: how to divide probes and memory when either is limited."""

from __future__ import annotations

from watersmeet_lab.papers.claims import Claim, exact_claim, shape_claim, words_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import BarPanel, Bars, Exhibit, Plot, Table
from watersmeet_lab.papers.kang.limited_strategies import measure_strategies
from watersmeet_lab.papers.kang.models import figure_5, figure_6, figure_7

#: Output rates of the bars in the paper's figures, calculated by hand from its parameters; the best strategy first.
PAPER_RATES = {
    5: {"MaxA": 200.0, "by rate": 180.0, "equal": 150.0, "by window": 133.3, "MaxB": 100.0},
    6: {"MaxA": 250.0, "inverse": 216.7, "equal": 150.0, "proportional": 83.3, "MaxB": 50.0},
    7: {"MaxA/MaxB": 10.0, "MaxB/MaxA": 10.0, "equal": 5.0, "MaxA/MaxA": 0.0, "MaxB/MaxB": 0.0},
}
LIMITED_RESOURCES = {5: "CPU is limited", 6: "memory is limited", 7: "both are limited"}
_SECONDS = 400

#: Output rates by figure and strategy.
Rates = dict[int, dict[str, float]]


def figures_5_to_7(effort: Effort) -> Exhibit:
    effort.report("kang, Figures 5 to 7: output with limited resources")
    model: Rates = {5: figure_5(), 6: figure_6(), 7: figure_7()}
    ours: Rates = {number: {} for number in PAPER_RATES}
    for bar in measure_strategies(effort.scale_rows(_SECONDS, least=20)):
        ours[bar.figure][bar.strategy] = bar.measured_per_s
    rows = tuple(
        (f"Figure {n}", name, rate, model[n][name], ours[n][name])
        for n, paper_rates in PAPER_RATES.items()
        for name, rate in paper_rates.items()
    )
    return Exhibit(
        "Figures 5 to 7: limited resources",
        "Figure 5: λa 800, λb 200, windows of 100 rows (A) and 200 rows (B), σ 0.01, μ = 100 probes per second. Figure "
        "6: λa 10, λb 50, memory M = 1000 rows, σ 0.005. Figure 7: μ = 10 probes per second, M = 100 rows, σ 0.01. "
        "Model: the cost model. Measured: our engine runs each direction of the join, with drop boxes that keep a "
        "random share of the probes or of the window.",
        tuple(claim for number in PAPER_RATES for claim in _claims(number, model[number], ours[number])),
        (
            Table(
                "figures-5-to-7", "Output rate by strategy", ("figure", "strategy", "paper", "model", "measured"), rows
            ),
        ),
        (
            Plot(
                "figures-5-to-7",
                "Figures 5 to 7: output rate by strategy",
                tuple(_panel(n, model[n], ours[n]) for n in PAPER_RATES),
            ),
        ),
    )


def _claims(number: int, model: dict[str, float], ours: dict[str, float]) -> list[Claim]:
    paper_rates, limit = PAPER_RATES[number], LIMITED_RESOURCES[number]
    best = max(model.values())
    winners = tuple(name for name in paper_rates if model[name] == best)
    return [
        *(
            exact_claim(
                f"kang.figure{number}.{name}", f"rows per second with strategy {name}, {limit}", rate, model[name], 1
            )
            for name, rate in paper_rates.items()
        ),
        words_claim(
            f"kang.figure{number}.winner", f"the best strategy, {limit}", tuple(paper_rates)[: len(winners)], winners
        ),
        _measured_claim(number, ours),
    ]


def _measured_claim(number: int, ours: dict[str, float]) -> Claim:
    paper_rates = PAPER_RATES[number]
    errors = [abs(ours[name] - rate) / max(paper_rates.values()) for name, rate in paper_rates.items()]
    return shape_claim(
        f"kang.figure{number}.measured",
        f"our engine with drop boxes reaches the output rate of each strategy, {LIMITED_RESOURCES[number]}",
        "the results conformed to the analysis",
        ", ".join(f"{name} {ours[name]:.1f}" for name in paper_rates) + " rows per second",
        holds=max(errors) < 0.04,
        reason=f"off by up to {max(errors):.0%} of the best: the run is too short for the samples to average out",
    )


def _panel(number: int, model: dict[str, float], ours: dict[str, float]) -> BarPanel:
    names = tuple(PAPER_RATES[number])
    return BarPanel(
        f"Figure {number}: {LIMITED_RESOURCES[number]}",
        "rows per second",
        names,
        (
            Bars("paper", tuple(PAPER_RATES[number].values()), "paper"),
            Bars("cost model", tuple(model[name] for name in names), "model"),
            Bars("measured", tuple(ours[name] for name in names)),
        ),
    )
