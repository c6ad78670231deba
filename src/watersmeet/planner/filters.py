"""Order and cost of the filters of a stream: predicates that read it alone.

A filter is tested on the rows that pass the filters before it. With c seconds per row and a selectivity f, the order by
c / (1 − f) costs least if the filters are independent. Measured selectivities are conditional on the filters tested
before, and the next filter is chosen greedily by them.

    cost per second    Σᵢ λ · f₁ · … · fᵢ₋₁ · cᵢ

References: Ayad, Naughton, eq. 7, Figure 4, and eqs. 18 to 21; Hellerstein, Stonebraker, "Predicate Migration", 1993.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import OperatorCost
from watersmeet.planner.workload import FilterEstimate, Workload
from watersmeet.stats.stream_stats import Estimate, Provenance


@dataclass(frozen=True, slots=True)
class FilterStep:
    """One filter in the order of a plan: its cost per row, its selectivity there, and the rows that reach it."""

    predicate: Expr
    cost_s: Estimate
    share: Estimate
    rows_per_s: float

    @property
    def cpu_per_s(self) -> float:
        """CPU seconds per second: C_σ · λ."""
        return self.cost_s.value * self.rows_per_s


def fill_filters(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> Plan:
    """Return the plan with the cheapest order of filters for each source that has several and no order yet."""
    chosen = tuple(
        (source.alias, choose_filter_order(source, workload, profile)) for source in _list_open_sources(config, plan)
    )
    return replace(plan, filters=(*plan.filters, *chosen)) if chosen else plan


def has_open_filters(config: JoinConfig, plan: Plan) -> bool:
    """Return whether the plan leaves the order of some source's filters open."""
    return bool(_list_open_sources(config, plan))


def _list_open_sources(config: JoinConfig, plan: Plan) -> list[JoinInput]:
    return [each for each in config.inputs if len(each.own_predicates) > 1 and not plan.filter_order(each.alias)]


def choose_filter_order(source: JoinInput, workload: Workload, profile: Profile) -> tuple[int, ...]:
    """Return the numbers of a source's filters, from 1, in the order that costs least."""
    filters = workload.inputs[source.number].filters
    order = order_by_rank(
        [estimate_filter_cost(source, each, profile).value for each in filters],
        lambda place, tested: workload.filter_share(source.number, place, tested).value,
    )
    return tuple(place + 1 for place in order)


def order_by_rank(costs: Sequence[float], share: Callable[[int, frozenset[int]], float]) -> tuple[int, ...]:
    """Order filters greedily by cost / (1 − selectivity); `share` is conditional on the filters tested before.

    Figure 4 of the paper: 0.5 ms with selectivity 0.25 comes before 1 ms with selectivity 0.5.

    >>> order_by_rank([1e-3, 5e-4], lambda place, tested: [0.5, 0.25][place])
    (1, 0)
    """
    order: list[int] = []
    while len(order) < len(costs):
        tested = frozenset(order)
        left = [place for place in range(len(costs)) if place not in tested]
        order.append(min(left, key=lambda place: (_rank(costs[place], share(place, tested)), place)))
    return tuple(order)


def predict_filters(source: JoinInput, workload: Workload, profile: Profile, plan: Plan) -> Iterator[FilterStep]:
    """Yield the filters of a source in the order of the plan, with the rows that reach each."""
    each = workload.inputs[source.number]
    rate, tested = each.rows_per_s.value, frozenset[int]()
    for number in plan.filter_order(source.alias) or range(1, len(each.filters) + 1):
        place = number - 1
        share = workload.filter_share(source.number, place, tested)
        estimate = each.filters[place]
        yield FilterStep(estimate.predicate, estimate_filter_cost(source, estimate, profile), share, rate)
        rate, tested = rate * share.value, tested | {place}


def selection_cost(source: JoinInput, workload: Workload, profile: Profile, plan: Plan) -> OperatorCost | None:
    """Return the cost of all filters of a stream; None if it has none."""
    steps = list(predict_filters(source, workload, profile, plan))
    if not steps:
        return None
    return OperatorCost(f"select {source.alias}", sum(step.cpu_per_s for step in steps), steps[0].rows_per_s)


def estimate_filter_cost(source: JoinInput, estimate: FilterEstimate, profile: Profile) -> Estimate:
    """Return a filter's seconds per row: declared, or by the kinds of its nodes in the profile."""
    if estimate.cost_s is not None:
        return estimate.cost_s
    nodes_s = profile.expressions.cost_s(estimate.predicate, lambda column: source.fields.field(column.name).type)
    return Estimate(profile.select_s + nodes_s, Provenance.DERIVED, "the profile's weights of its parts")


def _rank(cost_s: float, share: float) -> float:
    return cost_s / (1 - share) if share < 1 else math.inf
