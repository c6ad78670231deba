"""Figure 13: four streams with one window for all pairs but one, which has a longer one: LCA against GCA."""

from __future__ import annotations

import numpy as np

from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import BarPanel, Bars, Exhibit, Plot, Table
from watersmeet_lab.papers.hammad.arrival_streams import SECOND_US, Int64s, poisson_arrivals
from watersmeet_lab.papers.hammad.pair_windows import GCA, LCA, join_within_pairs
from watersmeet_lab.papers.hammad.service_time import ServiceTimes, measure_service_times

OTHERS_S = (0.8, 0.1)
VALUES = 500
_BLOCKS = 6

Measured = dict[float, dict[str, ServiceTimes]]


def figure_13(effort: Effort) -> Exhibit:
    effort.report("hammad, Figure 13: GCA and LCA")
    blocks = 1 if effort.quick else _BLOCKS
    arrivals = poisson_arrivals([1000.0] * 4, 4000 + 1000 * blocks, VALUES)
    measured = {}
    for others_s in OTHERS_S:
        pairs = pair_windows_us(others_s)
        chosen = {name: join_within_pairs(name, pairs) for name in (GCA, LCA)}
        measured[others_s] = measure_service_times(effort, arrivals, chosen, first=4000)
    return Exhibit(
        "Figure 13: global and local windows",
        f"Four streams of 1,000 per second, {VALUES} values; one pair has a window of 1 s, all others 0.8 s, then 0.1 "
        "s. GCA joins with 1 s for all and refines, LCA with the largest window of each stream and refines. "
        "The streaming operator, batches of 1,000 tuples, buffers full; times include all its work.",
        tuple(_lca_claim(others_s, by_name) for others_s, by_name in measured.items()),
        (_table(measured),),
        (_plot(measured),),
    )


def pair_windows_us(others_s: float) -> Int64s:
    """Return windows of one second between the first two streams, and shorter ones between all others."""
    pairs = np.full((4, 4), int(others_s * SECOND_US), np.int64)
    pairs[0, 1] = pairs[1, 0] = SECOND_US
    np.fill_diagonal(pairs, 0)
    return pairs


def _plot(measured: Measured) -> Plot:
    categories = tuple(f"others {others_s:g} s" for others_s in measured)
    panels = tuple(
        BarPanel(
            title,
            unit,
            categories,
            tuple(Bars(n, tuple(getattr(each[n], value) for each in measured.values())) for n in (GCA, LCA)),
        )
        for title, unit, value in (
            ("service time", "µs per tuple", "mean_us"),
            ("work", "comparisons per tuple", "mean_comparisons"),
        )
    )
    return Plot("figure-13", "Figure 13: one pair with a longer window", panels)


def _table(measured: Measured) -> Table:
    rows = tuple(
        (f"{others_s:g} s", name, each.mean_us, each.mean_comparisons)
        for others_s, by_name in measured.items()
        for name, each in by_name.items()
    )
    return Table("figure-13", "Figure 13: per tuple", ("other windows", "approach", "µs", "comparisons"), rows)


def _lca_claim(others_s: float, by_name: dict[str, ServiceTimes]) -> Claim:
    gca, lca = by_name[GCA], by_name[LCA]
    return shape_claim(
        f"hammad.figure13.{others_s:g}",
        f"LCA is faster than GCA where all windows but one are {others_s:g} s",
        "LCA outperforms GCA even for small variations",
        f"GCA {gca.mean_us:.2f} µs and {gca.mean_comparisons:,.0f} comparisons per tuple, LCA {lca.mean_us:.2f} µs and "
        f"{lca.mean_comparisons:,.0f}",
        holds=lca.mean_us < gca.mean_us,
        reason="LCA compares less, but searches for the start of each loop, which GCA does not need",
    )
