"""A window join under limited CPU and memory: which stream gets the probes, which the memory, and the output rate.

A `Pair` holds a quantity for stream A and for stream B. The probed and stored rows are assumed to be a random sample of
the arrivals.

References: Kang, Naughton, Viglas, section 5.2, Figures 5 to 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from watersmeet.errors import PlanError, listing
from watersmeet.planner.models.checks import check_not_negative, check_positive, check_selectivity


class Pair(NamedTuple):
    """A quantity of stream A and of stream B."""

    a: float
    b: float


NO_MINIMUM = Pair(0.0, 0.0)

#: Rounds in which probes and windows are improved in turn.
_VARIANCE_ROUNDS = 20
#: Smallest share in a quotient, so that nothing is divided by zero.
_MIN_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class LimitedJoin:
    """A join of two streams: arrivals per second, rows of the full windows, and the selectivity σ = min(σa, σb).

    A window may be empty, if a row of its stream is never the earlier row of a pair.
    """

    rows_per_s: Pair
    window_rows: Pair
    selectivity: float

    def __post_init__(self) -> None:
        for rate, rows in zip(self.rows_per_s, self.window_rows, strict=True):
            check_positive(rate, "the rate of a stream")
            check_not_negative(rows, "the rows of a window")
        check_selectivity(self.selectivity, "the selectivity of a join")


def output_rows_per_s(probes_per_s: Pair, window_rows: Pair, selectivity: float) -> float:
    """Estimate the output rate σ(λa·B + λb·A): each probe matches the share σ of the other window.

    >>> output_rows_per_s(Pair(100, 0), Pair(100, 200), 0.01)
    200.0

    References: Kang, Naughton, Viglas, eq. 12.
    """
    return selectivity * (probes_per_s.a * window_rows.b + probes_per_s.b * window_rows.a)


CPU_STRATEGIES: dict[str, Callable[[LimitedJoin], Pair]] = {
    "MaxA": lambda join: Pair(1, 0),
    "MaxB": lambda join: Pair(0, 1),
    "by rate": lambda join: join.rows_per_s,
    "by window": lambda join: join.window_rows,
    "equal": lambda join: Pair(1, 1),
}

MEMORY_STRATEGIES: dict[str, Callable[[LimitedJoin], Pair]] = {
    "MaxA": lambda join: Pair(1, 0),
    "MaxB": lambda join: Pair(0, 1),
    "proportional": lambda join: join.rows_per_s,
    "inverse": lambda join: Pair(1 / join.rows_per_s.a, 1 / join.rows_per_s.b),
    "equal": lambda join: Pair(1, 1),
}


def served_rates(join: LimitedJoin, service_per_s: float, strategy: str, at_least: Pair = NO_MINIMUM) -> Pair:
    """Divide the service rate `service_per_s` (μ) into probes per second of each stream, by the named strategy.

    >>> served_rates(LimitedJoin(Pair(800, 200), Pair(100, 200), 0.01), 100, "by rate")
    Pair(a=80.0, b=20.0)

    References: Kang, Naughton, Viglas, eq. 13.
    """
    return divide_total(service_per_s, _strategy(CPU_STRATEGIES, strategy)(join), at_least, at_most=join.rows_per_s)


def kept_rows(join: LimitedJoin, memory_rows: float, strategy: str, at_least: Pair = NO_MINIMUM) -> Pair:
    """Divide the memory `memory_rows` (M) into rows stored of each window, by the named strategy.

    >>> kept_rows(LimitedJoin(Pair(10, 50), Pair(1000, 1000), 0.005), 1000, "MaxA")
    Pair(a=1000.0, b=0.0)

    References: Kang, Naughton, Viglas, eq. 15.
    """
    return divide_total(memory_rows, _strategy(MEMORY_STRATEGIES, strategy)(join), at_least, at_most=join.window_rows)


def best_served_rates(join: LimitedJoin, service_per_s: float, at_least: Pair = NO_MINIMUM) -> Pair:
    """Give all probes beyond the other stream's minimum to the stream that probes the larger window.

    The output grows by σ(B − A) per probe moved.

    >>> best_served_rates(LimitedJoin(Pair(800, 200), Pair(500, 1000), 0.01), 100, at_least=Pair(10, 10))
    Pair(a=90.0, b=10.0)

    References: Kang, Naughton, Viglas, eq. 14.
    """
    return served_rates(join, service_per_s, "MaxA" if join.window_rows.b >= join.window_rows.a else "MaxB", at_least)


def best_kept_rows(join: LimitedJoin, memory_rows: float, at_least: Pair = NO_MINIMUM) -> Pair:
    """Give all memory beyond the other stream's minimum to the window of the slower stream.

    The output grows by σ(λb − λa) per row moved.

    >>> best_kept_rows(LimitedJoin(Pair(10, 50), Pair(1000, 1000), 0.005), 1000)
    Pair(a=1000.0, b=0.0)

    References: Kang, Naughton, Viglas, eq. 16.
    """
    return kept_rows(join, memory_rows, "MaxA" if join.rows_per_s.b >= join.rows_per_s.a else "MaxB", at_least)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Probes per second and window rows of each stream, with the resulting output rate."""

    probes_per_s: Pair
    window_rows: Pair
    output_rows_per_s: float


