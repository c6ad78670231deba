"""The plan of a run: measured on the rows at hand, predicted, chosen. `explain` and the hosts ask here, so that what is shown is what runs.

Rows at hand are a table, a path, or the first batch of an iterable, which is looked at and still comes first. A plan costs some
milliseconds to find; where there are fewer rows than any plan takes to join in that time, the default is taken without measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.cost.ayad_drops import NO_WISHES, Wishes
from watersmeet.operators.aggregate.config import aggregate_config
from watersmeet.operators.meet.config import MeetConfig, meet_config
from watersmeet.optimizer.arrivals import Arriving
from watersmeet.optimizer.budget import Budget
from watersmeet.optimizer.calibration.store import current as current_profile
from watersmeet.optimizer.explain import Explanation, explained
from watersmeet.optimizer.samples import Sample, Samples, sample_of
from watersmeet.runtime.inputs.feeds import BatchFeed, PathFeed, TableFeed
from watersmeet.runtime.inputs.times import refuse_likely_unit
from watersmeet.runtime.sources import Relation, Stream, event_times_us
from watersmeet.runtime.statistics import columns_asked, completed
from watersmeet.stats.estimate import Estimate, Provenance
from watersmeet.stats.sample import measured
from watersmeet.stats.stream_stats import StreamStats, stats

#: With fewer rows at hand than this every plan is done before the best one is found.
FEW_ROWS = 500

#: Rows that are counted for distinct values when a run is planned.
COUNTED_ROWS = 20_000

#: A run whose rows grew so many times since it was planned is planned again.
GROWTH = 4

Int64s = NDArray[np.int64]
Known = Mapping[str, Stream | Relation | StreamStats]


@dataclass(frozen=True)
class AtHand:
    """Rows of the sources that can be looked at before the run, with their times; `whole` says that no others will come."""

    tables: Mapping[str, pa.Table]
    times: Mapping[str, Int64s]
    whole: bool

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def arriving(self) -> Arriving:
        spans_us = [int(times.max()) - int(times.min()) for times in self.times.values() if times.size > 1]
        span_s = max(spans_us, default=0) / 1e6
        if span_s <= 0:
            return Arriving()
        return Arriving(span_s, span_s if self.whole else float("inf"), is_assumed=False)


def explanation(
    bound: BoundQuery,
    sources: Known,
    *,
    declared: Mapping[str, StreamStats] | None = None,
    plan: Plan | None = None,
    budget: Budget | None = None,
    all_plans: bool = False,
    wishes: Wishes = NO_WISHES,
    engine: str = "embedded",
) -> Explanation:
    """What a run of the query over these sources would be planned as, and why."""
    known = {**{name: source for name, source in sources.items() if isinstance(source, StreamStats)}, **(declared or {})}
    hand = at_hand(bound, {name: source for name, source in sources.items() if not isinstance(source, StreamStats) and name not in known})
    default = default_plan(bound) if plan is None and not known and hand.rows < FEW_ROWS and hand.tables else None
    return explained_on(bound, hand, known, plan=plan, default=default, budget=budget, all_plans=all_plans, wishes=wishes, engine=engine)


def plan_of(bound: BoundQuery, hand: AtHand) -> Plan:
    """The plan of a run, for those who do not want to know why: what `explanation` chooses for the same rows."""
    if hand.rows < FEW_ROWS or (len(bound.sources) == 1 and not bound.is_aggregation):
        return default_plan(bound)
    return explained_on(bound, hand, {}).plan


def spark_plan(bound: BoundQuery, sources: Mapping[str, Stream | Relation]) -> Plan:
    """The plan of a query on Spark that was given none: by the first rows of its sources where they are at hand, those of a directory that
    is followed included.

    Neither rows nor state depend on a join's plan, so a restart may take another one. An aggregation's state does: its plan goes by assumed
    statistics, which are the same whenever it is asked for, so that a restart goes on as it began.
    """
    if bound.is_aggregation:
        return explained_on(bound, AtHand({}, {}, whole=False), {}).plan
    hand = _first_rows(bound, sources)
    everything = all(each.schema.name in hand.tables for each in bound.sources)
    if not everything or hand.rows < FEW_ROWS or len(bound.sources) == 1:
        return default_plan(bound)
    return explained_on(bound, hand, {}, engine="spark").plan


def default_plan(bound: BoundQuery) -> Plan:
    """Grouped runs, with the order of probing that connects inputs first; of an aggregation query the late plan."""
    if bound.is_aggregation:
        return Plan()
    config = meet_config(bound, Plan())
    aliases = [each.alias for each in config.inputs]
    orders = {aliases[i]: tuple(aliases[step.target] for step in config.orders[i]) for i in config.streams}
    return Plan(orders=tuple(orders.items()) if len(aliases) > 1 else ())


def _first_rows(bound: BoundQuery, sources: Mapping[str, Stream | Relation]) -> AtHand:
    """The rows at hand, and the first file of each directory that is followed, from which its columns are known already."""
    hand = at_hand(bound, sources)
    names = {each.schema.name for each in bound.sources} & {*sources} - {*hand.tables}
    followed = {name: feed.peek() for name in names if isinstance(feed := sources[name].feed, PathFeed)}
    return timed_rows({**hand.tables, **followed}, sources, whole=hand.whole and not followed)


def at_hand(bound: BoundQuery, sources: Mapping[str, Stream | Relation]) -> AtHand:
    """The first rows of the query's sources, where looking does not use them up or start a job elsewhere."""
    names = dict.fromkeys(each.schema.name for each in bound.sources if each.schema.name in sources)
    tables: dict[str, pa.Table] = {}
    for name in names:
        source = sources[name]
        endless = isinstance(source, Stream) and source.is_endless
        found = source.feed.peek() if isinstance(source.feed, TableFeed | PathFeed | BatchFeed) and not endless else None
        if found is not None:
            tables[name] = found
    whole = all(isinstance(sources[name].feed, TableFeed | PathFeed) for name in names)
    hand = timed_rows(tables, sources, whole=whole)
    for name, times in hand.times.items():
        source = sources[name]
        if isinstance(source, Stream) and times.size:
            refuse_likely_unit(name, source.time, source.schema, source.unit, int(times.min()), int(times.max()))
    return hand


