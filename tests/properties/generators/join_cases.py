"""Seeded cases: `generate_case(seed)` always returns the same query over the same tables.

The generator prefers edge cases. Times fall exactly on a window's end and one microsecond beyond. They are equal on
several streams, negative, or far apart. Windows have length 0, tables are empty, one key is hot. Columns hold nulls and
NaN, and rows repeat. Tables are small, so that examining every combination takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from tests.properties.generators.case_changes import change_some_cases
from tests.properties.generators.cases import FromItem, QueryCase, QueryPiece, SourceData
from tests.properties.generators.column_families import (
    FAMILIES,
    NESTED,
    PRICES,
    ColumnFamily,
    build_array,
    choose_family,
    generate_column,
)
from tests.properties.generators.event_times import EventTimeline, choose_event_timeline
from tests.properties.generators.predicate_texts import TimePredicates, choose_predicates

ALIASES = ("a", "b", "c", "d", "e")

#: Weights of 1, 2, … 5 sources, and the maximum rows of each.
SOURCE_WEIGHTS = (1, 5, 4, 2, 1)
MAX_ROWS = (10, 12, 8, 5, 4)

WINDOW_WEIGHTS = {"RANGE": 8, "ROWS": 5, "PARTITION": 3, "TUMBLE": 3, "LANDMARK": 1}
TIMED_WINDOWS = {"RANGE": 1}

EXTRA_OUTPUTS = (
    "{a}.k",
    "{a}.m AS {a}_m",
    "{a}.v + 1 AS {a}_v1",
    "{a}.x",
    "{a}.s AS {a}_s",
    "CASE WHEN {a}.v > 0 THEN {a}.s END AS {a}_case",
    "{a}.ts AS {a}_ts",
    "COALESCE({a}.v, 7) AS {a}_or7",
    "{a}.v / 2 AS {a}_half",
    "{a}.p * 1.0 AS {a}_p",
    "CAST({a}.p AS DOUBLE) AS {a}_double",
)


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The two families of key columns of a case, and the few values of these and the other columns."""

    k: ColumnFamily
    m: ColumnFamily
    k_pool: tuple[Any, ...]
    m_pool: tuple[Any, ...]
    v_pool: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class CaseShape:
    """First decisions: the number of sources, the growth of the tables, and whether only time bounds them.

    In a `timed` case, every source is a stream and every pair of them is bounded in time, as W-joins require.
    """

    count: int
    crowd: int = 1
    timed: bool = False

    @property
    def most_rows(self) -> int:
        return self.crowd * MAX_ROWS[self.count - 1]


def generate_case(seed: int) -> QueryCase:
    """Return the case of a seed."""
    rng = Random(seed)
    return change_some_cases(_generate_case(rng, seed, CaseShape(rng.choices((1, 2, 3, 4, 5), SOURCE_WEIGHTS)[0])))


def generate_timed_case(seed: int) -> QueryCase:
    """Return a case that W-joins can usually run."""
    rng = Random(seed)
    return change_some_cases(
        _generate_case(rng, seed, CaseShape(rng.choices((2, 3, 4, 5), SOURCE_WEIGHTS[1:])[0], timed=True))
    )


def generate_large_case(seed: int) -> QueryCase:
    """Return a case of two or three sources with too many rows for brute force, but few for a database."""
    rng = Random(seed)
    count = rng.choice((2, 2, 3))
    return _generate_case(rng, seed, CaseShape(count, crowd=25 if count == 2 else 8))


def generate_tie_case(seed: int) -> QueryCase:
    """Return a ROWS window over rows of few times, in which a nested column decides every tie."""
    rng = Random(seed)
    family, rows = rng.choice(NESTED), rng.randrange(2, 9)
    columns = {
        "ts": pa.array([rng.randrange(3) for _ in range(rows)], pa.timestamp("us")),
        "n": generate_column(rng, family, family.pool, rows),
        "id": pa.array(range(rows)),
    }
    window = f"[ROWS {rng.choice((1, 1, 2, 3))}]"
    return QueryCase(
        seed,
        (SourceData("s0", pa.table(columns), "ts"),),
        (FromItem("s0", "a", window),),
        (QueryPiece("a.id", ("a",)),),
    )


