"""Search for the shares of rows with the highest output within a budget, with few evaluations of the cost model.

Output and cost are sums of products of shares. A product is a power of each share, so its logarithm is linear in the
logarithms of the shares. Around a point, each part of the cost (one operator, one window) is replaced by one such
product, whose powers follow from one evaluation per share (`PowerSum`). That model is climbed in closed form, the cost
model is evaluated where it ends, and the powers are fitted again there. So a search takes some tens of evaluations,
however small its steps are.

If the output is one product, as with time windows, the problem has one optimum (a geometric program). A sum of products
may have several, so a caller tries several starts.

References: Ayad, Naughton, section 5; Boyd, Kim, Vandenberghe, Hassibi, "A tutorial on geometric programming".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from watersmeet.planner.models.ayad_drops import KnapsackItem, Shares, climb_shares, continuous_knapsack, shrink_to_load

Floats = NDArray[np.float64]

#: Largest change of a share's logarithm in one round, and the change below which the search ends.
_FIRST_TRUST, _LAST_TRUST = math.log(8), 0.02
#: Powers are fitted over this part of that change.
_FIT_PART = 0.2
#: Maximum number of rounds, and the relative gain in output below which a round counts as none.
MAX_ROUNDS, _LEAST_GAIN = 12, 1e-4
#: Steps inside the model, which cost next to nothing.
_MODEL_FIRST_STEP, _MODEL_LAST_STEP = 0.5, 1e-4
#: The load of a point is brought this close to 1 during the search.
_NEAR_FULL = 1e-4
#: Streams of which at least this share is kept may be kept whole, and how many of them are tried.
_NEARLY_FULL, _MAX_WHOLE_TRIES = 0.6, 3
#: First step of the polish with the cost model itself.
_POLISH_STEP = 0.02


@dataclass(frozen=True, slots=True)
class MeasuredShares:
    """Costs and output at some shares, part by part: CPU seconds per second, bytes, and weighted rows per second."""

    cpu: Mapping[str, float]
    memory: Mapping[str, float]
    output: Mapping[str, float]

    @property
    def total_output(self) -> float:
        return sum(self.output.values())


@dataclass(frozen=True)
class ShareProblem:
    """Shares to choose, each between its lowest value and 1, and the costs and output that follow from them.

    The highest output is sought for which CPU and memory fit.

    >>> problem = ShareProblem(
    ...     {"a": 1e-6, "b": 1e-6},
    ...     lambda x: MeasuredShares({"a": x["a"], "b": 4 * x["b"]}, {}, {"join": x["a"] * x["b"]}),
    ...     cpu_per_s=1,
    ... )
    >>> {name: round(share, 2) for name, share in problem.climb({"a": 1.0, "b": 1.0}).items()}
    {'a': 0.5, 'b': 0.12}

    """

    lowest: Shares
    measure: Callable[[Shares], MeasuredShares]
    cpu_per_s: float
    memory_bytes: float | None = None
    _known: dict[tuple[float, ...], MeasuredShares] = field(default_factory=dict, compare=False, repr=False)

    def evaluate(self, shares: Shares) -> MeasuredShares:
        """Measure a point once."""
        key = tuple(shares[name] for name in self.lowest)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.measure(shares)
        return found

    def output(self, shares: Shares) -> float:
        return self.evaluate(shares).total_output

    def load(self, shares: Shares) -> float:
        """Return the used share of the scarcer resource."""
        found = self.evaluate(shares)
        memory = sum(found.memory.values()) / self.memory_bytes if self.memory_bytes is not None else 0.0
        return max(sum(found.cpu.values()) / self.cpu_per_s, memory)

    def fit_start(self, start: Mapping[str, float], near: float = _NEAR_FULL) -> Shares:
        """Return a start within the bounds, scaled down until it fits the budget."""
        shares = {name: min(max(start.get(name, 1.0), share), 1.0) for name, share in self.lowest.items()}
        return shrink_to_load(self.load, self.lowest, shares, near=near)

    def climb(self, start: Mapping[str, float], rounds: int = MAX_ROUNDS) -> Shares:
        """Return the best shares that climbing from a start finds; the lowest shares must fit."""
        best, trust = self.fit_start(start), _FIRST_TRUST
        for _ in range(rounds):
            moved = self.fit_start(_fit_model(self, best, trust * _FIT_PART).climb(self, best, trust))
            gain = self.output(moved) / self.output(best) - 1 if self.output(best) else math.inf
            if gain > 0:
                best = moved
            if gain < _LEAST_GAIN:
                trust /= 4
            if trust < _LAST_TRUST:
                break
        return best

    def unshed_nearly_full(self, shares: Shares) -> Shares:
        """Try to stop shedding each stream that is nearly full: a share of 1 saves the cost of sampling."""
        best, problem = shares, self
        nearly = sorted((name for name, share in shares.items() if _NEARLY_FULL <= share < 1), key=lambda n: -shares[n])
        for name in nearly[:_MAX_WHOLE_TRIES]:
            bounded = replace(problem, lowest={**problem.lowest, name: 1.0})
            if bounded.load(bounded.lowest) <= 1:
                found = bounded.climb(best)
                best, problem = (found, bounded) if self.output(found) > self.output(best) else (best, problem)
        return best

    def polish(self, shares: Shares) -> Shares:
        """Climb on in small steps with the cost model itself, where the fitted powers are not exact enough."""
        return climb_shares(self.output, self.load, self.lowest, shares, first_step=_POLISH_STEP)


@dataclass(frozen=True)
class PowerSum:
    """A sum of products of powers: Σ_k value_k · exp(Σ_i power_ki · move_i), where a move is the change of a logarithm.

    >>> PowerSum(np.array([2.0, 3.0]), np.array([[1.0], [2.0]])).slopes(np.array([0.0]))
    (5.0, array([8.]))

    """

    values: Floats
    powers: Floats

    def at(self, moves: Floats) -> float:
        return float((self.values * np.exp(self.powers @ moves)).sum())

    def slopes(self, moves: Floats) -> tuple[float, Floats]:
        """Return the sum and its derivatives."""
        parts = self.values * np.exp(self.powers @ moves)
        return float(parts.sum()), parts @ self.powers


@dataclass(frozen=True)
class _FittedModel:
    """Output, and the used share of each limited resource, around a point."""

    output: PowerSum
    loads: tuple[PowerSum, ...]

    def climb(self, problem: ShareProblem, shares: Shares, trust: float) -> Shares:
        """Return the best shares of the model, with logarithms at most `trust` away."""
        logs = np.log(list(shares.values()))
        low = np.maximum(np.log(list(problem.lowest.values())) - logs, -trust)
        high = np.minimum(-logs, trust)
        best, step = self._shrink(np.zeros(logs.size), low), _MODEL_FIRST_STEP
        while step > _MODEL_LAST_STEP:
            moved = self._shrink(self._step(best, np.maximum(low, best - step), np.minimum(high, best + step)), low)
            if self.output.at(moved) > self.output.at(best) * (1 + 1e-9):
                best = moved
            else:
                step /= 2
        return dict(zip(shares, np.minimum(np.exp(logs + best), 1.0).tolist(), strict=True))

    def _step(self, moves: Floats, low: Floats, high: Floats) -> Floats:
        """Return the best point of a box by the slopes: a continuous knapsack."""
        _, gains = self.output.slopes(moves)
        used, costs = max((load.slopes(moves) for load in self.loads), key=lambda each: each[0])
        gains, costs = np.maximum(gains, 0.0), np.maximum(costs, 0.0)
        items = [
            KnapsackItem(gain * width, cost * width)
            for gain, cost, width in zip(gains.tolist(), costs.tolist(), (high - low).tolist(), strict=True)
        ]
        taken = continuous_knapsack(items, max(1 - used - float(costs @ (low - moves)), 0.0))
        return low + np.array(taken) * (high - low)

    def _shrink(self, moves: Floats, low: Floats) -> Floats:
        """Lower all moves by the same amount, but none below its bound, until the load is at most 1."""
        if self._load(moves) <= 1:
            return moves
        fits, too_much = float((moves - low).max()), 0.0
        for _ in range(40):
            middle = (fits + too_much) / 2
            fits, too_much = (middle, too_much) if self._load(np.maximum(moves - middle, low)) <= 1 else (fits, middle)
        return np.maximum(moves - fits, low)

    def _load(self, moves: Floats) -> float:
        return max(load.at(moves) for load in self.loads)


def _fit_model(problem: ShareProblem, shares: Shares, distance: float) -> _FittedModel:
    """Fit the power of each share in each part of costs and output, by one evaluation per share."""
    base, nudged, moves = problem.evaluate(shares), [], []
    for name, share in shares.items():
        move = -distance if share * math.exp(-distance) >= problem.lowest[name] else distance
        nudged.append(problem.evaluate({**shares, name: share * math.exp(move)}))
        moves.append(move)

    def fit(part: Callable[[MeasuredShares], Mapping[str, float]], limit: float) -> PowerSum:
        known = {name: value for name, value in part(base).items() if value > 0}
        powers = [
            [
                math.log(part(other)[name] / value) / move if part(other).get(name, 0.0) > 0 else 0.0
                for other, move in zip(nudged, moves, strict=True)
            ]
            for name, value in known.items()
        ]
        values = np.array(list(known.values())) / limit
        return PowerSum(values, np.array(powers).reshape(len(known), len(moves)))

    loads = [fit(lambda found: found.cpu, problem.cpu_per_s)]
    if problem.memory_bytes is not None:
        loads.append(fit(lambda found: found.memory, problem.memory_bytes))
    return _FittedModel(fit(lambda found: found.output, 1.0), tuple(loads))
