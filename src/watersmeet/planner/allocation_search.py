"""Probe shares and window shares of two streams with the highest output within a budget.

Output is σ(λa·B + λb·A), with the probes and windows that are kept. For given windows it is linear in the probe shares,
and so is nearly all CPU time: a continuous knapsack with two items. So the window shares are searched on a grid, and
the knapsack gives the probe shares for each point. CPU time between the corners of a box of shares is interpolated. The
box shrinks around the best point, so that the interpolation becomes exact there.

If one resource is short, the best allocation is the paper's: all probes to the stream that probes the larger window,
all memory to the window of the slower stream.

References: Kang, Naughton, Viglas, section 5.2, eqs. 12 to 19.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.operators.shed.allocation import build_allocated_operator
from watersmeet.operators.shed.sampling import RoleShares
from watersmeet.planner.cost_of_allocation import AllocationCosts, PairShares
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.plan_cost import CostedPlan
from watersmeet.planner.shed_search import Approximation, round_share

#: Number of plans whose shares are searched: those that need the smallest part of the budget for all rows.
SEARCHED_PLANS = 3
#: Points per window share, and how often the box shrinks around the best point.
_GRID_POINTS, _ROUNDS = 41, 3
#: Half the width of a shrunk box, as a factor on the shares.
_BOX_FACTOR = 1.6
#: Smallest share in a cost estimate, and the share below which a role is not used at all.
_MIN_SHARE, _UNUSED_SHARE = 1e-6, 1e-4
#: Relative gain in output that counts as none.
_LEAST_GAIN = 1e-3

Floats = NDArray[np.float64]
#: Probe share of the first stream and of the second, then their window shares.
Point = tuple[float, float, float, float]


def find_allocation(
    costs: AllocationCosts, plans: Sequence[Plan], policy: SheddingPolicy = DEFAULT_POLICY, seed: int = 0
) -> Approximation:
    """Find the plan and the shares with the highest output within the budget; on a tie, the cheaper plan.

    Raise `PlanError` if no allocation keeps up, or if the query cannot have one.
    """
    searched = _choose_plans(costs, plans)
    found = [each for plan in searched if (each := _AllocationSearch(costs, plan, policy, seed).find()) is not None]
    if not found:
        raise PlanError("no division of probes and windows keeps up", hint="a larger budget is needed")
    most = max(each.costed.cost.rows_out_per_s for each in found)
    best = [each for each in found if each.costed.cost.rows_out_per_s >= most * (1 - _LEAST_GAIN)]
    return min(best, key=lambda each: each.costed.cost.cpu_per_s)


def to_shares(point: Point) -> PairShares:
    """Return the shares of both streams."""
    return RoleShares(point[0], point[2]), RoleShares(point[1], point[3])


def allocate_plan(aliases: Sequence[str], plan: Plan, shares: PairShares, seed: int = 0) -> Plan:
    """Return the plan with these shares of probing and of stored rows."""
    return replace(
        plan,
        drop=(),
        drop_seed=seed,
        probe=tuple((alias, each.probe) for alias, each in zip(aliases, shares, strict=True)),
        window=tuple((alias, each.window) for alias, each in zip(aliases, shares, strict=True)),
    )


def _choose_plans(costs: AllocationCosts, plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans that can run as directed joins, and need the smallest part of the budget for all rows."""
    whole = RoleShares()
    by_load = sorted(plans, key=lambda plan: costs.context.budget.load(costs.cost(plan, (whole, whole)).cost))
    return list(islice((plan for plan in by_load if _can_run(costs, plan)), SEARCHED_PLANS))


def _can_run(costs: AllocationCosts, plan: Plan) -> bool:
    whole = RoleShares()
    bare = replace(plan, orders=(), global_order=(), tree=None)
    try:
        build_allocated_operator(costs.bound, allocate_plan(costs.bound.query.aliases, bare, (whole, whole)))
    except PlanError:
        return False
    return plan.tree is None and not plan.evaluate_us