def timed_rows(tables: Mapping[str, pa.Table], sources: Mapping[str, Stream | Relation], *, whole: bool) -> AtHand:
    streams = {name: source for name in tables if isinstance(source := sources[name], Stream)}
    return AtHand(tables, {name: event_times_us(name, tables[name], source.time, source.unit) for name, source in streams.items()}, whole)


def explained_on(
    bound: BoundQuery,
    hand: AtHand,
    known: Mapping[str, StreamStats],
    *,
    plan: Plan | None = None,
    default: Plan | None = None,
    budget: Budget | None = None,
    all_plans: bool = False,
    engine: str = "embedded",
    arriving: Arriving | None = None,
    rates: Mapping[str, float] | None = None,
    wishes: Wishes | None = None,
) -> Explanation:
    """The explanation on the rows at hand; `rates` by stream name count before those that the rows themselves show."""
    config = aggregate_config(bound).join if bound.is_aggregation else meet_config(bound, Plan())
    found = {name: known.get(name) or _measured(bound, hand, name) for name in dict.fromkeys(each.schema.name for each in bound.sources)}
    for name, rate in (rates or {}).items():
        found[name] = replace(found[name], rows_per_s=Estimate(rate, Provenance.MEASURED))
    return explained(
        bound,
        completed(bound, found),
        current_profile(),
        budget=budget,
        plan=plan or default,
        all_plans=all_plans,
        engine=engine,
        samples=_samples(config, hand, known),
        arriving=arriving or hand.arriving(),
        reason=f"fewer than {FEW_ROWS} rows at hand: the default plan is taken, nothing is compared" if default is not None else "",
        wishes=wishes,
    )


def _measured(bound: BoundQuery, hand: AtHand, name: str) -> StreamStats:
    if name not in hand.tables:
        return stats()
    return measured(hand.tables[name], hand.times.get(name), columns_asked(bound, name), COUNTED_ROWS)


def _samples(config: MeetConfig, hand: AtHand, known: Mapping[str, StreamStats]) -> Samples:
    """Samples of the sources that nothing else is declared of. What is declared counts, not what the rows at hand show."""
    found: dict[int, Sample] = {}
    for each in config.inputs:
        table = hand.tables.get(each.name)
        if table is not None and table.num_rows and each.name not in known:
            found[each.number] = sample_of(each, table, hand.times.get(each.name, np.zeros(table.num_rows, np.int64)))
    return Samples(found)
