"""What happens to the windows between evaluations, and the results that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr
from watersmeet.errors import InternalError
from watersmeet.kernels.aggregation.arguments import NONE, AggregationCounters, EntryChanges, JoinedResults
from watersmeet.kernels.aggregation.as_join import net_changes
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.measures import encode_measure, multiply_by_weights
from watersmeet.operators.aggregate.result_set import Contributions
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.operators.aggregate.tables import build_changes
from watersmeet.operators.aggregate.window_rows import WindowRows
from watersmeet.operators.expressions import all_true, evaluate
from watersmeet.operators.window_join.work_counters import WorkCounters

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Results in one piece: memory is bounded by it (and by the matches of a single row), whatever the batch.
RESULTS_PER_PIECE = 1 << 18


@dataclass(frozen=True)
class WindowChanges:
    """One input's part: its rows with their entries, which of them enter and which leave, at which instants, and which
    are then gone.
    """

    number: int
    rows: WindowRows
    entering: Int64s
    entering_at: Int64s
    leaving: Int64s
    leaving_at: Int64s
    expired: Bools

    def invert(self) -> WindowChanges:
        return WindowChanges(
            self.number, self.rows, self.leaving, self.leaving_at, self.entering, self.entering_at, self.expired
        )


def find_window_changes(config: AggregateConfig, state: AggregateState, instants_us: Int64s) -> list[WindowChanges]:
    """Find who enters and who leaves at which of these instants. A row is inside at t when its first and its last
    instant are around t.
    """
    return [
        _find_input_changes(state, number, config.row_starts_us(number, state.inputs[number].rows.times), instants_us)
        for number in config.stream_numbers
    ]


def _find_input_changes(state: AggregateState, number: int, starts_us: Int64s, instants_us: Int64s) -> WindowChanges:
    rows = state.inputs[number].rows
    enters = np.searchsorted(instants_us, starts_us, side="left")
    leaves = np.searchsorted(instants_us, rows.ends, side="right")
    inside = rows.entry >= 0
    gone = leaves < instants_us.size
    entering = np.flatnonzero(~inside & (enters < leaves) & (enters < instants_us.size))
    entry = rows.entry.copy()
    if entering.size:
        entry[entering] = state.tables.assign_entries(number, rows.take(entering))
        state.tables.reserve_directories(entering.size)
    leaving = np.flatnonzero(gone & (entry >= 0))
    return WindowChanges(number, rows.with_entries(entry), entering, enters[entering], leaving, leaves[leaving], gone)


def apply_window_changes(
    config: AggregateConfig,
    state: AggregateState,
    happening: list[WindowChanges],
    instants_us: Int64s,
    tally: WorkCounters,
    *,
    closing: int,
) -> list[pa.RecordBatch]:
    """Lets it all happen, in order of instants, and returns what the instants show; `closing` ends the last one, −1
    leaves it open.
    """
    changes = _collect_changes(config, state, happening)
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
    for each in happening:
        tally.inserts[each.number] += each.entering.size
        tally.expirations[each.number] += each.leaving.size
    return shown


def _collect_changes(config: AggregateConfig, state: AggregateState, happening: list[WindowChanges]) -> EntryChanges:
    """All changes by instant; in an instant rows leave first, and early aggregation makes one change of all that
    happens to an entry.
    """
    parts = [build_changes(each.number, -1, each.rows, each.leaving, each.leaving_at) for each in happening]
    parts += [build_changes(each.number, 1, each.rows, each.entering, each.entering_at) for each in happening]
    if not parts:
        return _empty_changes(state)
    together = EntryChanges._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(2 * together.instant + (together.rows > 0), kind="stable")
    ordered = EntryChanges._make(column[order] for column in together)
    return _net_per_entry(ordered, state.tables.entries.rows.size) if config.early else ordered


def _net_per_entry(changes: EntryChanges, entries: int) -> EntryChanges:
    used = net_changes(changes, np.full(entries, NONE, np.int64))
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
    """Results with their groups; those that a predicate rules out which only values can decide are left out."""
    tables = state.tables
    instants, met, ints, approx, pairs = (
        instant_of_change[found.change],
        found.met,
        found.ints,
        found.approx,
        found.pairs,
    )
    if config.join.residuals:
        keep = all_true(config.join.residuals, _result_columns(config, state, met), instants.size)
        if not keep.all():
            instants, met, ints, approx, pairs = instants[keep], met[keep], ints[keep], approx[keep], pairs[keep]
    column = _result_columns(config, state, met)
    size = instants.size

    def value(expr: Expr) -> pa.Array:
        return evaluate(expr, column, size)

    groups = state.result.number_groups(
        [state.inputs[i].attributes.groups(tables.carried[met[:, i]]) for i in state.result.grouping_inputs],
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
            codes.append(tables.extremes[met[:, extreme.owner], place])
            present.append(tables.has_extreme[met[:, extreme.owner], place])
    return Contributions(groups, instants, ints, approx, pairs, codes, present)


def _result_columns(config: AggregateConfig, state: AggregateState, met: Int64s) -> Callable[[Column], pa.Array]:
    """The columns of single results, through what is carried of each input."""
    found: dict[Column, pa.Array] = {}

    def column(wanted: Column) -> pa.Array:
        if wanted not in found:
            if wanted.source is None:
                raise InternalError(f'column "{wanted.name}" was never bound')
            number = config.join.aliases[wanted.source]
            place = config.carried[number].attributes.index(wanted)
            found[wanted] = state.inputs[number].attributes.values.take(place, state.tables.carried[met[:, number]])
        return found[wanted]

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
