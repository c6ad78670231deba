"""Division of limited probes and window rows between two streams by the strategies of Kang, Naughton and Viglas.

The result is a plan with a probe share and a window share per stream (`operators.shed.allocation` runs it).

References: Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import Query
from watersmeet.algebra.time_bounds import DifferenceBounds
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import PlanError
from watersmeet.operators.shed.sampling import RoleShares
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.planner.models.kang_limited import (
    NO_MINIMUM,
    Allocation,
    LimitedJoin,
    Pair,
    allocate,
    best_allocation,
    kept_rows,
    least_variance_allocation,
    served_rates,
)
from watersmeet.planner.workload import Workload, length_to_seconds
from watersmeet.runtime.embedded.run import start_run
from watersmeet.sources.declarations import Sources, bind_query

#: Name of the strategy that uses the optimum by formula.
BEST = "best"

#: Optimal division of a join's probes and window rows, given both totals and both minimums.
BestAllocation = Callable[[LimitedJoin, float, float, Pair, Pair], Allocation]


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits: probes per second (μ), rows in the windows (M), and the minimum of each for A and B."""

    service_per_s: float = float("inf")
    memory_rows: float = float("inf")
    least_per_s: Pair = NO_MINIMUM
    least_rows: Pair = NO_MINIMUM


def divide_resources(
    join: LimitedJoin,
    limits: Limits,
    probes: str = BEST,
    windows: str = BEST,
    best_of: BestAllocation = best_allocation,
) -> Allocation:
    """Divide probes and window rows between the streams by the named strategies.

    A resource that is not scarce is granted in full. "best" is the optimum by formula.

    >>> divide_resources(LimitedJoin(Pair(800, 200), Pair(100, 200), 0.01), Limits(service_per_s=100)).probes_per_s
    Pair(a=100.0, b=0.0)
    """
    service = min(limits.service_per_s, sum(join.rows_per_s))
    memory = min(limits.memory_rows, sum(join.window_rows))
    best = best_of(join, service, memory, limits.least_per_s, limits.least_rows)
    return allocate(
        join,
        best.probes_per_s if probes == BEST else served_rates(join, service, probes, limits.least_per_s),
        best.window_rows if windows == BEST else kept_rows(join, memory, windows, limits.least_rows),
    )


def build_limited_join(workload: Workload, config: JoinConfig) -> LimitedJoin:
    """Return the paper's model of a join of two streams: rates, rows of full windows, and the share of matching pairs.

    Of equal times the first stream's row probes. So the second stream's window always covers an instant, and the first
    stream's window is empty if no row of the second can be later than its match.
    """
    a, b = workload.inputs
    rates = Pair(a.kept_per_s.value, b.kept_per_s.value)
    if any(_is_unsized(each) for each in config.inputs):
        raise PlanError(
            "both streams need a RANGE or ROWS window to be sampled", hint="wm.plan(probe=..., window=...) takes any"
        )
    a_us, b_us = _window_lengths_us(config.bounds)
    windows = Pair(
        a.held_rows.value if a_us >= FOREVER_US else rates.a * a_us / 1e6,
        b.held_rows.value if b_us >= FOREVER_US else rates.b * length_to_seconds(b_us),
    )
    share = workload.key_share(config, frozenset({0}), 1) * workload.residual_share(frozenset({0}), 1)
    return LimitedJoin(rates, windows, min(1.0, share))


def compute_shares(join: LimitedJoin, allocation: Allocation) -> tuple[RoleShares, RoleShares]:
    """Return the shares of A and of B that an allocation of rates and rows amounts to."""
    probes = [
        _compute_share(served, rate) for served, rate in zip(allocation.probes_per_s, join.rows_per_s, strict=True)
    ]
    windows = [_compute_share(kept, rows) for kept, rows in zip(allocation.window_rows, join.window_rows, strict=True)]
    a, b = (RoleShares(probe, window) for probe, window in zip(probes, windows, strict=True))
    return a, b


def _compute_share(part: float, whole: float) -> float:
    """Return a part as a share; rounding errors do not reduce a full share."""
    return 1.0 if part >= whole * (1 - 1e-9) else part / whole


def collect_allocated(
    query: Query, sources: Sources, shares: Mapping[str, RoleShares], plan: Plan | None = None, seed: int = 0
) -> pa.Table:
    """Return all rows that kept probing rows find among the kept window rows; shares are given by alias.

    An aggregation is evaluated over the pairs of both directions together. Its aggregates are estimates with error
    bars, or exact where nothing is shed.
    """
    allocated = replace(
        plan or Plan(),
        drop=(),
        drop_seed=seed,
        probe=tuple((alias, each.probe) for alias, each in shares.items()),
        window=tuple((alias, each.window) for alias, each in shares.items()),
    )
    return start_run(query, sources, allocated).collect()


def collect_within_limits(
    query: Query,
    sources: Sources,
    workload: Workload,
    config: JoinConfig,
    limits: Limits,
    probes: str,
    windows: str,
    seed: int,
) -> pa.Table:
    """Return all rows found within the limits by the named strategies.

    The table's metadata holds the allocation.
    """
    join = build_limited_join(workload, config)
    best = least_variance_allocation if bind_query(query, sources).is_aggregation else best_allocation
    allocation = divide_resources(join, limits, probes, windows, best)
    shares = dict(zip(query.aliases, compute_shares(join, allocation), strict=True))
    rows = collect_allocated(query, sources, shares, seed=seed)
    description = {
        "shares": {alias: asdict(each) for alias, each in shares.items()},
        "output_rows_per_s": allocation.output_rows_per_s,
    }
    known = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
    return rows.replace_schema_metadata({"watersmeet": json.dumps({**known, "allocation": description})})


def _is_unsized(source: JoinInput) -> bool:
    """Return whether the number of rows in a window depends on more than its length or its limit of rows."""
    window = source.window
    return window is None or (window.fixed_length_us is None and window.row_limit is None)


def _window_lengths_us(bounds: DifferenceBounds) -> tuple[int, int]:
    """Return how long a row of each stream can match a later row of the other."""
    return bounds.later_by_us[0][1], bounds.later_by_us[1][0]
