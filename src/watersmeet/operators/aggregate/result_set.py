"""The aggregation set of a query: one row per group, maintained by signed results.

Each evaluation emits the rows of the groups that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.kernels.aggregation.arguments import DIRTY, NONE, OPEN, AggregationSet, EmittedGroups
from watersmeet.kernels.aggregation.as_update import as_update
from watersmeet.operators.aggregate.codes import Attributes, Interner, OrderCodes, ValueCodes, ValueColumns
from watersmeet.operators.aggregate.config import (
    AS_OF_TYPE,
    DELETE,
    UPSERT,
    AggregateConfig,
    MeasureLayout,
    aggregate_name,
    key_name,
)
from watersmeet.operators.aggregate.extremes import Extremes
from watersmeet.operators.aggregate.functions import GroupState, decode_totals, find_function
from watersmeet.operators.aggregate.snapshots import SnapshotBuilder
from watersmeet.operators.aggregate.state_size import VALUE_BYTES, compute_state_sizes
from watersmeet.operators.expressions import evaluate, is_true

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
#: Columns of partial rows: the evaluation instant, and +1 or -1.
AS_OF_US, SIGN = "as of", "sign"
#: The matrices of a group's sums, as `GroupSums` names them.
SUM_MATRICES = ("ints", "approx", "pairs")
#: Names of the result columns that hold sums.
SUM_COLUMNS = ("ints", "approx", "pairs", "emitted_ints", "emitted_approx", "emitted_pairs")


@dataclass(frozen=True)
class ExtremeValues:
    """Values that groups get or lose by instant, for one MIN or MAX, and how often they count."""

    groups: Int64s
    instants: Int64s
    codes: Int64s
    weights: Int64s


@dataclass(frozen=True)
class Contributions:
    """Signed results by instant: the numbers that each adds to its group's columns, and the values by MIN or MAX."""

    groups: Int64s
    instants: Int64s
    ints: Int64s
    approx: Float64s
    pairs: Float64s
    values: list[ExtremeValues]


@dataclass(frozen=True)
class GroupSums:
    """Columns of some groups at one instant."""

    ints: Int64s
    approx: Float64s
    pairs: Float64s
    nodes: list[Int64s]  # by MIN or MAX

    @property
    def is_empty(self) -> Bools:
        """Which groups have no rows."""
        return np.asarray(self.ints[:, 0] == 0)

    def take(self, chosen: Bools) -> GroupSums:
        """Return the chosen groups."""
        return GroupSums(
            self.ints[chosen], self.approx[chosen], self.pairs[chosen], [each[chosen] for each in self.nodes]
        )


def select_values(
    groups: Int64s, instants: Int64s, codes: Int64s, values: pa.Array[Any], weights: Int64s
) -> ExtremeValues:
    """Return the values that are not NULL, with their codes."""
    if not values.null_count:
        return ExtremeValues(groups, instants, codes, weights)
    chosen = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return ExtremeValues(groups[chosen], instants[chosen], codes[chosen], weights[chosen])


