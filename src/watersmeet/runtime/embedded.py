"""The embedded host: a query run in this process, batch by batch, on data the caller hands in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InputError
from watersmeet.lang import bind, parse
from watersmeet.operators.meet.admission import Delta, without_shed
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.operators.meet.state import MeetState, empty_state
from watersmeet.operators.meet.step import Stepped, step, with_relation
from watersmeet.operators.meet.tactics.base import Tally
from watersmeet.operators.meet.tactics.registry import settled_config
from watersmeet.operators.shedding import DropBox, drop_boxes
from watersmeet.runtime.planning import Planner, at_hand, plan_of
from watersmeet.runtime.sources import Relation, Stream, event_times_us
from watersmeet.runtime.watermark import Lateness, Watermark

Sources = Mapping[str, Stream | Relation]


@dataclass
class Ledger:
    """Where every row of a stream went: `arrived = kept + shed + late`. A late row is late, whether it would have been shed or not."""

    arrived: int = 0
    kept: int = 0
    shed: int = 0
    late: int = 0

    def add(self, other: Ledger) -> None:
        self.arrived += other.arrived
        self.kept += other.kept
        self.shed += other.shed
        self.late += other.late


@dataclass
class EmbeddedRun:
    """A query under way. `batches()` yields the results of one round of input after the other; `ledger` accounts for every row,
    `batch_ledger` for those of the last batch, `tally` for the work.

    Round r takes the r-th batch of every stream that still has one.
    """

    bound: BoundQuery
    config: MeetConfig
    sources: Sources
    state: MeetState
    watermark: Watermark
    tally: Tally
    boxes: Mapping[str, DropBox]
    ledger: dict[str, Ledger] = field(default_factory=dict)
    batch_ledger: dict[str, Ledger] = field(default_factory=dict)
    planner: Planner | None = None  # None where the plan is pinned

    def batches(self) -> Iterator[list[pa.RecordBatch]]:
        for tables in self._rounds():
            yield self.advance(tables)
        yield self.finish()

    def advance(self, tables: Mapping[str, pa.Table], *, last: bool = False) -> list[pa.RecordBatch]:
        """Joins one batch per stream name; `last` says that no other batch will come."""
        rows = {name: self._timed(name, table) for name, table in tables.items()}
        better = self.planner.see(tables) if self.planner is not None else None
        if better is not None:
            self.config = settled_config(self.bound, better)
        seen = {name: (int(delta.times.min()), int(delta.times.max())) for name, delta in rows.items() if len(delta)}
        following = self.watermark.after(seen)
        passed = {name: self._without_shed(name, delta) for name, delta in rows.items()}
        deltas = {i: passed[self.config.inputs[i].name] for i in self.config.streams if self.config.inputs[i].name in passed}
        stepped = step(self.config, self.state, deltas, self.watermark.value_us, FOREVER_US if last else following.value_us)
        self.state, self.watermark = stepped.state, following
        self.tally.add(stepped.counters.tally)
        self._account(stepped, {name: len(rows[name]) - len(passed[name]) for name in rows})
        return stepped.results

    def replan(self, plan: Plan) -> None:
        """Goes on by this plan from the next batch on. There is nothing to migrate: state is the windows, whatever the plan."""
        self.planner = None
        self.config, self.boxes = settled_config(self.bound, plan), drop_boxes(self.bound, plan)

    def finish(self) -> list[pa.RecordBatch]:
        """Releases what still waits for the watermark: the input is over."""
        return self.advance({}, last=True)

    def collect(self) -> pa.Table:
        """All results in one table; it carries the ledger in its schema's metadata."""
        results: list[pa.RecordBatch] = []
        waiting: dict[str, pa.Table] = {}
        for tables in self._rounds():  # one round behind, to know which is the last
            if waiting:
                results += self.advance(waiting)
            waiting = tables
        results += self.advance(waiting, last=True)
        about = json.dumps({"ledger": {name: asdict(entry) for name, entry in self.ledger.items()}})
        schema = self.config.result.with_metadata({"watersmeet": about})
        return pa.Table.from_batches(results, self.config.result).cast(schema) if results else schema.empty_table()

    def _rounds(self) -> Iterator[dict[str, pa.Table]]:
        names = dict.fromkeys(self.config.inputs[i].name for i in self.config.streams)
        readers = {name: self.sources[name].batches() for name in names}
        while True:
            tables = {name: table for name, reader in readers.items() if (table := next(reader, None)) is not None}
            if not tables:
                return
            yield tables

    def _timed(self, name: str, table: pa.Table) -> Delta:
        source = self.sources[name]
        if not isinstance(source, Stream):
            raise InputError(f'"{name}" is a relation; only streams bring rows')
        return Delta(table, event_times_us(name, table, source.time))

    def _without_shed(self, name: str, delta: Delta) -> Delta:
        return without_shed(delta, self.boxes[name], self.watermark.value_us) if name in self.boxes else delta

    def _account(self, stepped: Stepped, shed: Mapping[str, int]) -> None:
        self.batch_ledger = {}
        for i in self.config.streams:  # a self join reads its stream once per alias: the same rows each time
            name, late, passed = self.config.inputs[i].name, stepped.counters.late[i], stepped.counters.arrived[i]
            self.batch_ledger[name] = Ledger(passed + shed.get(name, 0), passed - late, shed.get(name, 0), late)
        for name, entry in self.batch_ledger.items():
            self.ledger.setdefault(name, Ledger()).add(entry)


def start(query: Query | str, sources: Sources, plan: Plan | None = None) -> EmbeddedRun:
    """A run of the query over the sources, with no row joined yet; a pinned plan that cannot run it is refused here.

    Without one, the cheapest plan by its predicted cost on the rows at hand runs, and is looked at again as rows flow.
    """
    bound = bound_query(query, sources)
    planner = None
    if plan is None:
        hand = at_hand(bound, sources)
        plan, planner = plan_of(bound, hand), Planner(bound, sources, hand.rows)
    config = settled_config(bound, plan)
    state = empty_state(config)
    for each in config.inputs:
        if not each.is_stream:
            state = with_relation(config, state, each.number, _whole(sources[each.name]))
    watermark = Watermark.start(_lateness(config, sources))
    boxes = drop_boxes(bound, config.plan)
    return EmbeddedRun(bound, config, sources, state, watermark, Tally(len(config.inputs)), boxes, planner=planner)


def bound_query(query: Query | str, sources: Sources) -> BoundQuery:
    """The query against the schemas its sources declare."""
    parsed = parse(query) if isinstance(query, str) else query
    for name, source in sources.items():
        if not isinstance(source, Stream | Relation):
            raise InputError(
                f'source "{name}" is a {type(source).__name__}', hint="declare it with wm.stream(source, time=...) or wm.relation(source)"
            )
    return bind(parsed, {name: source.declared(name) for name, source in sources.items()})


def _whole(source: Stream | Relation) -> pa.Table:
    return pa.concat_tables(source.batches())


def _lateness(config: MeetConfig, sources: Sources) -> dict[str, Lateness]:
    found: dict[str, Lateness] = {}
    for i in config.streams:
        source = sources[config.inputs[i].name]
        if isinstance(source, Stream):
            found[config.inputs[i].name] = Lateness(source.lateness_us, source.idle_us)
    return found
