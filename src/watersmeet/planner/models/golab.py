"""Comparisons per unit of time of multi-way window joins that store no intermediate result.

One formula covers every algorithm of the paper. For the new rows of one origin, the loops run over the windows in some
order. The origin may have any position in it. Let `φ(outer)` be the composite rows that reach a loop and `scanned` the
rows that the loop visits for each of them. Then

    comparisons = executions · Σ over the loops but the first of φ(outer loops) · scanned(loop)

The origin's window counts as one row, executed λ times per unit of time (eager), or as λτ rows, executed 1/τ times
(lazy). The first loop compares nothing. Eager, Lazy, Naive, General and Hash differ only in the order, in τ and in
`scanned`.

References: Golab, Özsu, "Processing Sliding Window Multi-Joins in Continuous Queries over Data Streams", section 4.2
and appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from watersmeet.errors import PlanError
from watersmeet.planner.models.checks import (
    check_not_negative,
    check_order,
    check_positive,
    check_selectivity,
    check_whole,
    check_window,
)

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """A stream and its window, in the paper's (λ, T, v); a count window has `window_rows` (C), not `window_s` (T).

    `buckets` (b) is 1 without a hash index. `theta` is the selectivity of a predicate other than equality that ties
    this window to the common attribute; None means equality. `weight` is the cost of one comparison with this window
    relative to a plain one.

    >>> WindowedStream(10, 100, 500).rows(), WindowedStream(10, None, 500, window_rows=300).rows(slack_s=5)
    (1000.0, 350)

    """

    rows_per_s: float
    window_s: float | None
    distinct: float = 1.0
    window_rows: float | None = None
    buckets: int = 1
    theta: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.rows_per_s, "the rate of a stream")
        check_window(self.window_rows, self.window_s, "the window of a stream")
        check_positive(self.distinct, "the number of distinct values of a stream")
        check_whole(self.buckets, 1, "the number of hash buckets")
        check_positive(self.weight, "the weight of a comparison")
        if self.theta is not None:
            check_selectivity(self.theta, "the selectivity of a theta predicate")

    def rows(self, slack_s: float = 0.0) -> float:
        """Return the rows in the window at evaluation: λ(T + slack), or C + λ·slack. Slack is expired time."""
        if self.window_s is None:
            assert self.window_rows is not None
            return self.window_rows + self.rows_per_s * slack_s
        return self.rows_per_s * (self.window_s + slack_s)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Evaluation interval (τ; 0 is eager) and expiration interval (the same unless given).

    >>> Intervals(5).slack_s, Intervals(5, 15).slack_s, Intervals(0, 10).slack_s
    (5.0, 10.0, 5.0)

    """

    evaluate_s: float = 0.0
    expire_s: float | None = None

    def __post_init__(self) -> None:
        check_not_negative(self.evaluate_s, "the evaluation interval", PlanError)
        if self.expire_s is not None:
            check_not_negative(self.expire_s, "the expiration interval", PlanError)
            if self.expire_s < self.evaluate_s:
                raise PlanError(
                    f"expiration every {self.expire_s} s would come more often than evaluation every"
                    f" {self.evaluate_s} s"
                )

    @property
    def slack_s(self) -> float:
        """Mean excess of a window over its length when a join reads it.

        Since the last expiration τ, 2τ, … up to the expiration interval e have passed: (τ + e)/2. The paper has e = τ,
        hence T + τ.
        """
        return (self.evaluate_s + (self.evaluate_s if self.expire_s is None else self.expire_s)) / 2


EAGER = Intervals()


class Join(Protocol):
    """The streams of a join and the selectivity of the predicates between them."""

    @property
    def streams(self) -> tuple[WindowedStream, ...]: ...

    def selectivity(self, members: Sequence[int]) -> float:
        """Return the share of all combinations of the members' rows that satisfy the predicates among them."""

    def leads_to(self, outer: Sequence[int], target: int) -> bool:
        """Return whether a row of the outer streams fixes the value to look up in the target's hash index."""


