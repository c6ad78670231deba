"""Seeded aggregation queries over the tables of join cases, and the oracle's result for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, zip_longest
from random import Random
from typing import Any

import pyarrow as pa

import watersmeet
from tests.oracle import (
    Arrival,
    Evaluation,
    admit,
    as_multiset,
    batch_evaluations,
    evaluations,
    every_instants,
    table_rows,
)
from tests.oracle.values import Instant, event_times_us
from tests.properties.engine import declare_source
from tests.properties.generators.cases import FromItem, QueryCase, QueryPiece
from tests.properties.generators.join_cases import generate_case
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import TumbleWindow
from watersmeet.errors import QueryError
from watersmeet.operators.aggregate.config import AggregateConfig, early_refusal_reason
from watersmeet.operators.aggregate.serialization import (
    AggregatePart,
    restore_from_parts,
    split_into_parts,
)
from watersmeet.operators.aggregate.state import AggregateState, compact_state
from watersmeet.operators.aggregate.step import AggregateOperator
from watersmeet.operators.protocol import SavedPart

MAX_INSTANTS = 12
#: Maximum rows per source for 1, 2, … sources: the oracle examines every combination.
MAX_ROWS = (10, 10, 6, 4, 3)

AGGREGATES = (
    "COUNT(*)",
    "COUNT({a}.v)",
    "COUNT({a}.s)",
    "SUM({a}.v)",
    "AVG({a}.v)",
    "MIN({a}.v)",
    "MAX({a}.v)",
    "SUM({a}.x)",
    "AVG({a}.x)",
    "MIN({a}.x)",
    "MAX({a}.x)",
    "MIN({a}.s)",
    "MAX({a}.s)",
    "MIN({a}.k)",
    "MAX({a}.m)",
    "MAX({a}.id)",
    "SUM({a}.v + 1)",
    "SUM({a}.v * {b}.v)",
    "AVG({a}.x + {b}.v)",
    "MIN({a}.v - {b}.v)",
    "COUNT(COALESCE({a}.s, {b}.s))",
    "SUM({a}.v) * 2 + COUNT(*)",
    "MAX({a}.v) - MIN({b}.v)",
    "SUM(CASE WHEN {a}.v > 0 THEN 1 END)",
    "SUM(CAST({a}.v AS DECIMAL(10, 2)))",
    "SUM(2)",
    "SUM(CAST({a}.p AS DECIMAL(12, 4)))",
    "AVG(CAST({a}.p AS DECIMAL(12, 4)))",
    "MIN({a}.p)",
    "MAX(CAST({a}.p AS DOUBLE))",
    "SUM(CASE WHEN {a}.v > 0 THEN 4611686018427387904 ELSE -1 END)",
)
SUMS_OF_KEYS = ("SUM({a}.k)", "AVG({a}.k)")
GROUP_KEYS = (
    "{a}.k",
    "{a}.k",
    "{a}.m",
    "{a}.s",
    "{a}.v",
    "{a}.x",
    "{a}.v + 1",
    "{a}.v + {b}.v",
    "COALESCE({a}.s, {b}.s)",
)
#: HAVING over selected and other aggregates; some are true of an empty group, some alternate.
HAVING = (
    "COUNT(*) > 1",
    "COUNT(*) = 2",
    "COUNT(*) <> 1",
    "COUNT(*) < 3",
    "MOD(COUNT(*), 2) = 1",
    "SUM({a}.v) > 0",
    "MAX({a}.v) IS NOT NULL",
    "MAX({a}.v) IS NULL",
    "COUNT(*) <> 1 OR MIN({a}.x) > 0",
    "MIN({a}.v) = MAX({b}.v)",
    "COUNT({a}.s) < COUNT(*)",
    "MAX({a}.p) = 4.35",
    "AVG({a}.x) > AVG({b}.v) OR MAX({a}.s) = 'b'",
)
#: Selected by queries whose HAVING reads other aggregates: values that often stay equal while a group changes.
SLUGGISH = ("MAX({a}.v)", "MIN({a}.x)", "MAX({a}.s)", "COUNT({a}.s)", "MIN({a}.k)")

#: Units of the timelines, the longest first.
UNITS_US = (86_400_000_000, 60_000_000, 1_000_000, 1_000, 1)

EmittedRows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class AggregationCase(QueryCase):
    """A case with groups: `keys` are in GROUP BY and, mostly, in SELECT."""

    keys: tuple[QueryPiece, ...] = ()
    having: QueryPiece | None = None
    every_us: int | None = None
    emit: str = ""

    @cached_property
    def text(self) -> str:
        joined = QueryCase(
            self.seed, self.sources, self.items, self.select, self.predicates, self.constraints, self.joined
        ).text
        parts = [joined]
        if self.keys:
            parts.append("GROUP BY " + ", ".join(key.text for key in self.keys))
        if self.having is not None:
            parts.append("HAVING " + self.having.text)
        if self.every_us is not None:
            parts.append(f"EVERY {self.every_us} MICROSECONDS")
        return "\n".join([*parts, *([f"EMIT {self.emit}"] if self.emit else [])])


def generate_aggregation(seed: int, *, every: bool = True) -> AggregationCase:
    """Return the aggregation query of a seed: a join case with groups, every stream with a window."""
    rng = Random(seed)
    case = _generate_small_join(seed)
    items = tuple(
        _choose_missing_window(rng, item) if item.name in case.streams and not item.window else item
        for item in case.items
    )
    if rng.random() < 0.3:
        items = _add_tumble_windows(rng, case, items)
    limit = MAX_ROWS[len(items) - 1]
    sources = tuple(replace(source, table=source.table.slice(0, limit)) for source in case.sources)
    aliases = [item.alias for item in items]
    keys = tuple(
        {
            piece.text: piece
            for piece in (choose_piece(rng, aliases, GROUP_KEYS) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
        }.values()
    )
    having = choose_piece(rng, aliases, HAVING) if rng.random() < 0.35 else None
    pool = SLUGGISH if having is not None and rng.random() < 0.6 else AGGREGATES
    found = AggregationCase(
        seed=case.seed,
        sources=sources,
        items=items,
        select=choose_group_outputs(rng, case, aliases, keys, pool),
        predicates=case.predicates,
        constraints=case.constraints if rng.random() < 0.5 else (),
        joined=case.joined,
        keys=keys,
        having=having,
    )
    return replace(found, every_us=_every_us(rng, found)) if every else found


def with_equal_tiles(case: AggregationCase, *, emit: str) -> AggregationCase:
    """Return the case with a TUMBLE window of one length on every stream, and without EVERY."""
    tile_us = _every_us(Random(case.seed), case)
    items = tuple(
        replace(item, window=f"[TUMBLE {tile_us} MICROSECONDS]") if item.name in case.streams else item
        for item in case.items
    )
    return replace(case, items=items, every_us=None, emit=emit)


def early_plans(case: QueryCase) -> list[Plan]:
    """Return all placements of early aggregation that the query allows; the late plan first."""
    allowed = [item.alias for number, item in enumerate(case.items) if early_refusal_reason(case.bound, number) is None]
    subsets = chain.from_iterable(combinations(allowed, size) for size in range(len(allowed) + 1))
    return [Plan(early=subset) for subset in subsets]


def expected_groups(case: QueryCase) -> EmittedRows | None:
    """Return the rows that evaluating the whole input emits; None if a sum overflows."""
    return _evaluate_or_overflow(lambda: evaluations(case.bound, case.tables, every_instants(case.bound, case.tables)))


def expected_groups_by_row(case: QueryCase) -> EmittedRows | None:
    times = {time for source in case.streams.values() for time in source.times_us}
    return _evaluate_or_overflow(lambda: evaluations(case.bound, case.tables, sorted(times)))


def expected_groups_by_batch(case: QueryCase, arrivals: Mapping[str, Arrival]) -> EmittedRows | None:
    """Return the rows emitted at the watermark after every batch, and at the largest time after the last."""
    return _evaluate_or_overflow(lambda: batch_evaluations(case.bound, _rounds_so_far(case, arrivals)))


def collect_groups(case: QueryCase, plan: Plan | None = None, evaluate: str | None = None) -> EmittedRows | None:
    """Return the rows that the engine emits for the whole input in one batch."""
    streams = {source.name: declare_source(source) for source in case.sources}
    try:
        return _emitted_rows(watersmeet.collect(watersmeet.sql(case.text), streams, plan=plan, evaluate=evaluate))
    except QueryError as error:
        _check_overflow(error)
        return None


def collect_groups_arriving(
    rng: Random, case: QueryCase, arrivals: Mapping[str, Arrival], plans: Sequence[Plan]
) -> EmittedRows | None:
    """Return the rows that the engine emits for the same input in batches.

    Sometimes the plan changes, the state passes through bytes or parts, or the state is compacted.
    """
    streams: dict[str, Any] = {
        source.name: watersmeet.relation(source.table) for source in case.sources if source.time is None
    }
    for name, arrival in arrivals.items():
        idle = None if arrival.idle_us is None else f"{arrival.idle_us} microseconds"
        streams[name] = watersmeet.stream(
            list(arrival.batches),
            time=arrival.time,
            unit=arrival.unit,
            lateness=f"{arrival.lateness_us} microseconds",
            idle=idle,
        )
    run = watersmeet.run(watersmeet.sql(case.text), streams, plan=rng.choice(plans))
    assert isinstance(run.operator, AggregateOperator)
    rounds = [dict(each) for each in _list_rounds(arrivals)]
    kept = SavedStateParts()
    batches: list[pa.RecordBatch] = []
    try:
        for number, tables in enumerate(rounds):
            if rng.random() < 0.3:
                run.restore_state(run.save_state())
            elif number and rng.random() < 0.3:
                run.state = kept.restore(run.operator.config)
            if rng.random() < 0.3:
                run.state = compact_state(run.operator.config, run.state)
            if rng.random() < 0.3:
                run.replan(rng.choice(plans))
            batches += run.advance(tables, last=number == len(rounds) - 1)
            kept.save(run.state)
    except QueryError as error:
        _check_overflow(error)
        return None
    return _emitted_rows(pa.Table.from_batches(batches, run.config.result))


class SavedStateParts:
    """Parts of a state as a store keeps them: each is written once, when first seen."""

    def __init__(self) -> None:
        self._parts: list[tuple[AggregatePart, bytes]] = []

    def save(self, state: AggregateState) -> None:
        known = {id(part.value): blob for part, blob in self._parts}
        self._parts = [(part, known.get(id(part.value)) or part.to_bytes()) for part in split_into_parts(state)]

    def restore(self, config: AggregateConfig) -> AggregateState:
        state = restore_from_parts(
            config, [SavedPart(part.input_number, part.kind, blob) for part, blob in self._parts]
        )
        saved = split_into_parts(state)
        assert [part.rows for part in saved] == [part.rows for part, _ in self._parts]
        self._parts = [(part, blob) for part, (_, blob) in zip(saved, self._parts, strict=True)]
        return state


def _check_overflow(error: QueryError) -> None:
    """Raise any error other than an overflow."""
    if "overflow in the sum" not in str(error):
        raise error


def _generate_small_join(seed: int) -> QueryCase:
    """Return the first join case from this seed on with at most four sources."""
    for attempt in range(100):
        case = generate_case(seed + 1_000_003 * attempt)
        if len(case.items) <= 4:
            return case
    raise AssertionError("no case of few sources")


def _choose_missing_window(rng: Random, item: FromItem) -> FromItem:
    return replace(
        item,
        window=rng.choice(
            ("[ROWS 2]", "[RANGE 0 SECONDS]", "[RANGE 3 MICROSECONDS]", "[RANGE 2 SECONDS]", "[LANDMARK]")
        ),
    )


def choose_piece(rng: Random, aliases: Sequence[str], texts: Sequence[str]) -> QueryPiece:
    first, second = rng.choice(aliases), rng.choice(aliases)
    text = rng.choice(texts)
    return QueryPiece(text.format(a=first, b=second), (first, second))


def _add_tumble_windows(rng: Random, case: QueryCase, items: tuple[FromItem, ...]) -> tuple[FromItem, ...]:
    """Give one stream or several a TUMBLE window with times on its edges."""
    times_us = _times_us(case)
    unit_us = next((unit for unit in UNITS_US if 2 * sum(time % unit == 0 for time in times_us) > len(times_us)), 1)

    def tile() -> str:
        return f"[TUMBLE {unit_us * rng.choice((1, 2, 2, 3, 4))} MICROSECONDS]"

    chosen = rng.choice([item.alias for item in items if item.name in case.streams])
    share = rng.choice((0.0, 0.5, 1.0))
    return tuple(
        replace(item, window=tile())
        if item.name in case.streams and (item.alias == chosen or rng.random() < share)
        else item
        for item in items
    )


def choose_group_outputs(
    rng: Random,
    case: QueryCase,
    aliases: Sequence[str],
    keys: Sequence[QueryPiece],
    aggregates: Sequence[str] = AGGREGATES,
) -> tuple[QueryPiece, ...]:
    pool = [*aggregates]
    if aggregates is AGGREGATES and all(_sums_exactly(source.table.schema.field("k").type) for source in case.sources):
        pool += SUMS_OF_KEYS
    chosen = [choose_piece(rng, aliases, pool) for _ in range(rng.choice((1, 1, 2, 3)))]
    shown = [key for key in keys if rng.random() < 0.9]
    return tuple(
        QueryPiece(f"{piece.text} AS c{number}", piece.aliases) for number, piece in enumerate([*shown, *chosen])
    )


def _sums_exactly(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _every_us(rng: Random, case: QueryCase) -> int:
    """Choose an interval with few instants.

    It is the unit of the times if that is long enough, or an interval that fits the tiles or barely does not.
    """
    times_us, tiles_us = _times_us(case), _tiles_us(case)
    largest_us = max(times_us, default=0)
    last_us = max([largest_us, *((largest_us // tile + 1) * tile for tile in tiles_us)])
    least = max(1, -(-(last_us - min(times_us, default=0)) // MAX_INSTANTS))
    fitting = [
        every for tile in tiles_us for every in (tile, tile, 2 * tile, tile // 2, tile // 3, tile + 1) if every >= least
    ]
    if fitting and rng.random() < 0.8:
        return rng.choice(fitting)
    return rng.choice(
        [every for every in (1, 2, 3, 7, 1_000, 1_000_000, 60_000_000) if every >= least] or [least, least + 1]
    )


def _times_us(case: QueryCase) -> list[int]:
    return [time for source in case.streams.values() for time in source.times_us]


def _tiles_us(case: QueryCase) -> list[int]:
    return [source.window.length_us for source in case.bound.sources if isinstance(source.window, TumbleWindow)]


def _evaluate_or_overflow(evaluated: Any) -> EmittedRows | None:
    try:
        found: list[Evaluation] = evaluated()
    except QueryError:
        return None
    return as_multiset(
        (*each.row, Instant(1_000 * each.as_of_us), *([] if each.operation is None else [each.operation]))
        for each in found
    )


def _emitted_rows(table: pa.Table) -> EmittedRows:
    assert "as_of" in table.column_names[-2:]
    return as_multiset(table_rows(table))


def _list_rounds(arrivals: Mapping[str, Arrival]) -> Iterator[Iterator[tuple[str, pa.Table]]]:
    for batches in zip_longest(*(arrival.batches for arrival in arrivals.values())):
        yield ((name, batch) for name, batch in zip(arrivals, batches, strict=True) if batch is not None)


def _rounds_so_far(case: QueryCase, arrivals: Mapping[str, Arrival]) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """Yield each batch's evaluation instant with the rows that have arrived by then and are not late."""
    rounds = len(list(_list_rounds(arrivals)))
    for number in range(1, rounds + 1):
        cut = {name: replace(arrival, batches=arrival.batches[:number]) for name, arrival in arrivals.items()}
        admission = admit(cut)
        tables = case.tables | admission.tables
        at_us: float = admission.watermarks_us[-1]
        if number == rounds:
            at_us = max(
                (
                    t
                    for name in arrivals
                    for t in event_times_us(tables[name].column(arrivals[name].time), arrivals[name].unit)
                ),
                default=-float("inf"),
            )
        if at_us > -float("inf"):
            yield int(at_us), tables
