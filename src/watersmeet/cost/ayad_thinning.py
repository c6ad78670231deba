"""Drop boxes in front of time windows, which the paper leaves out: a time window thins out with its stream, so shares multiply.

In the logarithms of the shares, CPU and memory are convex, and with nothing but time windows the logarithm of the output is linear: there
is one best point. It is found by small steps, each of them a continuous knapsack over how much output and load change (sequential linear
programming). With count and time windows mixed the point found is the best in its neighbourhood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from watersmeet.cost.ayad import Budget, PlanNode, plan_cost, sources_of
from watersmeet.cost.knapsack import Item, continuous_knapsack

Shares = dict[str, float]

#: Shares below this are none; logarithms need something to hold on to.
_LEAST = 1e-6
_FIRST_STEP, _LAST_STEP = 0.5, 1e-4
_NUDGE = 1e-6


def thinned_shares(plan: PlanNode, budget: Budget, least: Mapping[str, float]) -> Shares:
    """The share of each source to keep so that the plan's output is the highest within the budget, which must hold the least shares.

    >>> from watersmeet.cost.ayad import SideCosts, Source, WindowJoin
    >>> cost = SideCosts(probe_s=0.05)
    >>> plan = WindowJoin(Source("a", 20, window_s=10), Source("b", 80, window_s=10), 0.5, None, cost, cost)
    >>> {name: round(share, 4) for name, share in thinned_shares(plan, Budget(), {"a": 0, "b": 0}).items()}
    {'a': 0.5, 'b': 0.125}
    """
    lowest = {source.name: max(least.get(source.name, 0.0), _LEAST) for source in sources_of(plan)}
    best = _shrunk(plan, budget, lowest, dict.fromkeys(lowest, 1.0))
    step = _FIRST_STEP
    while step > _LAST_STEP:
        moved = _moved(plan, budget, lowest, best, step)
        if _output(plan, moved) > _output(plan, best) * (1 + 1e-12):
            best = moved
        else:
            step /= 2
    return best


def _moved(plan: PlanNode, budget: Budget, lowest: Shares, shares: Shares, step: float) -> Shares:
    """The best exchange of at most `step` in each logarithm, as far as slopes tell, brought back within the budget."""
    below = {name: max(math.log(lowest[name] / share), -step) for name, share in shares.items()}
    above = {name: min(-math.log(share), step) for name, share in shares.items()}
    items, spare = [], 1 - _load(plan, budget, shares)
    for name, share in shares.items():
        width = above[name] - below[name]
        nudged = {**shares, name: share * (1 - _NUDGE)}
        gain = (_output(plan, shares) - _output(plan, nudged)) / _NUDGE
        cost = (_load(plan, budget, shares) - _load(plan, budget, nudged)) / _NUDGE
        items.append(Item(max(gain, 0.0) * width, max(cost, 0.0) * width))
        spare -= max(cost, 0.0) * below[name]
    taken = continuous_knapsack(items, max(spare, 0.0))
    moves = {name: below[name] + part * (above[name] - below[name]) for name, part in zip(shares, taken, strict=True)}
    return _shrunk(plan, budget, lowest, {name: min(1.0, share * math.exp(moves[name])) for name, share in shares.items()})


def _shrunk(plan: PlanNode, budget: Budget, lowest: Shares, shares: Shares) -> Shares:
    """All shares scaled down alike, none below its lowest, until the plan keeps up."""
    if _load(plan, budget, shares) <= 1:
        return shares
    fits, too_much = 0.0, 1.0
    for _ in range(40):
        scale = (fits + too_much) / 2
        if _load(plan, budget, _scaled(shares, scale, lowest)) <= 1:
            fits = scale
        else:
            too_much = scale
    return _scaled(shares, fits, lowest)


def _scaled(shares: Shares, scale: float, lowest: Shares) -> Shares:
    return {name: max(share * scale, lowest[name]) for name, share in shares.items()}


def _output(plan: PlanNode, shares: Shares) -> float:
    return plan_cost(plan, shares).output.rows_per_s


def _load(plan: PlanNode, budget: Budget, shares: Shares) -> float:
    return budget.load(plan_cost(plan, shares))