@dataclass(frozen=True, slots=True)
class CommonAttribute:
    """All streams joined on one attribute: by equality, or by a theta predicate if a stream has one.

    Containment of value sets: a stream with v distinct values has the first v of a common list. So min(v) values occur
    in all members, each in a share 1/v of a member's rows, and `selectivity = min(v) / Π v`.

    >>> CommonAttribute((WindowedStream(10, 100, 500), WindowedStream(1, 100, 50))).selectivity((0, 1))
    0.002

    References: Golab, Özsu, section 4.2 and appendix A (φ), section 3.5 for theta predicates.
    """

    streams: tuple[WindowedStream, ...]

    def __post_init__(self) -> None:
        if len(self.streams) < 2:
            raise PlanError("a join needs at least two streams")

    def selectivity(self, members: Sequence[int]) -> float:
        equal = [self.streams[member].distinct for member in members if self.streams[member].theta is None]
        if not equal:
            return 1.0  # theta predicates tie a stream to the common attribute, which no member has
        thetas = [theta for member in members if (theta := self.streams[member].theta) is not None]
        return min(equal) / math.prod(equal) * math.prod(thetas)

    def leads_to(self, outer: Sequence[int], target: int) -> bool:
        return self.streams[target].theta is None and any(self.streams[member].theta is None for member in outer)


def intermediate_rows(join: Join, members: Sequence[int], intervals: Intervals = EAGER) -> float:
    """Estimate φ: the rows of the join of these windows, which do not depend on the join order.

    >>> intermediate_rows(CommonAttribute((WindowedStream(10, 100, 500), WindowedStream(1, 100, 50))), (0, 1))
    200.0

    References: Golab, Özsu, appendix A, φ and φ̂.
    """
    return math.prod(join.streams[member].rows(intervals.slack_s) for member in members) * join.selectivity(members)


def result_rows_per_s(join: Join) -> float:
    """Estimate results per unit of time.

    Each arrival matches the other windows as they are at that instant, so evaluation intervals do not matter.

    >>> result_rows_per_s(CommonAttribute((WindowedStream(10, 100, 500), WindowedStream(1, 100, 50))))
    4.0

    """
    whole = intermediate_rows(join, range(len(join.streams)))
    return math.fsum(stream.rows_per_s * whole / stream.rows() for stream in join.streams)


def origin_comparisons(join: Join, origin: int, order: Order, intervals: Intervals = EAGER) -> float:
    """Estimate comparisons per unit of time for the new rows of one origin, at any position of the order.

    >>> three = CommonAttribute((WindowedStream(10, 100, 500), WindowedStream(1, 100, 50), WindowedStream(1, 200, 40)))
    >>> origin_comparisons(three, origin=0, order=(0, 1, 2))
    1400.0
    >>> origin_comparisons(three, origin=2, order=(0, 1, 2))  # compares every pair of S1 and S2 before the new row
    100200.0

    References: Golab, Özsu, appendix A: C and L (origin first), G and H (origin anywhere).
    """
    check_order(order, len(join.streams))
    rows, executions_per_s = origin_rows(join, origin, intervals)
    return executions_per_s * math.fsum(
        loop_comparisons(join, rows, order[:level], order[level]) for level in range(1, len(order))
    )


def origin_rows(join: Join, origin: int, intervals: Intervals) -> tuple[tuple[float, ...], float]:
    """Return the rows of each window when new rows of the origin are joined, and the executions per unit of time.

    Of the origin's window, only the new rows count.
    """
    if not 0 <= origin < len(join.streams):
        raise PlanError(f"there is no stream {origin} among {len(join.streams)}")
    rows = [stream.rows(intervals.slack_s) for stream in join.streams]
    rate, tau_s = join.streams[origin].rows_per_s, intervals.evaluate_s
    rows[origin] = rate * tau_s if tau_s else 1.0
    return tuple(rows), 1 / tau_s if tau_s else rate