@dataclass(frozen=True)
class _AllocationSearch:
    """Search of the shares of one plan."""

    costs: AllocationCosts
    plan: Plan
    policy: SheddingPolicy
    seed: int

    def find(self) -> Approximation | None:
        """Return the plan with its best shares, or None if not even the least shares keep up."""
        least, outputs = self._find_least_shares(), self._weighted_outputs()
        low: Point = tuple(max(share, _MIN_SHARE) for share in least)  # type: ignore[assignment]  # four of four
        if self._load(low) > 1:
            return None
        corners = [(low, (1.0, 1.0, 1.0, 1.0))]
        # A direction that is left out costs nothing, which no interpolation shows.
        corners += [
            (_leave_out(low, probe), _leave_out((1.0, 1.0, 1.0, 1.0), probe)) for probe in (0, 1) if not sum(least)
        ]
        found = [self._round(self._climb(*box, outputs), least) for box in corners]
        return self._approximate(max(found, key=lambda point: _output(point, outputs)))

    def _climb(self, low: Point, high: Point, outputs: tuple[float, float]) -> Point:
        """Search a box, then smaller boxes around the best point."""
        best, box = low, (low, high)
        for _ in range(_ROUNDS):
            found = self._fit(self._search_box(*box, outputs), low)
            best = max(best, found, key=lambda point: _output(point, outputs))
            box = _shrink_box(best, low, high)
        return best

    def _find_least_shares(self) -> Point:
        rates, sources = self.costs.context.rates, self.costs.bound.sources
        a, b = (
            min(1.0, self.policy.least_rows_per_s.get(each.schema.name, 0.0) / rates[each.schema.name])
            if rates[each.schema.name]
            else 0.0
            for each in sources
        )
        return a, b, a, b

    def _weighted_outputs(self) -> tuple[float, float]:
        """Return the output of each direction if nothing is shed, times the weight of the stream that probes."""
        first, second = (
            rows * self.policy.weights.get(each.schema.name, 1.0)
            for rows, each in zip(self.costs.outputs_per_s(self.plan), self.costs.bound.sources, strict=True)
        )
        return first, second

    def _load(self, point: Point) -> float:
        return self.costs.context.budget.load(self.costs.cost(self.plan, to_shares(point)).cost)

    def _search_box(self, low: Point, high: Point, outputs: tuple[float, float]) -> Point:
        """Return the best point of a box by costs that are interpolated between its corners."""
        budget = self.costs.context.budget
        cpu, memory = self._measure_corners(low, high)
        grids = [np.linspace(low[i], high[i], _GRID_POINTS) for i in (2, 3)]
        stored_a, stored_b = np.meshgrid(*grids, indexing="ij")
        parts = [_position(stored, low[i], high[i]) for i, stored in ((2, stored_a), (3, stored_b))]
        base = _interpolate(cpu[0, 0], *parts)
        free = budget.cpu_per_s - base
        slopes = [
            np.maximum(_interpolate(corner, *parts) - base, 1e-15) / max(high[i] - low[i], 1e-15)
            for i, corner in ((0, cpu[1, 0]), (1, cpu[0, 1]))
        ]
        gains = [outputs[0] * stored_b, outputs[1] * stored_a]
        probes = _fill_probes(free, slopes, gains, low, high)
        output = gains[0] * probes[0] + gains[1] * probes[1]
        fits = free >= 0
        if budget.memory_bytes is not None:
            fits &= _interpolate(memory, *parts) <= budget.memory_bytes
        if not fits.any():
            return low
        # Of equal outputs the point that stores the fewest rows is best: rows that are never probed cost time.
        rank = np.where(fits, output - 1e-9 * output.max() * (stored_a + stored_b), -np.inf)
        place = np.unravel_index(int(rank.argmax()), rank.shape)
        return tuple(float(each[place]) for each in (*probes, stored_a, stored_b))  # type: ignore[return-value]

    def _measure_corners(self, low: Point, high: Point) -> tuple[Floats, Floats]:
        """Return CPU seconds per second by corner of the box, and bytes by corner of the window shares."""
        cpu, memory = np.empty((2, 2, 2, 2)), np.empty((2, 2))
        for corner in product((0, 1), repeat=4):
            if corner[0] and corner[1]:
                continue  # the two directions do not share their probes
            point = tuple(high[i] if side else low[i] for i, side in enumerate(corner))
            cost = self.costs.cost(self.plan, to_shares(point)).cost  # type: ignore[arg-type]
            cpu[corner] = cost.cpu_per_s
            if not corner[0] and not corner[1]:
                memory[corner[2], corner[3]] = cost.state_bytes
        return cpu, memory

    def _fit(self, point: Point, low: Point) -> Point:
        """Move window shares towards the least until memory fits, then probe shares until CPU time fits."""
        budget = self.costs.context.budget
        memory = budget.memory_bytes

        def fits_memory(at: Point) -> bool:
            return memory is None or self.costs.cost(self.plan, to_shares(at)).cost.state_bytes <= memory

        point = _retreat(point, (point[0], point[1], low[2], low[3]), fits_memory)
        point = _retreat(point, (low[0], low[1], point[2], point[3]), lambda at: self._load(at) <= 1)
        return _retreat(point, low, lambda at: self._load(at) <= 1)

    def _round(self, point: Point, least: Point) -> Point:
        """Round shares down, and leave out a role that hardly any row has, or that finds nothing."""
        probe_a, probe_b, window_a, window_b = (
            0.0 if share < _UNUSED_SHARE and not minimum else round_share(share, minimum)
            for share, minimum in zip(point, least, strict=True)
        )
        first, second = self._weighted_outputs()
        found = first * probe_a * window_b, second * probe_b * window_a
        if found[0] <= _LEAST_GAIN * sum(found):
            probe_a, window_b = least[0], least[3]
        if found[1] <= _LEAST_GAIN * sum(found):
            probe_b, window_a = least[1], least[2]
        return probe_a, probe_b, window_a, window_b

    def _approximate(self, point: Point) -> Approximation:
        shares = to_shares(point)
        costed = self.costs.cost(self.plan, shares)
        plan = allocate_plan(self.costs.bound.query.aliases, costed.plan, shares, self.seed)
        keep = tuple(
            (each.schema.name, share.kept_share) for each, share in zip(self.costs.bound.sources, shares, strict=True)
        )
        return Approximation(CostedPlan(plan, costed.cost), keep, sum(self.costs.outputs_per_s(self.plan)))


