"""Configuration of an aggregation over a join, as a frozen value.

It holds the join, the attributes carried per input, the measures that are summed, and the outputs of a group.
`GroupOutputs` rewrites outputs and HAVING over the columns of a group's row. `MeasureLayout` places each measure's
numbers among the columns of its owner's rows and among the columns of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.arrow_types import null_array
from watersmeet.algebra.expressions import Aggregate, Column, Expr, columns_of, sources_of, walk
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, EmitMode, Output
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError, PlanError, QueryError, listing
from watersmeet.kernels.aggregation.arguments import NONE, AggregationColumns
from watersmeet.operators.aggregate.functions import (
    COUNT_ONLY,
    GroupState,
    Measure,
    find_function,
    is_extreme,
    measure_kind_of,
)
from watersmeet.operators.aggregate.window_rows import Int64s, last_instant_us, row_starts_us
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.window_join.config import JoinConfig, JoinInput, build_join_config
from watersmeet.sql.type_inference import type_of

AS_OF = "as_of"
AS_OF_TYPE = pa.timestamp("us", "UTC")
#: Column of operations, and its values: insert or replace the group's row, or delete it.
OPERATION, UPSERT, DELETE = "operation", "upsert", "delete"
#: Alias of a group's keys and aggregates in its row. No source can have this name.
GROUP = ""


@dataclass(frozen=True, slots=True)
class ExtremeArgument:
    """Argument of MIN and MAX; `owner` has the same meaning as for a measure."""

    arg: Expr
    owner: int | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class ExtremeAggregate:
    """One MIN or MAX: its number among the aggregates, the place of its argument, and the owner of that."""

    number: int
    argument: int
    owner: int | None
    largest: bool


@dataclass(frozen=True, slots=True)
class CarriedAttributes:
    """Attributes kept of an input's rows besides keys and measures.

    The input's own group keys come first, then the columns that are read from single results.
    """

    attributes: tuple[Expr, ...]
    types: tuple[pa.DataType, ...]
    group_keys: int

    @property
    def group_types(self) -> tuple[pa.DataType, ...]:
        return self.types[: self.group_keys]


@dataclass(frozen=True, slots=True)
class GroupOutputs:
    """Outputs and HAVING over the columns `key 0, key 1, …` and `aggregate 0, …` of a group's row."""

    keys: tuple[Expr, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    having: Expr | None


@dataclass(frozen=True, slots=True)
class AggregateConfig:
    """Everything that a step needs besides data."""

    join: JoinConfig
    carried: tuple[CarriedAttributes, ...]  # by input
    spanning_keys: tuple[Expr, ...]  # group keys that read several inputs
    spanning_types: tuple[pa.DataType, ...]
    class_types: tuple[pa.DataType, ...]  # of join keys, by equality class
    measures: tuple[Measure, ...]
    extremes: tuple[ExtremeArgument, ...]
    group_outputs: GroupOutputs
    result: pa.Schema
    later_by_us: tuple[tuple[int, ...], ...] | None  # bounds of pair constraints on the times of a result
    early: frozenset[int]
    every_us: int | None
    every_row: bool
    forget_after_us: tuple[int | None, ...]  # by input: when a row that never leaves is no longer needed
    emit: EmitMode = EmitMode.CHANGES
    operations: bool = False  # whether changes say what to do with a group's row
    partial: bool = False  # whether evaluations emit partial sums (`aggregate.merging`) instead of rows

    @property
    def emits_whole_results(self) -> bool:
        """Whether an evaluation emits all groups that are shown, and not only those that changed."""
        return self.emit is not EmitMode.CHANGES

    @property
    def never_subtracts(self) -> bool:
        """Whether no evaluation takes a row out of a window. Without EVERY, evaluations are undone."""
        return self.every_us is not None and all(
            each.window is None
            or (each.row_limit is None and each.window.longest_validity_us(self.every_us) == FOREVER_US)
            for each in self.inputs
        )

    @property
    def discards_tiles(self) -> bool:
        """Whether all streams have the same tumbling window, so that all rows of a tile leave at one evaluation.

        References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", definition 4.
        """
        windows = {self.inputs[number].window for number in self.stream_inputs}
        return self.every_us is not None and all(
            len(windows) == 1
            and each is not None
            and not each.slides
            and each.longest_validity_us(self.every_us) < FOREVER_US
            for each in windows
        )

    @property
    def extreme_aggregates(self) -> tuple[ExtremeAggregate, ...]:
        """Return MIN and MAX, in the order of their columns in the kernels."""
        places = {extreme.arg: place for place, extreme in enumerate(self.extremes)}
        return tuple(
            ExtremeAggregate(
                number, places[each.arg], self.extremes[places[each.arg]].owner, find_function(each).largest
            )
            for number, each in enumerate(self.group_outputs.aggregates)
            if is_extreme(each) and each.arg is not None
        )

    @property
    def early_extremes(self) -> frozenset[int]:
        """Return the numbers of the MIN and MAX that inputs compute early (Rule 2 of Tran and Lee).

        Then a group holds the extremes of entries and not those of rows. If results stay after their rows are
        forgotten, the groups could not be computed again under another plan. Then the argument identifies the entry.
        """
        if any(each is not None for each in self.forget_after_us):
            return frozenset()
        return frozenset(each.number for each in self.extreme_aggregates if each.owner in self.early)

    @property
    def plan(self) -> Plan:
        return self.join.plan

    @property
    def inputs(self) -> tuple[JoinInput, ...]:
        return self.join.inputs

    @property
    def stream_inputs(self) -> tuple[int, ...]:
        return self.join.stream_inputs

    def row_starts_us(self, number: int, times_us: Int64s) -> Int64s:
        """Return the first instant at which each row of an input is in its window."""
        return row_starts_us(self.inputs[number].window, times_us, self.every_us)

    def last_instant_us(self, largest_us: int) -> int:
        """Return the last instant that is evaluated when the input ends, given the largest time."""
        return last_instant_us([] if self.every_us is None else [each.window for each in self.inputs], largest_us)

    def key_owner(self, key: Expr) -> int:
        """Return the input that a group key reads."""
        return next(
            number for number, carried in enumerate(self.carried) if key in carried.attributes[: carried.group_keys]
        )


@dataclass(frozen=True, slots=True)
class ColumnOffsets:
    """First column of each kind: integers, approximations, pairs of doubles."""

    ints: int
    approx: int
    pairs: int


@dataclass(frozen=True, slots=True)
class MeasureLayout:
    """Column offsets of the measures.

    Measure m starts at `in_row[m]` among its owner's columns and at `in_result[m]` among all columns. Widths cover the
    widest input.
    """

    in_row: tuple[ColumnOffsets, ...]
    in_result: tuple[ColumnOffsets, ...]
    row_widths: ColumnOffsets
    result_widths: ColumnOffsets
    columns: AggregationColumns


def build_aggregate_config(bound: BoundQuery, plan: Plan | None = None, *, every_row: bool = False) -> AggregateConfig:
    """Build the aggregation that answers a query under a plan; refuse a plan that cannot run, with the reason."""
    plan = plan or Plan()
    _refuse_foreign_knobs(plan)
    _refuse_reserved_names(bound)
    shown = build_group_outputs(bound)
    spanning = tuple(key for key in shown.keys if len(sources_of(key)) > 1)
    arguments = [aggregate for aggregate in shown.aggregates if aggregate.arg is not None]
    join = build_join_config(
        build_join_below(bound, shown), plan, kernel_thetas=True, also_evaluated=_list_row_expressions(shown)
    )
    measures = _build_measures(bound, join, arguments)
    extremes = _build_extremes(bound, join, arguments)
    read_whole = [
        *join.residuals,
        *spanning,
        *(measure.arg for measure in measures if measure.owner is None),
        *(extreme.arg for extreme in extremes if extreme.owner is None),
    ]
    return AggregateConfig(
        join=join,
        carried=tuple(_find_carried_attributes(bound, shown, each.alias, read_whole) for each in join.inputs),
        spanning_keys=spanning,
        class_types=tuple(type_of(next(iter(keys.values())), bound.sources) for keys in join.classes.keys),
        spanning_types=tuple(type_of(key, bound.sources) for key in spanning),
        measures=measures,
        extremes=extremes,
        group_outputs=shown,
        result=_build_result_schema(bound, shown),
        later_by_us=compute_pair_bounds_us(bound),
        early=resolve_early_inputs(bound, plan),
        every_us=bound.query.every_us,
        every_row=every_row,
        emit=bound.query.emit,
        operations=bound.query.operations,
        forget_after_us=tuple(
            bound.forget_after_us(number) if source.is_stream and source.window is None else None
            for number, source in enumerate(bound.sources)
        ),
    )


def build_group_outputs(bound: BoundQuery) -> GroupOutputs:
    """Return the outputs of an aggregation query, with every key and every aggregate replaced by its column."""
    written = [*(output.expr for output in bound.outputs), *([] if bound.having is None else [bound.having])]
    aggregates = tuple(dict.fromkeys(node for expr in written for node in walk(expr) if isinstance(node, Aggregate)))
    columns: dict[Expr, Expr] = {key: Column(key_name(number), GROUP) for number, key in enumerate(bound.group_by)}
    columns |= {aggregate: Column(aggregate_name(number), GROUP) for number, aggregate in enumerate(aggregates)}
    return GroupOutputs(
        keys=bound.group_by,
        aggregates=aggregates,
        outputs=tuple(Output(output.name, _replace_by_columns(output.expr, columns)) for output in bound.outputs),
        having=None if bound.having is None else _replace_by_columns(bound.having, columns),
    )


def build_layout(config: AggregateConfig) -> MeasureLayout:
    """Assign columns to the measures of an aggregation."""
    taken = {number: ColumnOffsets(0, 0, 0) for number in [None, *range(len(config.join.inputs))]}
    total = ColumnOffsets(0, 0, 0)
    in_row, in_result = [], []
    for measure in config.measures:
        in_row.append(taken[measure.owner])
        in_result.append(total)
        taken[measure.owner] = _advance_offsets(
            taken[measure.owner], measure.kind.ints, measure.kind.approx, measure.kind.pairs
        )
        total = _advance_offsets(total, measure.kind.ints, measure.kind.approx, measure.kind.pairs)
    owned = [place for owner, place in taken.items() if owner is not None]
    widths = ColumnOffsets(
        max(each.ints for each in owned), max(each.approx for each in owned), max(each.pairs for each in owned)
    )
    return MeasureLayout(tuple(in_row), tuple(in_result), widths, total, _build_kernel_columns(config, in_row))


def resolve_early_inputs(bound: BoundQuery, plan: Plan) -> frozenset[int]:
    """Return the inputs that a plan aggregates early; refuse those that cannot be."""
    number = {source.alias: i for i, source in enumerate(bound.sources)}
    found = set()
    for alias in plan.early:
        if alias not in number:
            raise PlanError(
                f'the plan aggregates "{alias}" early, which is not a source', hint=f"sources: {listing(list(number))}"
            )
        reason = early_refusal_reason(bound, number[alias])
        if reason is not None:
            raise PlanError(
                f'"{alias}" cannot be aggregated early: {reason}',
                hint='remove it from "early"; late aggregation gives the same rows',
            )
        found.add(number[alias])
    return frozenset(found)


def early_refusal_reason(bound: BoundQuery, number: int) -> str | None:
    """Return why an input cannot be aggregated before the join; None if it can.

    Aggregated rows lose their times. Everything else that the join reads of a row becomes part of its group, so there
    is no other restriction.

    """
    source = bound.sources[number]
    if not source.is_stream or len(bound.stream_inputs) < 2:
        return None
    if bound.query.all_pairs_us is not None:
        return "WINDOW bounds the times of all rows of a result, and aggregated rows have no times"
    for pair in bound.query.pairs:
        if source.alias in (pair.first, pair.second):
            word = "DWINDOW" if pair.directed else "WINDOW"
            bounded = f"{word} ({pair.first}, {pair.second})"
            return f"{bounded} compares the times of single rows, and aggregated rows have no times"
    return None


def compute_pair_bounds_us(bound: BoundQuery) -> tuple[tuple[int, ...], ...] | None:
    """Return by how much a row of input j may be later than one of input i; None without pair constraints."""
    if bound.query.all_pairs_us is None and not bound.query.pairs:
        return None
    number = {source.alias: i for i, source in enumerate(bound.sources)}
    most_us = FOREVER_US if bound.query.all_pairs_us is None else bound.query.all_pairs_us
    streams = set(bound.stream_inputs)
    bounds = [[most_us if {i, j} <= streams else FOREVER_US for j in number.values()] for i in number.values()]
    for pair in bound.query.pairs:
        first, second = number[pair.first], number[pair.second]
        bounds[first][second] = min(bounds[first][second], pair.length_us)
        bounds[second][first] = min(bounds[second][first], 0 if pair.directed else pair.length_us)
    return tuple(tuple(row) for row in bounds)


def build_join_below(bound: BoundQuery, shown: GroupOutputs) -> BoundQuery:
    """Return the join below the aggregation. It outputs every column that the aggregation reads."""
    read = [*shown.keys, *(aggregate.arg for aggregate in shown.aggregates if aggregate.arg is not None)]
    columns = dict.fromkeys(column for expr in read for column in columns_of(expr))
    outputs = tuple(Output(f"{column.source}.{column.name}", column) for column in columns)
    return replace(bound, outputs=outputs, group_by=(), having=None)


def key_name(number: int) -> str:
    return f"key {number}"


def aggregate_name(number: int) -> str:
    return f"aggregate {number}"


def _refuse_foreign_knobs(plan: Plan) -> None:
    default = Plan()
    for knob in ("algorithm", "indexes", "evaluate_us", "expire_us", "cleanup_rows", "tree"):
        if getattr(plan, knob) != getattr(default, knob):
            name = knob.removesuffix("_us")
            raise PlanError(
                f'an aggregation query has no "{name}" to choose', hint='it has "early" and the order of probing'
            )


def _refuse_reserved_names(bound: BoundQuery) -> None:
    reserved = {AS_OF: "evaluation instants"} | ({OPERATION: "operations"} if bound.query.operations else {})
    for output in bound.outputs:
        if output.name in reserved:
            raise QueryError(
                f'an output column is named "{output.name}", the name of the column of {reserved[output.name]}',
                hint="give it another alias",
            )


def _list_row_expressions(shown: GroupOutputs) -> tuple[Expr, ...]:
    """Return group keys and arguments of aggregates.

    Those that read one source are evaluated per row, before the join.
    """
    return (*shown.keys, *(aggregate.arg for aggregate in shown.aggregates if aggregate.arg is not None))


def _build_measures(bound: BoundQuery, join: JoinConfig, arguments: list[Aggregate]) -> tuple[Measure, ...]:
    """Return one measure per argument that is counted or summed. A sum also counts."""
    summed = [aggregate for aggregate in arguments if find_function(aggregate).keeps is GroupState.SUM]
    counted = [aggregate for aggregate in arguments if find_function(aggregate).keeps is GroupState.COUNT]
    found: dict[Expr, Measure] = {}
    for aggregate in [*summed, *counted]:
        arg = _require_arg(aggregate)
        kind = measure_kind_of(type_of(arg, bound.sources)) if aggregate in summed else COUNT_ONLY
        found.setdefault(arg, Measure(arg, _find_owner(join, arg), kind, type_of(arg, bound.sources)))
    return tuple(found.values())


def _build_extremes(bound: BoundQuery, join: JoinConfig, arguments: list[Aggregate]) -> tuple[ExtremeArgument, ...]:
    args = dict.fromkeys(_require_arg(aggregate) for aggregate in arguments if is_extreme(aggregate))
    return tuple(ExtremeArgument(arg, _find_owner(join, arg), type_of(arg, bound.sources)) for arg in args)


def _require_arg(aggregate: Aggregate) -> Expr:
    if aggregate.arg is None:
        raise InternalError("COUNT(*) has no argument")
    return aggregate.arg


def _find_owner(join: JoinConfig, arg: Expr) -> int | None:
    """Return the input that an argument reads. A constant belongs to the first stream."""
    read = sources_of(arg)
    if not read:
        return join.stream_inputs[0]
    return join.aliases[next(iter(read))] if len(read) == 1 else None


def _find_carried_attributes(
    bound: BoundQuery, shown: GroupOutputs, alias: str, read_whole: list[Expr]
) -> CarriedAttributes:
    own = [
        key
        for key in shown.keys
        if sources_of(key) == {alias} or (not sources_of(key) and alias == bound.sources[bound.stream_inputs[0]].alias)
    ]
    columns = [column for expr in read_whole for column in columns_of(expr) if column.source == alias]
    attributes = tuple(dict.fromkeys([*own, *columns]))
    return CarriedAttributes(
        attributes, tuple(type_of(each, bound.sources) for each in attributes), len(dict.fromkeys(own))
    )


def _build_result_schema(bound: BoundQuery, shown: GroupOutputs) -> pa.Schema:
    """Return the result schema, with types from evaluating the outputs on no rows."""
    types = {key_name(i): _value_type(type_of(key, bound.sources)) for i, key in enumerate(shown.keys)}
    types |= {aggregate_name(i): type_of(each, bound.sources) for i, each in enumerate(shown.aggregates)}

    def no_rows(column: Column) -> pa.Array[Any]:
        if column.source != GROUP:
            raise InternalError(f'column "{column.name}" is not of the group')
        return null_array(0, types[column.name])

    fields = [(output.name, evaluate(output.expr, no_rows, 0).type) for output in shown.outputs]
    operation = [(OPERATION, pa.string())] if bound.query.operations else []
    return pa.schema([*fields, (AS_OF, AS_OF_TYPE), *operation])


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _replace_by_columns(expr: Expr, columns: dict[Expr, Expr]) -> Expr:
    """Replace subexpressions from the outside in: a key may be an expression whose parts are keys themselves."""
    if expr in columns:
        return columns[expr]
    changed = {
        part.name: _replace_inside(getattr(expr, part.name), columns) for part in fields(expr) if part.name != "span"
    }
    return replace(expr, **changed)


def _replace_inside(value: Any, columns: dict[Expr, Expr]) -> Any:
    if isinstance(value, Expr):
        return _replace_by_columns(value, columns)
    if isinstance(value, tuple):
        return tuple(_replace_inside(part, columns) for part in value)
    return value


def _advance_offsets(place: ColumnOffsets, ints: int, approx: int, pairs: int) -> ColumnOffsets:
    return ColumnOffsets(place.ints + ints, place.approx + approx, place.pairs + pairs)


def _build_kernel_columns(config: AggregateConfig, in_row: list[ColumnOffsets]) -> AggregationColumns:
    found: dict[str, list[int]] = {name: [] for name in AggregationColumns._fields}
    for measure, place in zip(config.measures, in_row, strict=True):
        owner = NONE if measure.owner is None else measure.owner
        for sort, first, count in (
            ("int", place.ints, measure.kind.ints),
            ("approx", place.approx, measure.kind.approx),
            ("pair", place.pairs, measure.kind.pairs),
        ):
            found[f"{sort}_owner"] += [owner] * count
            found[f"{sort}_place"] += list(range(first, first + count))
    found["extreme_owner"] = [NONE if each.owner is None else each.owner for each in config.extreme_aggregates]
    return AggregationColumns(**{name: np.array(values, np.int64) for name, values in found.items()})