def loop_comparisons(join: Join, rows: Sequence[float], outer: Order, target: int) -> float:
    """Estimate the comparisons of one loop in one execution, from the rows of every window.

    Only the set of outer loops matters, not their order.
    """
    composites = math.prod(rows[member] for member in outer) * join.selectivity(outer)
    return composites * scanned_rows(join, rows, outer, target) * join.streams[target].weight


def scanned_rows(join: Join, rows: Sequence[float], outer: Order, target: int) -> float:
    """Estimate the rows that a loop scans per composite row of the outer loops: the window, or one of its b buckets.

    A bucket holds at least the matching rows, so more buckets than values save nothing. Matches do not depend on b.

    References: Golab, Özsu, sections 3.4 and 5.3 (T/b). The lower bound is ours.
    """
    if join.streams[target].buckets == 1 or not join.leads_to(outer, target):
        return rows[target]
    matching = rows[target] * join.selectivity((*outer, target)) / join.selectivity(outer)
    return max(rows[target] / join.streams[target].buckets, matching)


def origin_first(origin: int, global_order: Order) -> Order:
    """Return the order for one origin: the origin outermost, then the global order.

    >>> origin_first(2, (0, 1, 2, 3))
    (2, 0, 1, 3)

    """
    return (origin, *(each for each in global_order if each != origin))


def eager_nlj(join: Join, global_order: Order) -> tuple[float, ...]:
    """Estimate Eager Multi-Way NLJ by origin, C1, C2, ….

    With buckets on all windows it is the Multi-Way Hash Join, with buckets on some of them the hybrid.

    >>> streams = WindowedStream(10, 100, 500), WindowedStream(1, 100, 50), WindowedStream(1, 200, 40)
    >>> [round(cost) for cost in eager_nlj(CommonAttribute(streams), (0, 1, 2))]
    [1400, 1400, 1200]

    References: Golab, Özsu, section 3.2 and appendix A, C.
    """
    return comparisons_per_origin(
        join, [origin_first(origin, global_order) for origin in range(len(join.streams))], EAGER
    )


def lazy_nlj(join: Join, global_order: Order, intervals: Intervals) -> tuple[float, ...]:
    """Estimate Lazy Multi-Way NLJ by origin, L1, L2, …: as eager, with windows of T + τ.

    References: Golab, Özsu, appendix A, L.
    """
    return comparisons_per_origin(
        join, [origin_first(origin, global_order) for origin in range(len(join.streams))], _require_lazy(intervals)
    )


def naive_eager_nlj(join: Join, global_order: Order) -> tuple[float, ...]:
    """Estimate Naive Multi-Way NLJ by origin, G1, G2, …: one order for all origins.

    References: Golab, Özsu, appendix A, G.
    """
    return comparisons_per_origin(join, [global_order] * len(join.streams), EAGER)


def naive_lazy_nlj(join: Join, global_order: Order, intervals: Intervals) -> tuple[float, ...]:
    """Estimate lazy Naive Multi-Way NLJ by origin, H1, H2, …: evaluated every τ.

    References: Golab, Özsu, appendix A, H.
    """
    return comparisons_per_origin(join, [global_order] * len(join.streams), _require_lazy(intervals))


def general_lazy_nlj(join: Join, orders: Sequence[Order], intervals: Intervals) -> tuple[float, ...]:
    """Estimate General Lazy Multi-Way NLJ by origin: any order for each, its new rows at any position.

    References: Golab, Özsu, section 3.3.
    """
    return comparisons_per_origin(join, orders, _require_lazy(intervals))


def comparisons_per_origin(join: Join, orders: Sequence[Order], intervals: Intervals = EAGER) -> tuple[float, ...]:
    """Estimate comparisons per unit of time for each origin with its own order; the plan costs their sum."""
    if len(orders) != len(join.streams):
        raise PlanError(f"{len(join.streams)} origins need as many orders, got {len(orders)}")
    return tuple(origin_comparisons(join, origin, order, intervals) for origin, order in enumerate(orders))


def _require_lazy(intervals: Intervals) -> Intervals:
    if not intervals.evaluate_s:
        raise PlanError("a lazy join needs an evaluation interval above zero")
    return intervals