class ResultSet:
    """Groups by number, their columns, their heaps, and their last shown state."""

    def __init__(self, config: AggregateConfig, layout: MeasureLayout, attributes: list[Attributes]):
        self.config, self.layout, self.attributes = config, layout, attributes
        self.grouping_inputs = [number for number, carried in enumerate(config.carried) if carried.group_keys]
        self.spanning_codes = [ValueCodes.for_type(kind) for kind in config.spanning_types]
        self.spanning_values = ValueColumns(tuple(each.type for each in self.spanning_codes))
        self.group_numbering = Interner(len(self.grouping_inputs) + 2 * len(self.spanning_codes))
        self.order_codes = [OrderCodes.for_type(extreme.type) for extreme in config.extremes]
        self.extreme_of_aggregate = {each.number: each.argument for each in config.extreme_aggregates}
        self.extremes = {
            each.number: Extremes(self.order_codes[each.argument], each.largest, config.never_subtracts)
            for each in config.extreme_aggregates
        }
        #: MIN and MAX of which the groups hold the extremes of early entries, and not those of rows.
        self.early_extremes = config.early_extremes
        self.columns = _empty_columns(layout, 16)
        self.snapshots = SnapshotBuilder(config.result) if config.emits_whole_results else None
        self._output_buffer: EmittedGroups | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the groups, and of their values for MIN and MAX."""
        groups = self.group_numbering.used * compute_state_sizes(self.config, self.layout).group_bytes
        return groups + sum(extremes.nodes.used for extremes in self.extremes.values()) * VALUE_BYTES

    def number_groups(self, groups: list[Int64s], spanning: list[pa.Array[Any]], rows: int) -> Int64s:
        """Return the group number of each result.

        A group is identified by the numbers of its inputs' group keys and the values of keys that read several inputs.
        """
        words = np.zeros((rows, len(groups) + 2 * len(spanning)), np.int64)
        for place, each in enumerate(groups):
            words[:, place] = each
        for place, (coder, values) in enumerate(zip(self.spanning_codes, spanning, strict=True)):
            words[:, len(groups) + 2 * place] = coder.encode(values)
            words[:, len(groups) + 2 * place + 1] = values.is_null().to_numpy(zero_copy_only=False)
        before = self.group_numbering.used
        found = self.group_numbering.intern(words)
        if spanning and self.group_numbering.used > before:
            _, first = np.unique(found, return_index=True)
            fresh = first[found[first] >= before]
            self.spanning_values.append([values.take(fresh) for values in spanning])
        self._reserve(self.group_numbering.used)
        return found

    def add_results(self, results: Contributions, instants_us: Int64s, closing: int) -> list[pa.RecordBatch]:
        """Add results; every finished instant emits the groups whose rows changed.

        `closing` is the number of the instant that ends; −1 leaves the last instant open.
        """
        at, groups, now_ints, now_approx, now_pairs, then_ints, then_approx, then_pairs = self._update_sums(
            results, closing
        )
        now_nodes, then_nodes = [], []
        for extremes, each in zip(self.extremes.values(), results.values, strict=True):
            now, then = extremes.add_values(
                each.groups, each.instants, each.codes, each.weights, at, groups, self.columns.ints.shape[0]
            )
            now_nodes.append(now)
            then_nodes.append(then)
        if not groups.size:
            return []
        now_sums = GroupSums(now_ints, now_approx, now_pairs, now_nodes)
        then_sums = GroupSums(then_ints, then_approx, then_pairs, then_nodes)
        if self.config.partial:
            return self._emit_partials(instants_us[at], groups, now_sums, then_sums)
        if self.snapshots is not None:
            self._record_changes(self.snapshots, instants_us[at], groups, now_sums)
            return []
        return self._emit_changes(instants_us[at], groups, now_sums, then_sums)

    def empty_groups(self, instants_us: Int64s, at: int) -> list[pa.RecordBatch]:
        """Remove all results from all groups at an instant. Earlier instants have ended."""
        used, nothing = self.group_numbering.used, np.empty(0, np.int64)
        groups = np.flatnonzero(self.columns.ints[:used, 0] != 0)
        ints = np.zeros((groups.size, self.columns.ints.shape[1]), np.int64)
        ints[:, 0] = -self.columns.ints[groups, 0]
        for number, extremes in self.extremes.items():
            self.extremes[number] = extremes.with_values(nothing, nothing, nothing)
        results = Contributions(
            groups,
            np.full(groups.size, at, np.int64),
            ints,
            np.zeros((groups.size, self.columns.approx.shape[1])),
            np.zeros((groups.size, self.columns.pairs.shape[1])),
            [ExtremeValues(nothing, nothing, nothing, nothing) for _ in self.extremes],
        )
        return self.add_results(results, instants_us, -1)

    def _update_sums(self, results: Contributions, closing: int) -> EmittedGroups:
        """Add results to the sums; return the groups that changed at finished instants."""
        room = self._reserve_output(max(4096, self.columns.ints.shape[0]))
        parts: list[EmittedGroups] = []
        start = 0
        while start <= results.groups.size:
            start, shown = as_update(
                results.groups,
                results.instants,
                results.ints,
                results.approx,
                results.pairs,
                self.columns,
                room,
                start,
                closing,
            )
            parts.append(EmittedGroups._make(column[:shown].copy() for column in room))
        return (
            parts[0]
            if len(parts) == 1
            else EmittedGroups._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
        )

    def _reserve_output(self, size: int) -> EmittedGroups:
        if self._output_buffer is None or self._output_buffer.group.size < size:
            like = (self.columns.dirty, self.columns.dirty, *self.columns[:6])
            self._output_buffer = EmittedGroups._make(np.empty((size, *each.shape[1:]), each.dtype) for each in like)
        return self._output_buffer

    def restore(
        self, words: Int64s, dirty: Bools, sums: dict[str, NDArray[Any]], spanning: list[pa.Array[Any]]
    ) -> None:
        """Restore groups, sums and the groups that changed since the last evaluation."""
        self.group_numbering.intern(words)
        if spanning:
            self.spanning_values.append(spanning)
        self._reserve(words.shape[0])
        for name, values in sums.items():
            getattr(self.columns, name)[: words.shape[0]] = values
        changed = np.flatnonzero(dirty)
        self.columns.is_dirty[changed] = True
        self.columns.dirty[: changed.size] = changed
        self.columns.progress[DIRTY] = changed.size

    def _emit_partials(self, as_of_us: Int64s, groups: Int64s, now: GroupSums, then: GroupSums) -> list[pa.RecordBatch]:
        """Return signed parts: for each group that differs, the previous part leaves and the current part enters."""
        differs = _find_differing_groups(now, then) | np.any(now.approx != then.approx, axis=1)
        batches = []
        for sign, sums in ((-1, then), (1, now)):
            chosen = differs & (sums.ints[:, 0] != 0)
            signed, numbers = sums.take(chosen), groups[chosen]
            keys = [self._key_values(number, numbers) for number in range(len(self.config.group_outputs.keys))]
            firsts = [
                each.decode_values(nodes) for each, nodes in zip(self.extremes.values(), signed.nodes, strict=True)
            ]
            batches.append(
                build_partial_batch(as_of_us[chosen], sign, keys, (signed.ints, signed.approx, signed.pairs), firsts)
            )
        return [batch for batch in batches if batch.num_rows]

    def _emit_changes(self, as_of_us: Int64s, groups: Int64s, now: GroupSums, then: GroupSums) -> list[pa.RecordBatch]:
        """Return the shown groups that changed or are new, and once more those that were shown and are now empty.

        `then` holds the sums at the previous evaluation. So it also determines which groups were shown then, and
        nothing else must be stored.

        """
        differs = _find_differing_groups(now, then)
        as_of_us, groups, now, then = as_of_us[differs], groups[differs], now.take(differs), then.take(differs)
        shown, was_shown = self._find_shown(groups, now), self._find_shown(groups, then)
        due = shown | was_shown if self.config.operations else shown | (was_shown & now.is_empty)
        if not due.any():
            return []
        if not due.all():
            as_of_us, groups, now, then = as_of_us[due], groups[due], now.take(due), then.take(due)
        row = self._group_columns(groups, now)
        outputs = [evaluate(output.expr, row, groups.size) for output in self.config.group_outputs.outputs]
        emitted = ~(shown & was_shown)[due]
        emitted[~emitted] = self._find_changed(outputs, ~emitted, groups, then)
        if not emitted.any():
            return []
        arrays: list[pa.Array[Any]] = [*outputs, pa.array(as_of_us).cast(AS_OF_TYPE)]
        if self.config.operations:
            arrays.append(pa.array(np.where(shown[due], UPSERT, DELETE), pa.string()))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.config.result)
        return [batch if emitted.all() else batch.filter(pa.array(emitted))]

    def start_snapshots(self) -> None:
        """Build the rows that the previous evaluation showed, if later evaluations emit whole results.

        They follow from the sums of that evaluation, so the state does not store them.
        """
        if self.snapshots is None or self.snapshots.is_started:
            return
        groups = np.arange(self.group_numbering.used, dtype=np.int64)
        size = groups.size
        sums = GroupSums(
            self.columns.emitted_ints[:size],
            self.columns.emitted_approx[:size],
            self.columns.emitted_pairs[:size],
            [_pad_nodes(extremes.shown, size) for extremes in self.extremes.values()],
        )
        self.snapshots.start()
        self._record_changes(self.snapshots, np.full(size, -FOREVER_US, np.int64), groups, sums)

    def _record_changes(self, snapshots: SnapshotBuilder, as_of_us: Int64s, groups: Int64s, now: GroupSums) -> None:
        shown = self._find_shown(groups, now)
        held, sums = groups[shown], now.take(shown)
        row = self._group_columns(held, sums)
        outputs = [evaluate(output.expr, row, held.size) for output in self.config.group_outputs.outputs]
        snapshots.record(as_of_us, groups, shown, outputs)

    def _find_shown(self, groups: Int64s, sums: GroupSums) -> Bools:
        """Return a mask of the groups that are shown: those that are not empty and for which HAVING is true.

        HAVING never sees an empty group.
        """
        shown = ~sums.is_empty
        if self.config.group_outputs.having is None or not shown.any():
            return shown
        held = groups[shown]
        shown[shown] = is_true(self.config.group_outputs.having, self._group_columns(held, sums.take(shown)), held.size)
        return shown

    def _find_changed(self, outputs: list[pa.Array[Any]], again: Bools, groups: Int64s, then: GroupSums) -> Bools:
        """Return, for the groups that are shown again, a mask of those whose row differs from before."""
        size = int(np.count_nonzero(again))
        changed = np.zeros(size, np.bool_)
        if not size:
            return changed
        before = self._group_columns(groups[again], then.take(again))
        for output, values in zip(self.config.group_outputs.outputs, outputs, strict=True):
            here = values if size == again.size else values.filter(pa.array(again))
            changed |= _find_unequal_values(here, evaluate(output.expr, before, size))
        return changed

    def _group_columns(self, groups: Int64s, sums: GroupSums) -> Any:
        """Return the columns of the groups' rows: keys and aggregates, each computed once."""
        computed: dict[str, pa.Array[Any]] = {}
        keys = {key_name(number): number for number in range(len(self.config.group_outputs.keys))}

        def column(reference: Column) -> pa.Array[Any]:
            if reference.name not in computed:
                computed[reference.name] = (
                    self._key_values(keys[reference.name], groups)
                    if reference.name in keys
                    else self._aggregate_values(reference.name, sums)
                )
            return computed[reference.name]

        # Compute every aggregate: an overflow is an error, even if no output reads the sum.
        for number in range(len(self.config.group_outputs.aggregates)):
            column(Column(aggregate_name(number)))
        return column

    def _key_values(self, number: int, groups: Int64s) -> pa.Array[Any]:
        key = self.config.group_outputs.keys[number]
        if key in self.config.spanning_keys:
            return self.spanning_values.take(self.config.spanning_keys.index(key), groups)
        owner = self.config.key_owner(key)
        place = self.config.carried[owner].attributes.index(key)
        return self.attributes[owner].group_values(
            place, self.group_numbering.words[groups, self.grouping_inputs.index(owner)]
        )

    def _aggregate_values(self, name: str, sums: GroupSums) -> pa.Array[Any]:
        number = next(n for n in range(len(self.config.group_outputs.aggregates)) if aggregate_name(n) == name)
        aggregate = self.config.group_outputs.aggregates[number]
        if aggregate.arg is None:
            return pa.array(sums.ints[:, 0])
        if number in self.extremes:
            return self.extremes[number].decode_values(sums.nodes[list(self.extremes).index(number)])
        place, measure = next((p, m) for p, m in enumerate(self.config.measures) if m.arg == aggregate.arg)
        at, kind = self.layout.in_result[place], measure.kind
        ints = sums.ints[:, 1 + at.ints : 1 + at.ints + kind.ints]
        function = find_function(aggregate)
        if function.keeps is GroupState.COUNT:
            return pa.array(np.ascontiguousarray(ints[:, 0]))
        approx, pairs = (
            sums.approx[:, at.approx : at.approx + kind.approx],
            sums.pairs[:, 2 * at.pairs : 2 * (at.pairs + kind.pairs)],
        )
        return function.finish(decode_totals(measure, ints, approx, pairs), ints[:, 0])

    def _reserve(self, groups: int) -> None:
        size = self.columns.ints.shape[0]
        if groups > size:
            larger = _empty_columns(self.layout, max(groups, 2 * size))
            for old, new in zip(self.columns, larger, strict=True):
                new[: old.shape[0]] = old
            self.columns = larger


