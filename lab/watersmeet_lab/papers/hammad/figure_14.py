"""Figure 14: a path through four streams, in either direction: NLW-join against LCA.

The streams have similar rates in some runs, and very different rates in others.
"""

from __future__ import annotations

import numpy as np

from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import BarPanel, Bars, Exhibit, Plot, Table
from watersmeet_lab.papers.hammad.arrival_streams import SECOND_US, poisson_arrivals
from watersmeet_lab.papers.hammad.pair_windows import LCA, join_along_path
from watersmeet_lab.papers.hammad.service_time import NLW, ServiceTimes, measure_service_times

NAMES = (NLW, LCA)
RATES = {"similar": (450.0, 500.0, 550.0, 500.0), "very different": (1000.0, 700.0, 300.0, 10.0)}
#: Number of distinct values, by the window in milliseconds between neighbours on the path. One window is shorter than
#: the gaps of the slow stream, one is longer. The number of values keeps results few.
VALUES_BY_STEP_MS = {20: 20, 250: 500}
SHORT_MS, LONG_MS = VALUES_BY_STEP_MS
_BLOCKS = 6

#: Service times by step and rates, then by algorithm.
Measured = dict[tuple[int, str], dict[str, ServiceTimes]]


def figure_14(effort: Effort) -> Exhibit:
    effort.report("hammad, Figure 14: path joins")
    measured = {
        (step, label): _measure_rates(effort, step, rates)
        for step in VALUES_BY_STEP_MS
        for label, rates in RATES.items()
    }
    return Exhibit(
        "Figure 14: path joins",
        "The path A, B, C, D, or the reverse. The paper prints neither windows nor rates; here steps of "
        + " and ".join(f"{step} ms ({values} values)" for step, values in VALUES_BY_STEP_MS.items())
        + ", rates per second "
        + "; ".join(f"{label}: {', '.join(f'{rate:g}' for rate in rates)}" for label, rates in RATES.items())
        + ". Each direction is a query of its own. NLW-join goes along the path, with a period on one side of each "
        "row. LCA joins with each stream's largest derived window and refines. The streaming operator, batches of "
        "1,000 tuples; times include all its work. Steps of 250 ms were tried first and gave neither of the paper's "
        "rankings; the verdicts rest on the steps of 20 ms, added after that.",
        tuple(_claims(measured)),
        (_table(measured),),
        (_plot(measured),),
    )


def _measure_rates(effort: Effort, step_ms: int, rates: tuple[float, ...]) -> dict[str, ServiceTimes]:
    blocks = 1 if effort.quick else _BLOCKS
    steps_us = np.full(3, step_ms * SECOND_US // 1000, np.int64)
    joins = {name: join_along_path(name, steps_us) for name in NAMES}
    fill = int(2 * sum(rates))
    return measure_service_times(
        effort, poisson_arrivals(rates, fill + 1000 * blocks + 1, VALUES_BY_STEP_MS[step_ms]), joins, first=fill
    )


def _plot(measured: Measured) -> Plot:
    panels = tuple(
        BarPanel(
            f"{title}, steps of {step} ms",
            unit,
            tuple(RATES),
            tuple(Bars(name, tuple(getattr(measured[step, label][name], value) for label in RATES)) for name in NAMES),
        )
        for step in VALUES_BY_STEP_MS
        for title, unit, value in (
            ("service time", "µs per tuple", "mean_us"),
            ("work", "comparisons per tuple", "mean_comparisons"),
        )
    )
    return Plot("figure-14", "Figure 14: a path of four streams", panels)


def _table(measured: Measured) -> Table:
    rows = tuple(
        (f"{step} ms", label, name, each.mean_us, each.mean_comparisons)
        for (step, label), by_name in measured.items()
        for name, each in by_name.items()
    )
    return Table("figure-14", "Figure 14: per tuple", ("step", "rates", "algorithm", "µs", "comparisons"), rows)


def _claims(measured: Measured) -> list[Claim]:
    return [_faster_claim(measured, "similar", NLW, LCA), _faster_claim(measured, "very different", LCA, NLW)]


def _faster_claim(measured: Measured, label: str, fast: str, slow: str) -> Claim:
    won = {
        step: measured[step, label][fast].mean_us < measured[step, label][slow].mean_us for step in VALUES_BY_STEP_MS
    }
    times_text = "; ".join(f"steps of {step} ms: {_format_times(measured[step, label])}" for step in VALUES_BY_STEP_MS)
    return shape_claim(
        f"hammad.figure14.{label.replace(' ', '-')}",
        f"on a path of four with {label} rates {fast} beats {slow}",
        f"{fast} below {slow}",
        times_text,
        holds=won[SHORT_MS],
        difference=""
        if won[LONG_MS]
        else f"with short steps only; with steps of {LONG_MS} ms even the slow stream has rows in every window, "
        "so LCA skips no empty window; its better loop order (shortest buffer first) does not pay for the sweep",
        reason="at these rates the sweep costs about as much per tuple as it saves",
    )


def _format_times(by_name: dict[str, ServiceTimes]) -> str:
    return ", ".join(
        f"{name} {by_name[name].mean_us:.2f} µs ({by_name[name].mean_comparisons:,.0f} comparisons)" for name in NAMES
    )
