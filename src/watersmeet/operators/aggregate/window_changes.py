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
from watersmeet.kernels.aggregation.as_join import net_changes
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.functions import encode_measure, multiply_by_weights
from watersmeet.operators.aggregate.input_window import WindowChanges
from watersmeet.operators.aggregate.result_set import Contributions
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.operators.aggregate.tables import build_changes
from watersmeet.operators.expressions import all_true, evaluate
from watersmeet.operators.window_join.work_counters import WorkCounters

Int64s = NDArray[np.int64]

#: Results per piece. It bounds memory for any batch, together with the matches of a single row.
RESULTS_PER_PIECE = 1 << 18


def find_window_changes(config: AggregateConfig, state: AggregateState, instants_us: Int64s) -> list[WindowChanges]:
    """Find the rows that enter and leave each window at these instants."""
    found = [
        state.inputs[number].window.find_changes(number, state.tables, instants_us) for number in config.stream_inputs
    ]
    state.tables.reserve_directories(max(each.entering_at.size for each in found))
    return found


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
    changes = _collect_changes(config, state, window_changes)
    shown: list[pa.RecordBatch] = []
    out = state.tables.allocate_results(RESULTS_PER_PIECE if changes.input.size > 1000 else RESULTS_PER_PIECE >> 6)
    for found in state.tables.join(changes, AggregationCounters(tally.probes, tally.touched), out):
        if found:
            results = _build_contributions(
                config, state, changes.instant, JoinedResults._make(each[:found] for each in out)
            )
            shown += state.result.add_results(results, instants_us, -1)
    if closing >= 0:
        shown += state.result.add_results(_empty_contributions(config, state), instants_us, closing)
    for each in window_changes:
        tally.inserts[each.number] += each.entering_at.size
        tally.expirations[each.number] += each.leaving_at.size
    return shown


def _collect_changes(
    config: AggregateConfig, state: AggregateState, window_changes: list[WindowChanges]
) -> EntryChanges:
    """Return all changes by instant.

    Within an instant, rows leave first. Early aggregation nets all changes of an entry into one.
    """
    parts = [build_changes(each.number, -1, each.leaving, each.leaving_at) for each in window_changes]
    parts += [build_changes(each.number, 1, each.entering, each.entering_at) for each in window_changes]
    if not parts:
        return _empty_changes(state)
    combined = EntryChanges._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(2 * combined.instant + (combined.rows > 0), kind="stable")
    ordered = EntryChanges._make(column[order] for column in combined)
    return _net_per_entry(ordered, state.tables.place_of) if config.early else ordered


def _net_per_entry(changes: EntryChanges, place_of: Int64s) -> EntryChanges:
    used = net_changes(changes, place_of)
    kept = EntryChanges._make(column[:used] for column in changes)
    matters = (kept.rows != 0) | np.any(kept.ints != 0, axis=1) | np.any(kept.pairs != 0, axis=1)
    return kept if matters.all() else EntryChanges._make(column[matters] for column in kept)


def _empty_changes(state: AggregateState) -> EntryChanges:
    widths, nothing = state.layout.row_widths, np.empty(0, np.int64)
    ints, approx = np.empty((0, widths.ints), np.int64), np.empty((0, widths.approx))
    return EntryChanges(nothing, nothing, nothing, nothing, ints, approx, np.empty((0, 2 * widths.pairs)))


def _build_contributions(
    config: AggregateConfig,
    state: AggregateState,
    instant_of_change: Int64s,
    found: JoinedResults,
) -> Contributions:
    """Return results with their groups, without those that a residual predicate rejects."""
    tables = state.tables
    instants, entries, ints, approx, pairs = (
        instant_of_change[found.change],
        found.entries,
        found.ints,
        found.approx,
        found.pairs,
    )
    if config.join.residuals:
        keep = all_true(config.join.residuals, _result_columns(config, state, entries), instants.size)
        if not keep.all():
            instants, entries, ints, approx, pairs = (
                instants[keep],
                entries[keep],
                ints[keep],
                approx[keep],
                pairs[keep],
            )
    column = _result_columns(config, state, entries)
    size = instants.size

    def value(expr: Expr) -> pa.Array[Any]:
        return evaluate(expr, column, size)

    groups = state.result.number_groups(
        [state.inputs[i].attributes.groups(tables.carried[entries[:, i]]) for i in state.result.grouping_inputs],
        [value(key) for key in config.spanning_keys],
        size,
    )
    for measure, at in zip(config.measures, state.layout.in_result, strict=True):
        if measure.owner is None:
            numbers = multiply_by_weights(encode_measure(measure.kind, value(measure.arg)), ints[:, 0])
            ints[:, 1 + at.ints : 1 + at.ints + measure.kind.ints] = numbers.ints
            approx[:, at.approx : at.approx + measure.kind.approx] = numbers.approx
            pairs[:, 2 * at.pairs : 2 * (at.pairs + measure.kind.pairs)] = numbers.floats
    codes, present = [], []
    for place, extreme in enumerate(config.extremes):
        if extreme.owner is None:
            values = value(extreme.arg)
            codes.append(state.result.order_codes[place].encode(values))
            present.append(np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_))
        else:
            codes.append(tables.extremes[entries[:, extreme.owner], place])
            present.append(tables.has_extreme[entries[:, extreme.owner], place])
    return Contributions(groups, instants, ints, approx, pairs, codes, present)


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
        [none for _ in config.extremes],
        [np.empty(0, np.bool_) for _ in config.extremes],
    )
