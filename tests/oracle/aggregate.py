"""Aggregation-join queries: aggregates of the join's result set at an instant, and the changes between instants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context
from itertools import product
from typing import Any

import pyarrow as pa

from tests.oracle.expressions import Row, evaluate
from tests.oracle.functions import greatest, least
from tests.oracle.join import SourceRows, admitted_members, build_source_rows, merge_columns, pairs_hold
from tests.oracle.predicates import holds, split_where
from tests.oracle.values import Duration, event_times_us, sort_key
from tests.oracle.windows import last_instant_us
from watersmeet.algebra.expressions import Aggregate, Column, Expr, rewrite, walk
from watersmeet.algebra.query import BoundQuery, EmitMode
from watersmeet.errors import InternalError, QueryError

_EXACT = Context(prec=200)
_GROUPED = ""  # alias of group keys and aggregates in the row of a group

Group = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A row that an evaluation emits: the instant, and the columns in the order of `bound.outputs`.

    Changes with operations say what to do with the row of the group: upsert or delete.
    """

    as_of_us: int
    row: tuple[Any, ...]
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class _Combination:
    """Rows that satisfy the predicates and pair constraints together, regardless of the windows.

    Holds the row numbers, columns and group. An error of the predicate or of a group key counts if the rows are ever in
    their windows together.
    """

    numbers: tuple[int, ...]
    row: Row
    group: Group
    error: QueryError | None = None


def groups_at(bound: BoundQuery, tables: Mapping[str, pa.Table], t_us: int) -> dict[Group, tuple[Any, ...]]:
    """Return AS(t): the output row of each group at instant t, before HAVING.

    A group is named by its keys, in a form in which NaN and null equal themselves.
    """
    feeds = _build_sources(bound, tables)
    return {
        group: _output_row(bound, rows)
        for group, rows in _members_at(bound, feeds, _combinations(bound, feeds), t_us).items()
    }


def evaluations(bound: BoundQuery, tables: Mapping[str, pa.Table], instants_us: Iterable[int]) -> list[Evaluation]:
    """Return the rows that evaluating at each of these instants emits, in their order."""
    feeds = _build_sources(bound, tables)
    combinations = _combinations(bound, feeds)
    return _emit(bound, ((t_us, _members_at(bound, feeds, combinations, t_us)) for t_us in instants_us))


def batch_evaluations(bound: BoundQuery, batches: Iterable[tuple[int, Mapping[str, pa.Table]]]) -> list[Evaluation]:
    """Return the rows emitted at the end of each batch, given its instant and the rows arrived by then."""
    return _emit(bound, ((t_us, _members(bound, tables, t_us)) for t_us, tables in batches))


def _emit(bound: BoundQuery, contents: Iterable[tuple[int, dict[Group, list[Row]]]]) -> list[Evaluation]:
    if bound.query.emit is not EmitMode.CHANGES:
        return _emit_whole(bound, contents)
    return _emit_operations(bound, contents) if bound.query.operations else _emit_changes(bound, contents)


def _emit_whole(bound: BoundQuery, contents: Iterable[tuple[int, dict[Group, list[Row]]]]) -> list[Evaluation]:
    """Emit every shown group at every evaluation."""
    return [
        Evaluation(t_us, _output_row(bound, rows))
        for t_us, members in contents
        for rows in members.values()
        if _is_shown(bound, rows)
    ]


def _emit_operations(bound: BoundQuery, contents: Iterable[tuple[int, dict[Group, list[Row]]]]) -> list[Evaluation]:
    """Emit what turns the table of the previous evaluation into the table of this one."""
    emitted: list[Evaluation] = []
    table: dict[Group, tuple[Any, ...]] = {}
    keys: dict[Group, Row] = {}
    for t_us, members in contents:
        keys |= {group: rows[0] for group, rows in members.items()}
        now = {group: _output_row(bound, rows) for group, rows in members.items() if _is_shown(bound, rows)}
        emitted += [
            Evaluation(t_us, row, "upsert")
            for group, row in now.items()
            if group not in table or not _are_same(row, table[group])
        ]
        emitted += [
            Evaluation(t_us, _output_row(bound, members.get(group, []), keys[group]), "delete")
            for group in table
            if group not in now
        ]
        table = now
    return emitted


def _emit_changes(bound: BoundQuery, contents: Iterable[tuple[int, dict[Group, list[Row]]]]) -> list[Evaluation]:
    """Go from evaluation to evaluation and emit changes.

    Emit shown groups that are new or changed, and shown groups that became empty.
    """
    emitted: list[Evaluation] = []
    shown_before: set[Group] = set()
    last_emitted: dict[Group, tuple[Any, ...]] = {}
    keys: dict[Group, Row] = {}
    for t_us, members in contents:
        keys |= {group: rows[0] for group, rows in members.items()}
        shown = {group for group, rows in members.items() if _is_shown(bound, rows)}
        for group in shown:
            row = _output_row(bound, members[group])
            if group not in shown_before or not _are_same(row, last_emitted[group]):
                emitted.append(Evaluation(t_us, row))
                last_emitted[group] = row
        emitted += [
            Evaluation(t_us, _output_row(bound, [], keys[group])) for group in shown_before if group not in members
        ]
        shown_before = shown
    return emitted


