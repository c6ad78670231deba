"""Drop boxes in front of time windows, which the paper leaves out: a time window thins out with its stream, so shares
multiply.

In the logarithms of the shares, CPU and memory are convex, and with nothing but time windows the logarithm of the
output is linear: there is one best point. It is found by small steps, each of them a continuous knapsack over how much
output and load change (sequential linear programming). With count and time windows mixed the point found is the best in
its neighbourhood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from watersmeet.planner.models.ayad import Budget, PlanNode, plan_cost, sources_of
from watersmeet.planner.models.knapsack import Item, continuous_knapsack

Shares = dict[str, float]
#: What comes out, or the share of the scarcer resource that is taken, when these shares are kept.
Measure = Callable[[Shares], float]

#: Shares below this are none; logarithms need something to hold on to.
_LEAST = 1e-6
_FIRST_STEP, LAST_STEP = 0.5, 1e-4
_NUDGE = 1e-6
_NEAR = 1e-9


def thinned_shares(plan: PlanNode, budget: Budget, least: Mapping[str, float]) -> Shares:
    """The share of each source to keep so that the plan's output is the highest within the budget, which must hold the
    least shares.

    >>> from watersmeet.planner.models.ayad import SideCosts, Source, WindowJoin
    >>> cost = SideCosts(probe_s=0.05)
    >>> plan = WindowJoin(Source("a", 20, window_s=10), Source("b", 80, window_s=10), 0.5, None, cost, cost)
    >>> {name: round(share, 4) for name, share in thinned_shares(plan, Budget(), {"a": 0, "b": 0}).items()}
    {'a': 0.5, 'b': 0.125}
    """
    wanted = {source.name: least.get(source.name, 0.0) for source in sources_of(plan)}
    return climb(
        lambda shares: plan_cost(plan, shares).output.rows_per_s,
        lambda shares: budget.load(plan_cost(plan, shares)),
        wanted,
    )


def climb(
    output: Measure,
    load: Measure,
    least: Mapping[str, float],
    start: Mapping[str, float] | None = None,
    last_step: float = LAST_STEP,
) -> Shares:
    """The shares of the highest output with a load of at most 1, none below its least, going up from a start (by
    default everything).

    >>> shares = climb(lambda kept: kept["a"] * kept["b"], lambda kept: kept["a"] + 4 * kept["b"], {"a": 0, "b": 0})
    >>> {name: round(share, 3) for name, share in shares.items()}
    {'a': 0.5, 'b': 0.125}
    """
    lowest = {name: max(share, _LEAST) for name, share in least.items()}
    begun = {name: max((start or {}).get(name, 1.0), share) for name, share in lowest.items()}
    best, step = shrunk(load, lowest, begun), _FIRST_STEP
    while step > last_step:
        moved = _moved(output, load, lowest, best, step)
        if output(moved) > output(best) * (1 + 1e-12):
            best = moved
        else:
            step /= 2
    return best


def shrunk(load: Measure, lowest: Mapping[str, float], shares: Shares) -> Shares:
    """All shares scaled down alike, none below its lowest, until the load is at most 1."""
    heavy = load(shares)
    if heavy <= 1:
        return shares
    fits, too_much = 0.0, 1.0
    light = load(_scaled(shares, fits, lowest))
    for _ in range(60):
        if light >= 1 - _NEAR or too_much - fits <= _NEAR * too_much:
            break
        # The load is nearly a straight line between the two; a little off the line keeps either end from staying where
        # it is.
        guess = min(max((1 - _NEAR / 2 - light) / (heavy - light), 0.02), 0.98)
        scale = fits + guess * (too_much - fits)
        reached = load(_scaled(shares, scale, lowest))
        if reached <= 1:
            fits, light = scale, reached
        else:
            too_much, heavy = scale, reached
    return _scaled(shares, fits, lowest)


def _moved(output: Measure, load: Measure, lowest: Shares, shares: Shares, step: float) -> Shares:
    """The best exchange of at most `step` in each logarithm, as far as slopes tell, brought back within the load."""
    below = {name: max(math.log(lowest[name] / share), -step) for name, share in shares.items()}
    above = {name: min(-math.log(share), step) for name, share in shares.items()}
    whole, taken_now = output(shares), load(shares)
    items, spare = [], 1 - taken_now
    for name, share in shares.items():
        width = above[name] - below[name]
        nudged = {**shares, name: share * (1 - _NUDGE)}
        gain, cost = (whole - output(nudged)) / _NUDGE, (taken_now - load(nudged)) / _NUDGE
        items.append(Item(max(gain, 0.0) * width, max(cost, 0.0) * width))
        spare -= max(cost, 0.0) * below[name]
    taken = continuous_knapsack(items, max(spare, 0.0))
    moves = {name: below[name] + part * (above[name] - below[name]) for name, part in zip(shares, taken, strict=True)}
    return shrunk(load, lowest, {name: min(1.0, share * math.exp(moves[name])) for name, share in shares.items()})


def _scaled(shares: Shares, scale: float, lowest: Mapping[str, float]) -> Shares:
    return {name: max(share * scale, lowest[name]) for name, share in shares.items()}