def _generate_case(rng: Random, seed: int, shape: CaseShape) -> QueryCase:
    aliases = ALIASES[: shape.count]
    timeline = choose_event_timeline(rng, shape.crowd)
    keys = _choose_keys(rng, shape.count)
    names = _choose_names(rng, aliases)
    sources = tuple(
        _generate_source(
            rng, name, timeline, keys, shape.most_rows, relation_share=0.15 if i and not shape.timed else 0
        )
        for i, name in enumerate(sorted(set(names)))
    )
    times = {source.name: source.time for source in sources}
    streams = [alias for alias, name in zip(aliases, names, strict=True) if times[name]]
    constraints = choose_constraints(rng, streams, timeline)
    kinds = TIMED_WINDOWS if shape.timed else WINDOW_WEIGHTS
    bounded = _are_connected(streams, constraints)
    items = tuple(
        FromItem(name, alias, _choose_window(rng, timeline, bounded, kinds) if alias in streams else "")
        for alias, name in zip(aliases, names, strict=True)
    )
    words = _time_words(sources, items, timeline)
    predicates = choose_predicates(
        rng, aliases, keys.k.portable and keys.m.portable, words, common_share=0.7 if shape.timed else 0.2
    )
    return QueryCase(
        seed=seed,
        sources=sources,
        items=items,
        select=_choose_outputs(rng, aliases),
        predicates=predicates,
        constraints=constraints,
        joined=rng.random() < 0.1,
    )


def choose_constraints(rng: Random, streams: Sequence[str], timeline: EventTimeline) -> tuple[QueryPiece, ...]:
    """Choose no constraint, one bound for all pairs, bounds for some or all pairs of a tree, or a directed chain."""
    if len(streams) < 2 or rng.random() < 0.5:
        return ()
    if rng.random() < 0.25:
        return (QueryPiece(f"WINDOW = {timeline.length(rng)}", ()),)
    order = rng.sample(streams, len(streams))
    directed = rng.random() < 0.4
    keep = rng.choice((1.0, 1.0, 0.5))
    pieces = []
    for i in range(1, len(order)):
        first = order[i - 1] if directed or rng.random() < 0.5 else order[rng.randrange(i)]
        word = "DWINDOW" if directed and rng.random() < 0.9 else "WINDOW"
        if i == 1 or rng.random() < keep:
            pieces.append(QueryPiece(f"{word} ({first}, {order[i]}) = {timeline.length(rng)}", (first, order[i])))
    if len(order) > 2 and rng.random() < 0.2:
        pieces.append(QueryPiece(f"WINDOW ({order[0]}, {order[-1]}) = {timeline.length(rng)}", (order[0], order[-1])))
    return tuple(pieces)


def _time_words(
    sources: Sequence[SourceData], items: Sequence[FromItem], timeline: EventTimeline
) -> TimePredicates | None:
    """Return None if times do not compare: some are integers and others not, or their units differ."""
    units = {source.name: source.unit for source in sources if source.time is not None}
    streams = [item.alias for item in items if item.name in units]
    return (
        TimePredicates(streams, timeline.unit, of_calendar={*units.values()} == {None})
        if len({*units.values()}) == 1
        else None
    )


def _choose_names(rng: Random, aliases: Sequence[str]) -> list[str]:
    """Choose a physical source per alias; sometimes one source has several aliases."""
    names = [f"s{i}" for i in range(len(aliases))]
    if rng.random() < 0.25:
        for i in range(1, len(names)):
            if rng.random() < 0.6:
                names[i] = names[rng.randrange(i)]
    return names


def _choose_keys(rng: Random, count: int) -> KeyColumns:
    k, m = choose_family(rng), choose_family(rng)
    return KeyColumns(
        k,
        m,
        _choose_values(rng, k.pool, count),
        _choose_values(rng, m.pool, count),
        (None, *_choose_values(rng, (-1, 0, 1, 1, 2, 3), count)),
    )


def _choose_values(rng: Random, pool: tuple[Any, ...], sources: int) -> tuple[Any, ...]:
    """Choose one hot key, a few, or all of the pool; the more sources have to agree, the fewer."""
    size = rng.choice((1, 1, 2, 2, 3, len(pool))[: 8 - sources])
    return tuple(rng.sample(pool, min(size, len(pool))))


