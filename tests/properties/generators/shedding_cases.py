"""Generated aggregations that shed rows, run over directories and restarted between batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from tests.oracle import Arrival, table_rows
from tests.oracle.values import event_times_us
from tests.properties.generators.aggregation_cases import (
    GROUP_KEYS,
    HAVING,
    AggregationCase,
    choose_group_outputs,
    choose_piece,
)
from tests.properties.generators.arrival_orders import StreamArrivals
from tests.properties.generators.cases import QueryCase, SourceData
from tests.properties.generators.join_cases import generate_large_case
from watersmeet.algebra.plan import Plan
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

#: Emitted rows as text, by batch; or the message of the error that stopped the run.
EmittedBatches = list[list[str]] | str
Rounds = list[dict[str, pa.Table]]

#: Maximum rows per source: more than the oracle can take, few enough for a hundred cases in seconds.
MAX_ROWS = 50
#: Number of units that the times span.
UNITS = 30
MS_US, SECOND_US, DAY_US = 1_000, 1_000_000, 86_400_000_000


@dataclass(frozen=True)
class SheddingCase:
    """An aggregation, the plan that sheds rows, and its rows as they arrive."""

    case: AggregationCase
    plan: Plan
    arrivals: StreamArrivals

    @property
    def rounds(self) -> Rounds:
        """The batches: the n-th one of every stream that has so many."""
        names = list(self.arrivals)
        rounds = zip_longest(*(self.arrivals[name].batches for name in names))
        return [{name: table for name, table in zip(names, each, strict=True) if table is not None} for each in rounds]


def generate_shedding(seed: int) -> SheddingCase:
    """Return the case of a seed.

    Times span some tens of units of at least a millisecond, so that the watermark moves with every batch.
    """
    rng = Random(seed)
    joined = generate_large_case(seed)
    unit_us = max((_granularity_us(source) for source in joined.streams.values()), default=MS_US)
    case = _add_groups(rng, joined, unit_us)
    arrivals = {name: _arrive_nearly_in_order(rng, source, unit_us) for name, source in case.streams.items()}
    alias_of = {item.name: item.alias for item in case.items if item.name in case.streams}
    drop = tuple((alias, rng.choice((0.05, 0.1, 0.3))) for alias in alias_of.values())
    return SheddingCase(case, Plan(drop=drop, drop_seed=rng.randrange(5)), arrivals)


def _granularity_us(source: SourceData) -> int:
    kind = source.table.schema.field(source.time or "").type
    if pa.types.is_date(kind):
        return DAY_US
    return SECOND_US if pa.types.is_timestamp(kind) and kind.unit == "s" else MS_US


def _add_groups(rng: Random, joined: QueryCase, unit_us: int) -> AggregationCase:
    """Add groups and aggregates to the join, replace the times, and choose windows of a few units."""
    items = tuple(
        replace(item, window=_window(rng, unit_us)) if item.name in joined.streams else item for item in joined.items
    )
    aliases = [item.alias for item in items]
    keys = (choose_piece(rng, aliases, GROUP_KEYS),) if rng.random() < 0.7 else ()
    return AggregationCase(
        seed=joined.seed,
        sources=tuple(_replace_times(rng, source, unit_us) for source in joined.sources),
        items=items,
        select=choose_group_outputs(rng, joined, aliases, keys),
        predicates=joined.predicates[:1],
        joined=joined.joined,
        keys=keys,
        having=choose_piece(rng, aliases, HAVING) if rng.random() < 0.15 else None,
        every_us=rng.choice((None, unit_us, unit_us, 2 * unit_us, 5 * unit_us)),
    )


def _window(rng: Random, unit_us: int) -> str:
    """Choose a window other than ROWS, because aggregations over ROWS windows do not shed."""
    kind = rng.choice(("RANGE", "RANGE", "TUMBLE", "LANDMARK"))
    if kind == "LANDMARK":
        return "[LANDMARK]"
    units = rng.choice((0, 1, 2, 5, 10)) if kind == "RANGE" else rng.choice((1, 2, 5, 10))
    return f"[{kind} {units * unit_us} MICROSECONDS]"


def _replace_times(rng: Random, source: SourceData, unit_us: int) -> SourceData:
    """Keep fewer rows, with times in units; some are equal and some one microsecond off."""
    table = source.table.slice(0, MAX_ROWS)
    if source.time is None:
        return replace(source, table=table)
    times_us = [rng.randrange(UNITS) * unit_us + rng.choice((0, 0, 0, 1, -1)) for _ in range(table.num_rows)]
    return replace(source, table=_with_times(table, source.time, times_us))


def _with_times(table: pa.Table, time: str, times_us: list[int]) -> pa.Table:
    kind = table.schema.field(time).type
    counts = pa.array(times_us, pa.int64())
    typed = counts if pa.types.is_integer(kind) else counts.cast(pa.timestamp("us")).cast(kind, safe=False)
    return table.set_column(table.schema.get_field_index(time), time, typed)


def _arrive_nearly_in_order(rng: Random, source: SourceData, unit_us: int) -> Arrival:
    """Deliver rows in time order except a few, so that some are late.

    The last batch moves the watermark past all others.
    """
    assert source.time is not None
    times_us = event_times_us(source.table.column(source.time))
    order = sorted(range(len(times_us)), key=times_us.__getitem__)
    for _ in range(rng.randrange(3) if len(order) > 1 else 0):
        i, j = rng.sample(range(len(order)), 2)
        order[i], order[j] = order[j], order[i]
    table = source.table.take(pa.array(order, pa.int64()))
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.randint(3, 6)))
    batches = [table.slice(start, stop - start) for start, stop in pairwise([0, *cuts, table.num_rows])]
    closing = [_with_times(table.slice(0, 1), source.time, [2 * UNITS * unit_us])] if table.num_rows else []
    return Arrival(source.time, [*batches, *closing], rng.choice((0, 0, 1, unit_us)), None)


def emit_uninterrupted(shedding: SheddingCase) -> EmittedBatches:
    """Return the rows of one run, batch by batch."""
    return _result_or_message(lambda: _run_batches(shedding, restarts=lambda batch: False))


def emit_after_restarts(shedding: SheddingCase, rng: Random) -> EmittedBatches:
    """Return the rows of a run whose state is saved and restored at random batch boundaries."""
    return _result_or_message(lambda: _run_batches(shedding, restarts=lambda batch: rng.random() < 0.5))


def emit_over_directories(shedding: SheddingCase, rng: Random, path: Path) -> EmittedBatches:
    """Return the rows that jobs over directories write when restarted at random batch boundaries."""
    return _result_or_message(lambda: _run_jobs(shedding, rng, path))


def _run_batches(shedding: SheddingCase, restarts: Callable[[int], bool]) -> list[list[str]]:
    from watersmeet.runtime.embedded.incremental import describe_run, restore_run

    run = wm.run(wm.sql(shedding.case.text), _streams(shedding), plan=shedding.plan)
    found: list[list[str]] = []
    for batch, tables in enumerate(shedding.rounds):
        if restarts(batch):
            facts, parts = describe_run(run), run.save_state()
            run = wm.run(wm.sql(shedding.case.text), _streams(shedding), plan=shedding.plan)
            restore_run(run, facts, parts)
        found.append(_row_texts(pa.Table.from_batches(run.advance(tables), run.result)))
    return found


def _run_jobs(shedding: SheddingCase, rng: Random, path: Path) -> list[list[str]]:
    """Add files between batches. Half of the time the job has ended by then, so that the next one resumes it."""
    rounds, kept = shedding.rounds, _BatchTexts([])
    waiting = list(enumerate(rounds))
    _write(path, shedding, *waiting.pop(0))
    while True:
        stop = threading.Event()

        def observe(figures: object, stop: threading.Event = stop) -> None:
            if not waiting or rng.random() < 0.5:
                stop.set()
            if waiting:
                _write(path, shedding, *waiting.pop(0))

        before = len(kept.parts)
        run_incremental(_job(shedding, path, kept), stop, observe)
        if len(kept.parts) == before or (not waiting and len(kept.parts) == len(rounds)):
            return kept.parts


def _job(shedding: SheddingCase, path: Path, kept: _BatchTexts) -> IncrementalJob:
    sources: dict[str, Stream | Relation] = _relations(shedding)
    for name, arrival in shedding.arrivals.items():
        sources[name] = Stream(
            FileSource(path / name, arrival.time),
            arrival.time,
            lateness_us=arrival.lateness_us,
            idle_us=arrival.idle_us,
        )
    return IncrementalJob(
        wm.sql(shedding.case.text), sources, kept, True, path / "checkpoint", None, choose_plan=lambda: shedding.plan
    )


def _write(path: Path, shedding: SheddingCase, batch: int, tables: Mapping[str, pa.Table]) -> None:
    """Write one file per stream and batch; a stream without rows gets an empty one, so that batches are the same."""
    for name, arrival in shedding.arrivals.items():
        (path / name).mkdir(parents=True, exist_ok=True)
        if name in tables or batch == 0:
            pq.write_table(tables.get(name, arrival.batches[0].slice(0, 0)), path / name / f"{batch:03d}.parquet")


@dataclass
class _BatchTexts:
    """A sink that keeps rows by batch."""

    parts: list[list[str]]

    def write_batch(self, batch: int, rows: pa.Table) -> None:
        del self.parts[batch:]
        self.parts.append(_row_texts(rows))


def _streams(shedding: SheddingCase) -> dict[str, Stream | Relation]:
    found = _relations(shedding)
    for name, arrival in shedding.arrivals.items():
        found[name] = wm.stream(
            list(arrival.batches), time=arrival.time, lateness=_duration_text(arrival.lateness_us), idle=_idle(arrival)
        )
    return found


def _relations(shedding: SheddingCase) -> dict[str, Stream | Relation]:
    return {source.name: wm.relation(source.table) for source in shedding.case.sources if source.time is None}


def _idle(arrival: Arrival) -> str | None:
    return None if arrival.idle_us is None else _duration_text(arrival.idle_us)


def _duration_text(length_us: int) -> str:
    return f"{length_us} microseconds"


def _row_texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, table_rows(rows)))


def _result_or_message(run: Callable[[], Any]) -> EmittedBatches:
    try:
        found: list[list[str]] = run()
    except WatersmeetError as error:
        return error.message
    return found