def _fill_probes(
    free: Floats, slopes: list[Floats], gains: list[Floats], low: Point, high: Point
) -> tuple[Floats, Floats]:
    """Solve the knapsack of the two probe shares at every point: the direction with more output per CPU comes first."""
    first_is_denser = gains[0] * slopes[1] >= gains[1] * slopes[0]
    room = [high[i] - low[i] for i in (0, 1)]
    free = np.maximum(free, 0.0)
    taken_first = [np.minimum(room[i], free / slopes[i]) for i in (0, 1)]
    rest = [np.maximum(free - taken_first[i] * slopes[i], 0.0) for i in (0, 1)]
    taken_last = [np.minimum(room[i], rest[1 - i] / slopes[i]) for i in (0, 1)]
    a = low[0] + np.where(first_is_denser, taken_first[0], taken_last[0])
    b = low[1] + np.where(first_is_denser, taken_last[1], taken_first[1])
    return a, b


def _interpolate(corners: Floats, a: Floats, b: Floats) -> Floats:
    """Interpolate between the four corners of the window shares; `a` and `b` go from 0 to 1."""
    return np.asarray(
        corners[0, 0] * (1 - a) * (1 - b)
        + corners[1, 0] * a * (1 - b)
        + corners[0, 1] * (1 - a) * b
        + corners[1, 1] * a * b
    )


def _position(values: Floats, low: float, high: float) -> Floats:
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _output(point: Point, outputs: tuple[float, float]) -> float:
    return outputs[0] * point[0] * point[3] + outputs[1] * point[1] * point[2]


def _leave_out(point: Point, probe: int) -> Point:
    """Return the point without the direction in which a stream probes."""
    a, b, stored_a, stored_b = point
    return (0.0, b, stored_a, 0.0) if probe == 0 else (a, 0.0, 0.0, stored_b)


def _shrink_box(best: Point, low: Point, high: Point) -> tuple[Point, Point]:
    lows = tuple(max(least, share / _BOX_FACTOR) for share, least in zip(best, low, strict=True))
    highs = tuple(min(most, max(share, _UNUSED_SHARE) * _BOX_FACTOR) for share, most in zip(best, high, strict=True))
    return lows, highs  # type: ignore[return-value]


def _retreat(point: Point, back: Point, fits: Callable[[Point], bool]) -> Point:
    """Return the point that fits and is nearest to `point` on the line from there to `back`, or `back` if none fits."""
    if fits(point):
        return point
    inside, outside = 0.0, 1.0
    for _ in range(12):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if fits(_move(back, point, middle)) else (inside, middle)
    return _move(back, point, inside)


def _move(start: Point, end: Point, part: float) -> Point:
    return tuple(a + (b - a) * part for a, b in zip(start, end, strict=True))  # type: ignore[return-value]