def _pad_nodes(nodes: Int64s, size: int) -> Int64s:
    """Return the nodes of the first groups; groups without values have none."""
    padded = np.full(size, NONE, np.int64)
    padded[: min(size, nodes.size)] = nodes[:size]
    return padded


def build_partial_batch(
    as_of_us: Int64s,
    sign: int,
    keys: Sequence[pa.Array[Any]],
    sums: tuple[Int64s, Float64s, Float64s],
    firsts: Sequence[pa.Array[Any]],
) -> pa.RecordBatch:
    """Return one signed row per group and instant: its keys, its sums, and the value of each MIN or MAX."""
    columns: dict[str, Any] = {AS_OF_US: pa.array(as_of_us), SIGN: pa.array(np.full(as_of_us.size, sign, np.int8))}
    columns |= {key_name(number): values for number, values in enumerate(keys)}
    columns |= {
        f"{name} {place}": pa.array(np.ascontiguousarray(matrix[:, place]))
        for name, matrix in zip(SUM_MATRICES, sums, strict=True)
        for place in range(matrix.shape[1])
    }
    columns |= {aggregate_name(number): values for number, values in enumerate(firsts)}
    return pa.RecordBatch.from_pydict(columns)


def _empty_columns(layout: MeasureLayout, size: int) -> AggregationSet:
    ints = np.zeros((size, 1 + layout.result_widths.ints), np.int64)
    approx = np.zeros((size, layout.result_widths.approx), np.float64)
    pairs = np.zeros((size, 2 * layout.result_widths.pairs), np.float64)
    progress = np.zeros(2, np.int64)
    progress[DIRTY], progress[OPEN] = 0, NONE
    emitted = ints.copy(), approx.copy(), pairs.copy()
    return AggregationSet(ints, approx, pairs, *emitted, np.zeros(size, np.int64), np.zeros(size, np.bool_), progress)


def _find_differing_groups(now: GroupSums, then: GroupSums) -> Bools:
    """Return the groups with any different number. Rows of the others cannot differ.

    NaN never occurs in these columns.
    """
    differs = np.any(now.ints != then.ints, axis=1) | np.any(now.pairs != then.pairs, axis=1)
    for here, there in zip(now.nodes, then.nodes, strict=True):
        differs |= here != there
    return np.asarray(differs)


def _find_unequal_values(left: pa.Array[Any], right: pa.Array[Any]) -> Bools:
    """Return a mask of the rows in which two columns differ. NaN equals NaN, and NULL equals NULL."""
    if pa.types.is_null(left.type):
        return np.zeros(len(left), np.bool_)
    codes = ValueCodes.for_type(left.type)
    missing = [np.asarray(side.is_null().to_numpy(zero_copy_only=False), np.bool_) for side in (left, right)]
    return np.asarray((codes.encode(left) != codes.encode(right)) | (missing[0] != missing[1]))