def every_instants(bound: BoundQuery, tables: Mapping[str, pa.Table]) -> list[int]:
    """Return the multiples of EVERY since the epoch, from the first time to the largest time.

    The windows may ask for a later last instant: tumbling windows ask for the end of the last tile.
    """
    every_us = bound.query.every_us
    if every_us is None:
        raise InternalError("the query has no EVERY")
    streams = [bound.sources[i] for i in bound.stream_inputs]
    times_us = [
        time for each in streams for time in event_times_us(tables[each.schema.name].column(each.time), each.unit)
    ]
    if not times_us:
        return []
    last_us = max(last_instant_us(source.window, max(times_us)) for source in bound.sources)
    return list(range(-(-min(times_us) // every_us) * every_us, last_us + 1, every_us))


def _build_sources(bound: BoundQuery, tables: Mapping[str, pa.Table]) -> list[SourceRows]:
    return [build_source_rows(source, tables[source.schema.name]) for source in bound.sources]


def _combinations(bound: BoundQuery, feeds: list[SourceRows]) -> list[_Combination]:
    found, where = [], split_where(bound)
    for combination in product(*admitted_members(where, feeds)):
        rows = [row for row, _ in combination]
        if not pairs_hold(bound, rows):
            continue
        numbers, row = tuple(each.number for each in rows), merge_columns(combination)
        try:
            if holds(where.shared, row):
                found.append(_Combination(numbers, row, tuple(sort_key(evaluate(key, row)) for key in bound.group_by)))
        except QueryError as error:
            found.append(_Combination(numbers, row, (), error))
    return found


def _members(bound: BoundQuery, tables: Mapping[str, pa.Table], t_us: int) -> dict[Group, list[Row]]:
    feeds = _build_sources(bound, tables)
    return _members_at(bound, feeds, _combinations(bound, feeds), t_us)


def _members_at(
    bound: BoundQuery, feeds: list[SourceRows], combinations: list[_Combination], t_us: int
) -> dict[Group, list[Row]]:
    """Return, per group, the combinations with every row in its window at t."""
    has_every = bound.query.every_us is not None
    inside = [
        {row.number for row in (feed.in_window_every(t_us) if has_every else feed.in_window(t_us))} for feed in feeds
    ]
    groups: dict[Group, list[Row]] = {}
    for each in combinations:
        if all(number in window for number, window in zip(each.numbers, inside, strict=True)):
            if each.error is not None:
                raise each.error
            groups.setdefault(each.group, []).append(each.row)
    return groups


def _output_row(bound: BoundQuery, rows: list[Row], representative: Row | None = None) -> tuple[Any, ...]:
    return tuple(_grouped_value(bound, output.expr, rows, representative) for output in bound.outputs)


def _is_shown(bound: BoundQuery, rows: list[Row]) -> bool:
    """Return whether HAVING is true of a group that is not empty.

    A sum that overflows is an error, whatever HAVING says of the group.
    """
    for expr in (*(output.expr for output in bound.outputs), *([] if bound.having is None else [bound.having])):
        for node in walk(expr):
            if isinstance(node, Aggregate):
                _compute_aggregate(node, rows)
    return bound.having is None or _grouped_value(bound, bound.having, rows, None) is True


def _grouped_value(bound: BoundQuery, expr: Expr, rows: list[Row], representative: Row | None) -> Any:
    """Evaluate an output of a group: keys from any of its rows, aggregates over all of them."""
    values: dict[tuple[str, str], Any] = dict(representative if representative is not None else rows[0])

    def settle(node: Expr) -> Expr:
        if not isinstance(node, Aggregate):
            return node
        name = f"aggregate {len(values)}"
        values[_GROUPED, name] = _compute_aggregate(node, rows)
        return Column(name, _GROUPED)

    return evaluate(rewrite(expr, settle), values)


def _compute_aggregate(aggregate: Aggregate, rows: list[Row]) -> Any:
    if aggregate.arg is None:
        return len(rows)
    present = [value for row in rows if (value := evaluate(aggregate.arg, row)) is not None]
    return _AGGREGATES[aggregate.function](present, aggregate.arg)


def _count(values: list[Any], arg: Expr) -> int:
    return len(values)


def _sum(values: list[Any], arg: Expr) -> Any:
    if not values:
        return None
    total = values[0]
    for value in values[1:]:
        total = _plus(total, value)
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise QueryError(f"integer overflow in the sum of {_describe_argument(arg)}")
    return total


def _plus(total: Any, value: Any) -> Any:
    if isinstance(value, Duration):
        return Duration(total.ns + value.ns)
    return total + value if isinstance(value, int | float) else _EXACT.add(total, value)


def _average(values: list[Any], arg: Expr) -> Any:
    total = _sum(values, arg)
    return None if total is None else float(total) / len(values)


def _smallest(values: list[Any], arg: Expr) -> Any:
    return least(*values)


def _largest(values: list[Any], arg: Expr) -> Any:
    return greatest(*values)


def _describe_argument(arg: Expr) -> str:
    return f'"{arg.source}.{arg.name}"' if isinstance(arg, Column) else "an expression"


def _are_same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return [sort_key(value) for value in left] == [sort_key(value) for value in right]


_AGGREGATES: dict[str, Callable[[list[Any], Expr], Any]] = {
    "COUNT": _count,
    "SUM": _sum,
    "AVG": _average,
    "MIN": _smallest,
    "MAX": _largest,
}
