"""Runs of the paper's algorithms on its generator, and linear fits of their times.

Runs count comparisons and measure CPU time; alternatives run in turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.planner.models.golab import Order
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.workloads.golab_streams import GolabRunResult, StreamSpec, run_join, stream_names, unit_us

#: Rates closer than this count as equal: on a busy machine, the same plan on the same rows varies by a few per cent.
TIE_SHARE = 0.05


def run_fastest(
    effort: Effort, streams: tuple[StreamSpec, ...], plans: Mapping[str, Plan], rows: int
) -> dict[str, GolabRunResult]:
    """Return the run of each plan with the least CPU time; plans run in turns on the same rows.

    With new rows in each turn, the least time would be that of the easiest rows, and plans would be compared on
    different data.
    """
    best: dict[str, GolabRunResult] = {}
    for turn in range(effort.repeats + 1):  # the first turn warms up
        for label, plan in plans.items():
            ran = run_join(streams, plan, rows, balanced=True, only_count=True)
            if turn and (label not in best or ran.cpu_s_per_row < best[label].cpu_s_per_row):
                best[label] = ran
    return best


def count_comparisons(streams: tuple[StreamSpec, ...], plan: Plan, units: int) -> float:
    """Return comparisons per unit of time over a run of `units` units.

    Values come from shuffled decks, so that short runs average out.
    """
    return run_join(streams, plan, units * unit_us(streams), balanced=True, only_count=True).comparisons_per_unit


def origin_first_orders(streams: tuple[StreamSpec, ...]) -> list[Order]:
    """Return one order per origin: the origin first, then the other streams in their own order."""
    return [(origin, *(each for each in range(len(streams)) if each != origin)) for origin in range(len(streams))]


def stream_names_in_order(streams: tuple[StreamSpec, ...], order: Sequence[int]) -> list[str]:
    return [stream_names(streams)[each] for each in order]


def lazy_plan(
    algorithm: str,
    streams: tuple[StreamSpec, ...],
    tau: float,
    order: Order | Sequence[Order],
    buckets: Sequence[int] = (),
) -> Plan:
    """Return a plan that evaluates and expires every τ units, with one order for all origins or one per origin."""
    interval = f"{round(tau * unit_us(streams))} microseconds"
    per_origin = [each for each in order if not isinstance(each, int)]
    orders = (
        dict(zip(stream_names(streams), (stream_names_in_order(streams, each) for each in per_origin), strict=True))
        if per_origin
        else None
    )
    indexes = {name: f"hash({count})" for name, count in zip(stream_names(streams), buckets, strict=False)}
    chosen = orders or stream_names_in_order(streams, [each for each in order if isinstance(each, int)])
    return wm.plan(algorithm, order=chosen, indexes=indexes, evaluate=interval, expire=interval)


@dataclass(frozen=True, slots=True)
class LinearFit:
    """A time as a constant plus a weight per unit of each quantity.

    `explained_share` is the share of the variance over the points that the fit explains.
    """

    constant: float
    per_unit: tuple[float, ...]
    explained_share: float

    def predict(self, *quantities: float) -> float:
        return self.constant + sum(
            weight * quantity for weight, quantity in zip(self.per_unit, quantities, strict=True)
        )


def fit_linear(times: Sequence[float], *quantities: Sequence[float]) -> LinearFit:
    """Fit measured times to counted quantities by least squares.

    >>> fit = fit_linear([5.0, 7.0, 9.0, 11.0], [1, 2, 3, 4])
    >>> [round(each, 6) for each in (fit.constant, fit.per_unit[0], fit.explained_share, fit.predict(10))]
    [3.0, 2.0, 1.0, 23.0]
    """
    measured = np.asarray(times, np.float64)
    known = np.column_stack([np.ones(measured.size), *(np.asarray(each, np.float64) for each in quantities)])
    weights = np.linalg.lstsq(known, measured, rcond=None)[0]
    residual, variance = (
        float(np.sum((measured - known @ weights) ** 2)),
        float(np.sum((measured - measured.mean()) ** 2)),
    )
    constant, *per_unit = weights.tolist()
    return LinearFit(constant, tuple(per_unit), 1 - residual / variance if variance else 1.0)
