"""Figures 6 and 7: the four plans of a two-way aggregation join, by hash and by nested loops."""

from __future__ import annotations

from itertools import pairwise

from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit
from watersmeet_lab.papers.tran.figure_parts import (
    TWO_WAY_POINTS,
    ModelParts,
    format_ends,
    is_rising,
    measure_parts,
    model_parts,
    plot_measured_parts,
    plot_model_parts,
    rank_claim,
    tabulate_measured_parts,
    tabulate_model_parts,
)
from watersmeet_lab.papers.tran.models import TWO_WAY, figure_6, figure_7

EARLY = ("EAP01", "EAP10", "EAP11")


def figures_6_and_7(effort: Effort) -> Exhibit:
    hashed, nested = model_parts(figure_6), model_parts(figure_7)
    ours = measure_parts(effort, 6, TWO_WAY, TWO_WAY_POINTS)
    claims = [claim for number, parts in ((6, hashed), (7, nested)) for claim in _claims(number, parts)]
    return Exhibit(
        "Figures 6 and 7: two-way aggregation joins",
        "From the cost model, all weights equal (the paper tunes its own per experiment and prints none). Defaults: λ "
        "300, w 5000, g1 150, g2 1, σ 0.1, B 1021. EAP10 aggregates the first input early, EAP01 the second, EAP11 "
        "both, LAP none. Measured: our hash-based aggregation with full windows, one second of event time, CPU time; "
        "we have none by nested loops.",
        (
            *claims,
            *_selectivity_claims(hashed, nested),
            _hash_claim(hashed, nested),
            rank_claim(
                "tran.figure6.measured", "model and measurement rank the plans of a two-way join the same", ours
            ),
        ),
        (*tabulate_model_parts(6, hashed), *tabulate_model_parts(7, nested), *tabulate_measured_parts(6, ours)),
        (
            plot_model_parts(6, "two-way hash join", hashed),
            plot_measured_parts(6, "two-way hash join", ours),
            plot_model_parts(7, "two-way nested loops", nested),
        ),
    )


def _claims(number: int, parts: ModelParts) -> list[Claim]:
    return [
        _window_claim(number, parts),
        _early_claim(number, parts),
        _groups_claim(number, parts),
        _rate_claim(number, parts),
    ]


def _window_claim(number: int, parts: ModelParts) -> Claim:
    figure = parts["a"]
    flat = all(
        len(set(figure.line(name)[1:])) == 1 and figure.line(name)[0] < figure.line(name)[1]
        for name in ("EAP10", "EAP11")
    )
    linear = all(_is_linear(figure.line(name)) for name in ("LAP", "EAP01"))
    return shape_claim(
        f"tran.figure{number}a.window",
        "LAP and EAP01 grow linearly with w1; EAP10 and EAP11 stop growing at 2000 rows",
        "constant as w1 exceeds 2000",
        "; ".join(format_ends(name, figure.line(name)) for name in ("LAP", "EAP01", "EAP10", "EAP11")),
        holds=flat and linear,
    )


def _is_linear(line: tuple[float, ...]) -> bool:
    steps = [later - sooner for sooner, later in pairwise(line)]
    return max(steps) - min(steps) < 1e-6 * max(line)


def _early_claim(number: int, parts: ModelParts) -> Claim:
    figure = parts["a"]
    late = figure.line("LAP")
    ratios = {name: [ours / plain for ours, plain in zip(figure.line(name), late, strict=True)] for name in EARLY}
    beaten = all(ratio < 1 for each in ratios.values() for ratio in each)
    first = [name for name, each in ratios.items() if each[0] >= 1]
    return shape_claim(
        f"tran.figure{number}a.early",
        "early aggregation always beats late aggregation as w1 grows",
        "EAPs are always better than LAP",
        ", ".join(f"{name} {max(each):.2f} to {min(each):.2f} of LAP" for name, each in ratios.items()),
        holds=all(each[-1] < 1 for each in ratios.values()),
        difference=""
        if beaten
        else f"not at w1 = 1000 for {', '.join(first)}, whose aggregation set is as large as the window there",
    )


def _groups_claim(number: int, parts: ModelParts) -> Claim:
    figure = parts["b"]
    last = {name: figure.line(name)[-1] for name in ("LAP", *EARLY)}
    few = {name: figure.line(name)[0] for name in ("LAP", *EARLY)}
    return shape_claim(
        f"tran.figure{number}b.groups",
        "with many groups EAP10 approaches LAP and EAP11 approaches EAP01",
        "approaches",
        f"EAP10/LAP {few['EAP10'] / few['LAP']:.2f} with 3 groups, {last['EAP10'] / last['LAP']:.2f} with 19683; "
        f"EAP11/EAP01 {few['EAP11'] / few['EAP01']:.2f} and {last['EAP11'] / last['EAP01']:.2f}",
        holds=abs(last["EAP10"] / last["LAP"] - 1) < 0.2
        and abs(last["EAP11"] / last["EAP01"] - 1) < 0.2
        and few["EAP10"] < few["LAP"],
    )


def _rate_claim(number: int, parts: ModelParts) -> Claim:
    rise = {name: line[-1] - line[0] for name, line in parts["c"].lines}
    return shape_claim(
        f"tran.figure{number}c.rate",
        "as λ1 grows, LAP and EAP10 rise faster than EAP01 and EAP11",
        "increase faster",
        ", ".join(f"{name} by {by:,.0f}" for name, by in rise.items()),
        holds=min(rise["LAP"], rise["EAP10"]) > max(rise["EAP01"], rise["EAP11"]),
    )


def _selectivity_claims(hashed: ModelParts, nested: ModelParts) -> list[Claim]:
    eleven = nested["d"].line("EAP11")
    return [
        shape_claim(
            "tran.figure6d.rising",
            "by hash all four plans cost more as the join matches more",
            "the costs of all four increase",
            "; ".join(format_ends(name, line) for name, line in hashed["d"].lines),
            holds=all(is_rising(line) for _, line in hashed["d"].lines),
        ),
        shape_claim(
            "tran.figure7d.falling",
            "by nested loops EAP11 costs less as the join matches more",
            "EAP11 decreases",
            format_ends("EAP11", eleven),
            holds=is_rising(tuple(reversed(eleven))),
        ),
    ]


def _hash_claim(hashed: ModelParts, nested: ModelParts) -> Claim:
    ratios = [
        dear / cheap
        for part in hashed
        for (_, few), (_, many) in zip(hashed[part].lines, nested[part].lines, strict=True)
        for cheap, dear in zip(few, many, strict=True)
    ]
    return shape_claim(
        "tran.figure7.dearer",
        "nested loops cost more than hashing",
        "the cost is higher",
        f"{min(ratios):.2f} to {max(ratios):.1f} times",
        holds=min(ratios) >= 1 and max(ratios) > 1,
    )
