"""A window join of two streams that gives each direction its own share: which rows probe, and which are held to be probed.

The result of a pair is found by its later row: it probes the other stream's window. So the join is two directed joins, A's rows into B's
window and B's rows into A's, each with drop boxes of its own: a stream's rows probe at one share and are held at another. Where the two
shares of each stream are equal this is the plain join over the kept rows. What probes and what is held are samples by row identity, so a
replay gives the same rows.

References: Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from watersmeet.algebra.expressions import Column, Comparison, conjunction, conjuncts
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import PairConstraint, Query
from watersmeet.algebra.query import Source as FromItem
from watersmeet.algebra.windows import RangeWindow
from watersmeet.cost.kang_limited import NOTHING, Allocation, LimitedJoin, Pair, allocate, best_allocation, kept_rows, served_rates
from watersmeet.errors import PlanError
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.optimizer.estimates import Workload
from watersmeet.runtime.embedded import EmbeddedRun, Sources, start
from watersmeet.runtime.sources import Stream

#: The name of the strategy that takes the best by formula.
BEST = "best"


@dataclass(frozen=True, slots=True)
class Limits:
    """What there is: probes that can be served per second (μ), rows that can be held (M), and the least of each that A and B must get."""

    service_per_s: float = float("inf")
    memory_rows: float = float("inf")
    least_per_s: Pair = NOTHING
    least_rows: Pair = NOTHING


def divided(join: LimitedJoin, limits: Limits, probes: str = BEST, windows: str = BEST) -> Allocation:
    """Who probes and who is held, by the strategies' names: all of it where nothing is short, the best by formula where "best" is said.

    >>> divided(LimitedJoin(Pair(800, 200), Pair(100, 200), 0.01), Limits(service_per_s=100)).probes_per_s
    Pair(a=100.0, b=0.0)
    """
    service = min(limits.service_per_s, sum(join.rows_per_s))
    memory = min(limits.memory_rows, sum(join.window_rows))
    best = best_allocation(join, service, memory, limits.least_per_s, limits.least_rows)
    return allocate(
        join,
        best.probes_per_s if probes == BEST else served_rates(join, service, probes, limits.least_per_s),
        best.window_rows if windows == BEST else kept_rows(join, memory, windows, limits.least_rows),
    )


def limited_join(workload: Workload, config: MeetConfig) -> LimitedJoin:
    """The paper's view of a join of two streams: rates, rows of the full windows, and the share of pairs that meet."""
    a, b = workload.inputs
    rates = Pair(a.kept_per_s.value, b.kept_per_s.value)
    lengths_us = [each.window.length_us for each in config.inputs if isinstance(each.window, RangeWindow)]
    if len(lengths_us) != 2:
        raise PlanError("both streams need a RANGE window to be held as samples", hint="a ROWS window always holds its last rows")
    windows = Pair(*(rate * length_us / 1e6 for rate, length_us in zip(rates, lengths_us, strict=True)))
    share = workload.key_share(config, frozenset({0}), 1) * workload.passing(frozenset({0}), 1)
    return LimitedJoin(rates, windows, min(1.0, share))


@dataclass(frozen=True, slots=True)
class Shares:
    """Of one stream: the share of its rows that probe, and the share that is held in its window."""

    probe: float = 1.0
    window: float = 1.0


def shares_of(join: LimitedJoin, allocation: Allocation) -> tuple[Shares, Shares]:
    """The shares of A and of B that an allocation of rates and rows comes to."""
    probes = [served / rate for served, rate in zip(allocation.probes_per_s, join.rows_per_s, strict=True)]
    windows = [kept / rows for kept, rows in zip(allocation.window_rows, join.window_rows, strict=True)]
    a, b = (Shares(min(1.0, probe), min(1.0, window)) for probe, window in zip(probes, windows, strict=True))
    return a, b


def collect_allocated(query: Query, sources: Sources, shares: Mapping[str, Shares], plan: Plan | None = None, seed: int = 0) -> pa.Table:
    """All rows of a query over two streams with RANGE windows, found by the rows that probe among those held; shares by alias."""
    directions = [_direction(query, sources, prober, shares, plan or Plan(), seed) for prober in (0, 1)]
    return pa.concat_tables([each.collect().replace_schema_metadata() for each in directions])


def collect_within(
    query: Query, sources: Sources, workload: Workload, config: MeetConfig, limits: Limits, probes: str, windows: str, seed: int
) -> pa.Table:
    """All rows found within the limits, by the strategies' names; the table's metadata says who got what."""
    _two(query, 0)
    join = limited_join(workload, config)
    allocation = divided(join, limits, probes, windows)
    shares = dict(zip(query.aliases, shares_of(join, allocation), strict=True))
    about = {"shares": {alias: asdict(each) for alias, each in shares.items()}, "output_rows_per_s": allocation.output_rows_per_s}
    return collect_allocated(query, sources, shares, seed=seed).replace_schema_metadata({"watersmeet": json.dumps({"allocation": about})})


def _direction(query: Query, sources: Sources, prober: int, shares: Mapping[str, Shares], plan: Plan, seed: int) -> EmbeddedRun:
    """One stream's rows probing the other's window, whose row is the earlier one; of equal times the first stream's row probes."""
    first, other, held_us = *_two(query, prober), _range_us(query.sources[1 - prober])
    times = [Column(_time_of(sources, each.name), each.alias) for each in (other, first)]
    earlier = Comparison("<=" if prober == 0 else "<", *times)
    directed = replace(
        query,
        pairs=(*query.pairs, PairConstraint(other.alias, first.alias, held_us, directed=True)),
        where=conjunction((*conjuncts(query.where), earlier)),
    )
    drop = ((first.alias, 1 - shares.get(first.alias, Shares()).probe), (other.alias, 1 - shares.get(other.alias, Shares()).window))
    return start(directed, sources, replace(plan, drop=drop, drop_seed=seed))


def _two(query: Query, prober: int) -> tuple[FromItem, FromItem]:
    if len(query.sources) != 2 or query.sources[0].name == query.sources[1].name:
        raise PlanError("probes and windows are divided between two different streams", hint="other queries drop rows by wm.plan(drop=...)")
    return query.sources[prober], query.sources[1 - prober]


def _range_us(source: FromItem) -> int:
    if not isinstance(source.window, RangeWindow):
        raise PlanError(f'"{source.alias}" needs a RANGE window to be held as a sample', hint="a ROWS window always holds its last rows")
    return source.window.length_us


def _time_of(sources: Sources, name: str) -> str:
    source = sources[name]
    if not isinstance(source, Stream):
        raise PlanError(f'"{name}" is a relation; probes and windows are divided between two streams')
    return source.time
