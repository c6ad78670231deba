"""Changes of the windows between evaluations, and the results that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr
from watersmeet.errors import InternalError
from watersmeet.kernels.aggregation.arguments import AggregationCounters, EntryChanges, JoinedResults
from watersmeet.operators.aggregate.config import AggregateConfig, ExtremeAggregate
from watersmeet.operators.aggregate.functions import encode_measure, multiply_by_weights
from watersmeet.operators.aggregate.input_window import WindowChanges
from watersmeet.operators.aggregate.result_set import Contributions, ExtremeValues, select_values
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.operators.aggregate.window_rows import OUTSIDE
from watersmeet.operators.expressions import all_true, evaluate
from watersmeet.operators.window_join.work_counters import WorkCounters

Int64s = NDArray[np.int64]

#: Results per piece. It bounds memory for any batch, together with the matches of a single row.
RESULTS_PER_PIECE = 1 << 18
#: Fewer leaving rows per tile are subtracted.
MIN_DISCARDED_ROWS = 256


def find_window_changes(config: AggregateConfig, state: AggregateState, instants_us: Int64s) -> list[WindowChanges]:
    """Find the rows that enter and leave each window at these instants."""
    return [
        state.inputs[number].window.find_changes(number, state.tables, instants_us) for number in config.stream_inputs
    ]


def apply_window_changes(
    config: AggregateConfig,
    state: AggregateState,
    window_changes: list[WindowChanges],
    instants_us: Int64s,
    tally: WorkCounters,
    *,
    closing: int,
) -> list[pa.RecordBatch]:
    """Apply the changes in order of instants, and return the rows that the instants emit.

    `closing` is the number of the instant that ends; −1 leaves the last instant open.
    """
    shown: list[pa.RecordBatch] = []
    tile_ends = _find_tile_ends(config, window_changes)
    after = -1
    for end in tile_ends.tolist():
        shown += _join_changes(config, state, _select_entering(window_changes, after, end - 1), instants_us, tally)
        shown += _discard_tile(config, state, window_changes, instants_us, end)
        after = end - 1
    changes = _select_entering(window_changes, after, instants_us.size) if tile_ends.size else window_changes
    shown += _join_changes(config, state, changes, instants_us, tally)
    if closing >= 0:
        shown += state.result.add_results(_empty_contributions(config, state), instants_us, closing)
    for each in window_changes:
        tally.inserts[each.number] += each.entering_at.size
        tally.expirations[each.number] += each.leaving_at.size
    return shown


def _find_tile_ends(config: AggregateConfig, window_changes: list[WindowChanges]) -> Int64s:
    """Return the numbers of the instants at which a tile is discarded; none if its rows are subtracted one by one.

    A few rows are subtracted faster than a tile is discarded.
    """
    if not config.discards_tiles or not window_changes:
        return np.empty(0, np.int64)
    leaving = np.concatenate([each.leaving_at for each in window_changes])
    ends = np.unique(leaving)
    return ends if ends.size * MIN_DISCARDED_ROWS <= leaving.size else ends[:0]


def _select_entering(window_changes: list[WindowChanges], after: int, until: int) -> list[WindowChanges]:
    """Return the rows that enter at an instant after one and up to another, and no rows that leave."""
    selected = []
    for each in window_changes:
        chosen = np.flatnonzero((each.entering_at > after) & (each.entering_at <= until))
        nothing = each.leaving.take(slice(0, 0))
        selected.append(
            WindowChanges(
                each.number, each.entering.take(chosen), each.entering_at[chosen], nothing, each.leaving_at[:0], nothing
            )
        )
    return selected


def _discard_tile(
    config: AggregateConfig,
    state: AggregateState,
    window_changes: list[WindowChanges],
    instants_us: Int64s,
    end: int,
) -> list[pa.RecordBatch]:
    """Remove all rows of a tile and empty all groups, without joining them; return the rows of earlier instants."""
    tables = state.tables
    shown = state.result.add_results(_empty_contributions(config, state), instants_us, max(end - 1, 0))
    parts = []
    for each in window_changes:
        chosen = np.flatnonzero(each.leaving_at == end)
        parts.append(tables.build_changes(each.number, -1, each.leaving.take(chosen), each.leaving_at[chosen]))
    tables.apply(tables.order_changes(parts))
    return shown + state.result.empty_groups(instants_us, end)


def _join_changes(
    config: AggregateConfig,
    state: AggregateState,
    window_changes: list[WindowChanges],
    instants_us: Int64s,
    tally: WorkCounters,
) -> list[pa.RecordBatch]:
    """Join the changes and add the results to the groups; return the rows of all instants but the last."""
    tables = state.tables
    parts = [tables.build_changes(each.number, -1, each.leaving, each.leaving_at) for each in window_changes]
    parts += [tables.build_changes(each.number, 1, each.entering, each.entering_at) for each in window_changes]
    changes = tables.order_changes(parts)
    shown: list[pa.RecordBatch] = []
    out = tables.allocate_results(RESULTS_PER_PIECE if changes.input.size > 1000 else RESULTS_PER_PIECE >> 6)
    for found in tables.join(changes, AggregationCounters(tally.probes, tally.touched), out):
        if found:
            results = _build_contributions(
                config, state, changes.instant, JoinedResults._make(each[:found] for each in out)
            )
            shown += state.result.add_results(results, instants_us, -1)
    return shown


def _build_contributions(
    config: AggregateConfig,
    state: AggregateState,
    instant_of_change: Int64s,
    found: JoinedResults,
) -> Contributions:
    """Return results with their groups, without those that a residual predicate rejects."""
    instants = instant_of_change[found.change]
    if config.join.residuals:
        keep = all_true(config.join.residuals, _result_columns(config, state, found.entries), instants.size)
        if not keep.all():
            instants, found = instants[keep], JoinedResults._make(each[keep] for each in found)
    entries, ints, approx, pairs = found.entries, found.ints, found.approx, found.pairs
    column = _result_columns(config, state, entries)
    size = instants.size

    def value(expr: Expr) -> pa.Array[Any]:
        return evaluate(expr, column, size)

    groups = state.result.number_groups(
        [state.inputs[i].attributes.groups(state.tables.carried[entries[:, i]]) for i in state.result.grouping_inputs],
        [value(key) for key in config.spanning_keys],
        size,
    )
    for measure, at in zip(config.measures, state.layout.in_result, strict=True):
        if measure.owner is None:
            numbers = multiply_by_weights(encode_measure(measure.kind, value(measure.arg)), ints[:, 0])
            ints[:, 1 + at.ints : 1 + at.ints + measure.kind.ints] = numbers.ints
            approx[:, at.approx : at.approx + measure.kind.approx] = numbers.approx
            pairs[:, 2 * at.pairs : 2 * (at.pairs + measure.kind.pairs)] = numbers.floats
    values = [
        _find_owned_values(groups, instants, found.extremes[:, 4 * place : 4 * place + 4])
        if each.owner is not None
        else _find_values(state, each, value(config.extremes[each.argument].arg), groups, instants, ints[:, 0])
        for place, each in enumerate(config.extreme_aggregates)
    ]
    return Contributions(groups, instants, ints, approx, pairs, values)


def _find_owned_values(groups: Int64s, instants: Int64s, columns: Int64s) -> ExtremeValues:
    """Return the values that results take from their groups and add to them (`JoinedResults`)."""
    codes, weights = columns[:, ::2], columns[:, 1::2]
    rows, sides = np.nonzero(weights)
    return ExtremeValues(groups[rows], instants[rows], codes[rows, sides], weights[rows, sides])


def _find_values(
    state: AggregateState,
    extreme: ExtremeAggregate,
    values: pa.Array[Any],
    groups: Int64s,
    instants: Int64s,
    weights: Int64s,
) -> ExtremeValues:
    """Return the values of an argument that reads several inputs."""
    codes = state.result.order_codes[extreme.argument].encode(values)
    return select_values(groups, instants, codes, values, np.ascontiguousarray(weights))


def recompute_extremes(config: AggregateConfig, state: AggregateState) -> None:
    """Compute the MIN and MAX of all groups again if they hold other values under this plan.

    A group holds the extremes of rows, or those of early entries. All entries of one stream leave and enter again; what
    they join are the values of the groups.
    """
    changed = state.result.early_extremes ^ config.early_extremes
    if not changed:
        return
    tables, number = state.tables, config.stream_inputs[0]
    rows = state.inputs[number].window.read_rows()
    held = tables.copy_entries(number, np.unique(rows.entry[rows.entry != OUTSIDE]))
    gone = EntryChanges(held.input, held.entry, -held.rows, *held[3:])
    tables.apply(gone)
    inputs = len(config.inputs)
    uncounted = AggregationCounters(np.zeros((inputs, inputs), np.int64), np.zeros((inputs, inputs), np.int64))
    parts: list[list[ExtremeValues]] = [[] for _ in config.extreme_aggregates]
    out = tables.allocate_results(RESULTS_PER_PIECE)
    for found in tables.join(held, uncounted, out):
        results = JoinedResults._make(each[:found] for each in out)
        for place, values in enumerate(_build_contributions(config, state, held.instant, results).values):
            parts[place].append(values)
    for place, each in enumerate(config.extreme_aggregates):
        if each.number in changed:
            groups, codes, weights = (
                np.concatenate([np.empty(0, np.int64), *(getattr(values, name) for values in parts[place])])
                for name in ("groups", "codes", "weights")
            )
            extremes = state.result.extremes[each.number]
            state.result.extremes[each.number] = extremes.with_values(groups, codes, weights)
    state.result.early_extremes = config.early_extremes


def _result_columns(
    config: AggregateConfig, state: AggregateState, entries: Int64s
) -> Callable[[Column], pa.Array[Any]]:
    """Return the columns of single results, from the carried attributes of each input."""
    found: dict[Column, pa.Array[Any]] = {}

    def column(reference: Column) -> pa.Array[Any]:
        if reference not in found:
            if reference.source is None:
                raise InternalError(f'column "{reference.name}" was never bound')
            number = config.join.aliases[reference.source]
            place = config.carried[number].attributes.index(reference)
            found[reference] = state.inputs[number].attributes.values.take(
                place, state.tables.carried[entries[:, number]]
            )
        return found[reference]

    return column


def _empty_contributions(config: AggregateConfig, state: AggregateState) -> Contributions:
    widths = state.layout.result_widths
    none = np.empty(0, np.int64)
    return Contributions(
        none,
        none,
        np.empty((0, 1 + widths.ints), np.int64),
        np.empty((0, widths.approx)),
        np.empty((0, 2 * widths.pairs)),
        [ExtremeValues(none, none, none, none) for _ in config.extreme_aggregates],
    )
