"""Search for the evaluation interval τ of a lazy join; rows expire as often.

A longer interval spreads the fixed work of an evaluation over more rows: windows laid out, buckets visited, loops that
run before the new rows are known. But windows hold rows for an interval longer, and every loop scans them. So the best
interval is neither the shortest nor the longest. It grows with the number of buckets, which make scans cheap and an
evaluation expensive.

References: Golab, Özsu, section 6.4, Figure 4a.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.plan_defaults import LAZY_SHARE, lazy_interval_us
from watersmeet.planner.cost_of_loops import predict_loops
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.workload import Workload

#: Intervals to try, as shares of the shortest window.
SHARES = tuple(2.0**-step for step in range(14))

#: With more inputs a plan gets the default interval, because each interval costs a search of all probe orders.
MAX_SEARCHED_INPUTS = 5


def search_interval(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> Plan | None:
    """Return a lazy plan with the cheapest evaluation interval, or None if no time window bounds the interval."""
    default_us = lazy_interval_us(config)
    if default_us is None:
        return None
    if len(config.inputs) > MAX_SEARCHED_INPUTS:
        return set_interval(plan, default_us)

    def cpu_per_s(interval_us: int) -> float:
        lazy = set_interval(plan, interval_us)
        return math.fsum(part.cpu_per_s for part in predict_loops(config, workload, profile, lazy).operators)

    window_us = default_us / LAZY_SHARE
    found = choose_cheapest(cpu_per_s, [share * window_us for share in SHARES])
    return set_interval(plan, choose_cheapest(cpu_per_s, [found, found / math.sqrt(2), found * math.sqrt(2)]))


def choose_cheapest(cpu_per_s: Callable[[int], float], intervals_us: list[float]) -> int:
    """Return the cheapest of these intervals, each rounded to two digits; on a tie, the first."""
    return min(dict.fromkeys(round_interval_us(each) for each in intervals_us), key=cpu_per_s)


def round_interval_us(interval_us: float) -> int:
    """Round an interval to two digits, and up to a microsecond.

    >>> round_interval_us(1_234_567), round_interval_us(0.3)
    (1200000, 1)
    """
    return max(1, int(float(f"{interval_us:.1e}")))


def set_interval(plan: Plan, interval_us: int) -> Plan:
    """Return the plan with this evaluation interval; rows expire as often."""
    return replace(plan, evaluate_us=interval_us, expire_us=interval_us)