def allocate(join: LimitedJoin, probes_per_s: Pair, window_rows: Pair) -> Allocation:
    """Return the allocation with its output rate."""
    return Allocation(probes_per_s, window_rows, output_rows_per_s(probes_per_s, window_rows, join.selectivity))


def best_allocation(
    join: LimitedJoin,
    service_per_s: float,
    memory_rows: float,
    at_least_per_s: Pair = NO_MINIMUM,
    at_least_rows: Pair = NO_MINIMUM,
) -> Allocation:
    """Return the allocation with the highest output when both CPU and memory are limited.

    One stream gets the window, the other the probes. The output is σμM if neither limit binds. It is linear in the
    probes for given windows and in the windows for given probes, so the best allocation is one of the four extremes.

    >>> best_allocation(LimitedJoin(Pair(50, 50), Pair(500, 500), 0.01), 10, 100).output_rows_per_s
    10.0

    References: Kang, Naughton, Viglas, eqs. 17 to 19.
    """
    extremes = [
        allocate(
            join,
            served_rates(join, service_per_s, probes, at_least_per_s),
            kept_rows(join, memory_rows, windows, at_least_rows),
        )
        for probes in ("MaxA", "MaxB")
        for windows in ("MaxB", "MaxA")
    ]
    return max(extremes, key=lambda each: each.output_rows_per_s)


def least_variance_allocation(
    join: LimitedJoin,
    service_per_s: float,
    memory_rows: float,
    at_least_per_s: Pair = NO_MINIMUM,
    at_least_rows: Pair = NO_MINIMUM,
) -> Allocation:
    """Divide probes and memory so that the estimated number of pairs has the smallest variance.

    A pair of a direction is kept with the probability x·w, its probe share times its window share. So the variance
    grows as Σ N/(x·w) over the two directions, where N = λ·W·σ is the number of pairs. For given windows, the best
    probe share is proportional to √(W/w) of the probed window. For given probes, the best window share is proportional
    to √(λ/x) of the probing stream. The two are improved in turn.

    The allocation with the highest output would give nothing to one direction. Then the pairs of that direction could
    not be estimated. This allocation always gives something to both.

    >>> least_variance_allocation(LimitedJoin(Pair(800, 200), Pair(100, 100), 0.01), 100, 200).probes_per_s
    Pair(a=80.0, b=20.0)

    """
    windows = divide_total(memory_rows, join.window_rows, at_least_rows, at_most=join.window_rows)
    probes = join.rows_per_s
    for _ in range(_VARIANCE_ROUNDS):
        held = [
            max(kept / full, _MIN_SHARE) if full else 1.0 for kept, full in zip(windows, join.window_rows, strict=True)
        ]
        needed = [math.sqrt(full / share) for full, share in zip(join.window_rows, held, strict=True)]
        proportion = Pair(*(rate * need for rate, need in zip(join.rows_per_s, reversed(needed), strict=True)))
        probes = divide_total(service_per_s, proportion, at_least_per_s, at_most=join.rows_per_s)
        served = [max(probing / rate, _MIN_SHARE) for probing, rate in zip(probes, join.rows_per_s, strict=True)]
        needed = [math.sqrt(rate / share) for rate, share in zip(join.rows_per_s, served, strict=True)]
        proportion = Pair(*(full * need for full, need in zip(join.window_rows, reversed(needed), strict=True)))
        windows = divide_total(memory_rows, proportion, at_least_rows, at_most=join.window_rows)
    return allocate(join, probes, windows)


def divide_total(total: float, proportion: Pair, at_least: Pair, at_most: Pair) -> Pair:
    """Divide `total` in the given proportion, within the minimum and maximum of each side.

    The excess of one side goes to the other. If both proportions are zero, both sides get the same.

    >>> divide_total(100, proportion=Pair(3, 1), at_least=NO_MINIMUM, at_most=Pair(60, 80))
    Pair(a=60.0, b=40.0)

    """
    check_not_negative(total, "the amount to divide", PlanError)
    for least, most in zip(at_least, at_most, strict=True):
        check_not_negative(least, "a minimum", PlanError)
        if least > most:
            raise PlanError(f"a minimum of {least:g} exceeds the {most:g} available")
    if sum(at_least) > total:
        raise PlanError(f"minimums of {at_least.a:g} and {at_least.b:g} exceed the {total:g} available")
    total = min(total, sum(at_most))
    share_a = total * (proportion.a / (proportion.a + proportion.b) if any(proportion) else 0.5)
    a = min(max(share_a, at_least.a, total - at_most.b), at_most.a, total - at_least.b)
    return Pair(float(a), float(total - a))


def _strategy(strategies: dict[str, Callable[[LimitedJoin], Pair]], name: str) -> Callable[[LimitedJoin], Pair]:
    if name not in strategies:
        raise PlanError(f'there is no strategy "{name}"', hint=f"strategies: {listing(list(strategies))}")
    return strategies[name]