def _generate_source(
    rng: Random, name: str, timeline: EventTimeline, keys: KeyColumns, most_rows: int, relation_share: float
) -> SourceData:
    rows = 0 if rng.random() < 0.02 else rng.choice((*range(1, most_rows + 1), *[most_rows] * 6))
    table, unit = _generate_table(rng, timeline, keys, rows, first_id=1_000 * int(name[1:]))
    is_relation = rng.random() < relation_share
    table = _with_copies(rng, table, most_rows)
    return SourceData(name, table, None) if is_relation else SourceData(name, table, "ts", unit)


def _generate_table(
    rng: Random, timeline: EventTimeline, keys: KeyColumns, rows: int, first_id: int
) -> tuple[pa.Table, str | None]:
    """Return a table, and the unit of its times if they are integers."""
    times, unit = timeline.column(rng, rows)
    columns = {
        "id": pa.array(range(first_id, first_id + rows), pa.int64()),
        "ts": times,
        "k": generate_column(rng, keys.k, keys.k_pool, rows),
        "m": generate_column(rng, keys.m, keys.m_pool, rows),
        "v": build_array(
            [rng.choice(keys.v_pool * 2 + keys.v_pool[1:]) for _ in range(rows)],
            rng.choice((pa.int64(), pa.int64(), pa.int16())),
        ),
        "x": generate_column(rng, FAMILIES["float"], (-0.0, 0.0, 1.5, -1.5, float("nan")), rows),
        "s": generate_column(rng, FAMILIES["text"], ("", "a", "A", "ab", "b"), rows),
        "p": generate_column(rng, FAMILIES["price"], PRICES, rows),
    }
    if rng.random() < 0.3:
        family = rng.choice(NESTED)
        columns["n"] = generate_column(rng, family, family.pool, rows)
    names = list(columns)
    if rng.random() < 0.5:  # the order of columns decides ties in ROWS windows
        rng.shuffle(names)
    return pa.table({name: columns[name] for name in names}), unit


def _with_copies(rng: Random, table: pa.Table, most_rows: int) -> pa.Table:
    """Duplicate some rows in one of seven tables."""
    if rng.random() > 0.15 or not 0 < table.num_rows < most_rows:
        return table
    return table.take([rng.randrange(table.num_rows) for _ in range(table.num_rows + 1)])


def _choose_window(rng: Random, timeline: EventTimeline, bounded: bool, weights: dict[str, int]) -> str:
    if bounded and rng.random() < 0.5:
        return ""
    kind = rng.choices(tuple(weights), tuple(weights.values()))[0]
    count = rng.choice((1, 1, 2, 2, 3, 5))
    match kind:
        case "RANGE":
            return f"[{rng.choice(('RANGE', 'RANGE', 'WINDOW'))} {timeline.length(rng)}]"
        case "ROWS":
            return f"[ROWS {count}]"
        case "PARTITION":
            return f"[PARTITION BY {rng.choice(('k', 'v', 'x', 's', 'm', 'k, v'))} ROWS {count}]"
        case "TUMBLE":
            return f"[TUMBLE {timeline.tile(rng)}]"
        case _:
            return rng.choice(("[LANDMARK]", "[WINDOW UNTIL NOW]"))


def _are_connected(streams: Sequence[str], constraints: Sequence[QueryPiece]) -> bool:
    """Return whether the constraints connect all streams, so that none needs its own window."""
    if any(not piece.aliases for piece in constraints) or len(streams) == 1:
        return True
    reached = set(streams[:1])
    for _ in streams:
        reached |= {alias for piece in constraints if reached & set(piece.aliases) for alias in piece.aliases}
    return reached == set(streams)


def _choose_outputs(rng: Random, aliases: Sequence[str]) -> tuple[QueryPiece, ...]:
    """Choose every source's id, so that lost and duplicate rows show, and sometimes more outputs."""
    if rng.random() < 0.05:
        return (QueryPiece("*", ()),)
    outputs = [QueryPiece(f"{alias}.id AS {alias}_id", (alias,)) for alias in aliases]
    if rng.random() < 0.2:
        outputs = outputs[:1] + [QueryPiece(f"{alias}.id", (alias,)) for alias in aliases[1:]]
    extra = rng.sample(EXTRA_OUTPUTS, rng.choice((0, 0, 1, 2)))
    return (
        *outputs,
        *(QueryPiece(text.format(a=alias), (alias,)) for text in extra for alias in (rng.choice(aliases),)),
    )
