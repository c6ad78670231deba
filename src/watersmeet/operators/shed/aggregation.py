"""Aggregation over a join whose rows were shed: estimates with error bars instead of values.

The join runs over the kept rows. A combination counts from the time of its latest row on, as long as all its rows are
in their windows: an interval of time. Each evaluation groups the combinations whose interval contains the instant. It
estimates each COUNT, SUM and AVG with its standard error (`shed.estimates`). MIN and MAX are bounds. Next to a bare
COUNT, SUM or AVG called `x` the result has `x_stderr`. Next to a bare MIN or MAX it has `x_bound`: "at most" or "at
least". Groups without any kept combination do not appear.

A ROWS window always holds its last rows, however many are shed. So its content is not a sample of the unshed window,
there is nothing to scale up, and such queries are refused.

`AllocatedAggregation` aggregates the pairs that an allocation keeps: both directions together, each pair weighted by
its own probability. A pair is found by its later row, which probes the other stream's window. So the pair is kept with
the probe share of the later row's stream times the window share of the earlier row's stream. A row draws independently
for its two roles. So two pairs depend on each other only if they share a row in the same role, hence in the same
direction. Pairs of different directions are independent. With one sampled input per role, whose shares differ by
direction, the estimates and variances of `shed.estimates` apply unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column
from watersmeet.algebra.query import BoundQuery, BoundSource, Output
from watersmeet.algebra.schema import StreamSchema
from watersmeet.algebra.windows import FOREVER_US, Window
from watersmeet.errors import PlanError
from watersmeet.operators.aggregate.config import (
    AS_OF,
    AS_OF_TYPE,
    GroupOutputs,
    aggregate_name,
    build_group_outputs,
    key_name,
)
from watersmeet.operators.aggregate.window_rows import (
    AggregatePane,
    evict_from_panes,
    last_instant_us,
    merge_small_panes,
    row_ends_us,
    row_starts_us,
)
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.row_identity import hash_rows
from watersmeet.operators.shed.estimates import SampledInput, SampledJoin
from watersmeet.operators.shed.groups import (
    EstimatedGroups,
    Key,
    Row,
    build_empty_groups,
    build_result_fields,
    estimate_groups,
)
from watersmeet.operators.shed.sampling import PROBE, WINDOW, RoleShares
from watersmeet.sql.type_inference import type_of

Int64s = NDArray[np.int64]
#: Columns appended to rows: identity, and time in microseconds. No user column has such a name.
ROW, TIME = "\0row", "\0time"
#: Column of a combination: number of the probing input. No user column has such a name.
DIRECTION = "\0direction"
#: XORed with the identities of the second stream, so that equal rows of the two streams have different identities.
_SECOND_STREAM = 0x5BD1E9955BD1E995


@dataclass(frozen=True)
class ShedConfig:
    """The join (`bound`), the windows of the groups, the outputs of a group, and the kept share per input.

    Windows and shares are by alias.
    """

    bound: BoundQuery
    windows: Mapping[str, Window | None]
    group_outputs: GroupOutputs
    types: dict[str, pa.DataType]  # of keys and aggregates, by their column in a group's row
    keep: Mapping[str, float]
    result: pa.Schema


def build_shed_config(bound: BoundQuery, keep: Mapping[str, float]) -> ShedConfig:
    """Build the join below an aggregation whose rows are shed; refuse windows that shedding does not shrink."""
    for source in bound.sources:
        if source.window is not None and source.window.row_limit is not None:
            raise PlanError(
                f'an aggregation over "{source.alias} [{source.window}]" cannot shed rows: '
                "the window would hold as many rows as before",
                hint="use a RANGE window, or drop nothing",
            )
    shown = build_group_outputs(bound)
    types = {key_name(number): type_of(key, bound.sources) for number, key in enumerate(shown.keys)}
    types |= {aggregate_name(number): type_of(each, bound.sources) for number, each in enumerate(shown.aggregates)}
    fields = [*build_result_fields(shown, types), (AS_OF, AS_OF_TYPE)]
    if len({name for name, _ in fields}) < len(fields):
        raise PlanError("an output has the same name as a standard error or a bound", hint="give it another alias")
    windows = {source.alias: source.window for source in bound.sources if source.is_stream}
    return ShedConfig(_build_join(bound, shown), windows, shown, types, keep, pa.schema(fields))


def add_hidden_columns(input_batch: InputBatch, identity: Sequence[str] | None = None) -> InputBatch:
    """Append identity and time to rows. The identity covers all columns, or the named ones."""
    identified = input_batch.table if identity is None else input_batch.table.select(list(identity))
    table = input_batch.table.append_column(ROW, pa.array(hash_rows(identified), pa.int64()))
    return InputBatch(table.append_column(TIME, pa.array(input_batch.times, pa.int64())), input_batch.times)


def mark_direction(batch: pa.RecordBatch, prober: int) -> pa.RecordBatch:
    """Append the number of the probing input to combinations."""
    direction = pa.array(np.full(batch.num_rows, prober, np.int8))
    return pa.RecordBatch.from_arrays(
        [*batch.columns, direction], schema=batch.schema.append(pa.field(DIRECTION, pa.int8()))
    )


@dataclass
class ShedAggregation:
    """State: combinations that are, or will be, inside their windows, and rows and keys of the groups shown last.

    `panes` cover the combinations in their order. Each pane is saved as one part.
    """

    config: ShedConfig
    combinations: pa.Table | None = None
    begins_us: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    ends_us: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    panes: list[AggregatePane] = field(default_factory=list)
    shown: dict[Key, tuple[Row, Key]] = field(default_factory=dict)
    evaluated_us: int = -FOREVER_US
    shown_at_us: int = -FOREVER_US

    @property
    def rows(self) -> int:
        """Number of combinations held."""
        return self.begins_us.size

    @property
    def nbytes(self) -> int:
        """Bytes of the combinations held."""
        columns = 0 if self.combinations is None else self.combinations.nbytes
        return int(columns + self.begins_us.nbytes + self.ends_us.nbytes)

    def step(self, found: list[pa.RecordBatch], largest_us: int, future_us: int) -> list[pa.RecordBatch]:
        """Add new combinations and emit the due evaluations.

        `largest_us` is the largest time so far. `future_us` has the same meaning as for a window join.
        """
        self._add_combinations(found)
        rows = [row for at_us in self._due_instants_us(largest_us, future_us) for row in self._emit_at(at_us)]
        if not rows:
            return []
        columns = [list(values) for values in zip(*rows, strict=True)]
        arrays = [pa.array(values, each.type) for values, each in zip(columns[:-1], self.config.result, strict=False)]
        arrays.append(pa.array(columns[-1], pa.int64()).cast(AS_OF_TYPE))
        return [pa.RecordBatch.from_arrays(arrays, schema=self.config.result)]

    def _add_combinations(self, found: list[pa.RecordBatch]) -> None:
        if not found:
            return
        added = pa.Table.from_batches(found)
        times = [(window, added[f"{TIME} {alias}"].to_numpy()) for alias, window in self.config.windows.items()]
        every_us = self.config.bound.query.every_us
        begins_us = np.max([row_starts_us(window, each, every_us) for window, each in times], axis=0)
        ends_us = np.min([row_ends_us(window, each, every_us) for window, each in times], axis=0)
        valid = begins_us <= ends_us  # the join below may use a range in place of a tile
        if not valid.all():
            added, begins_us, ends_us = added.filter(pa.array(valid)), begins_us[valid], ends_us[valid]
        self.combinations = added if self.combinations is None else pa.concat_tables([self.combinations, added])
        self.begins_us, self.ends_us = (
            np.concatenate([self.begins_us, begins_us]),
            np.concatenate([self.ends_us, ends_us]),
        )
        self.panes = merge_small_panes([*self.panes, AggregatePane(begins_us.size)])

    def _due_instants_us(self, largest_us: int, future_us: int) -> Iterator[int]:
        """Yield the multiples of EVERY at which something changes.

        Without EVERY, yield the watermark, or the largest time when the input ends.
        """
        every_us = self.config.bound.query.every_us
        if every_us is None:
            now_us = largest_us if future_us == FOREVER_US else future_us
            yield from [now_us] if now_us > -FOREVER_US else []
            return
        limit_us = min(future_us - 1, last_instant_us(self.config.windows.values(), largest_us))
        changes = np.concatenate([self.begins_us, self.ends_us[self.ends_us < FOREVER_US] + 1])
        due = np.unique(-(-changes // every_us) * every_us)
        for at_us in due[(due > self.evaluated_us) & (due <= limit_us)].tolist():
            yield at_us
            self.evaluated_us = at_us

    def _emit_at(self, at_us: int) -> list[Row]:
        """Return the shown groups that changed or are new, and once more those that were shown and are now empty."""
        self._evict_combinations(at_us)
        before, rows = self.shown, self._group_rows(at_us)
        self._show(rows, at_us)
        changed = [
            row
            for identity, (row, _) in self.shown.items()
            if identity not in before or not _is_same_row(row, before[identity][0])
        ]
        held = {identity for identity, _, _ in rows}
        emptied = [key for identity, (_, key) in before.items() if identity not in held]
        emptied_rows = (
            [row for _, row, _ in build_empty_groups(self.config.group_outputs, self.config.types, emptied).rows()]
            if emptied
            else []
        )
        return [(*row, at_us) for row in [*changed, *emptied_rows]]

    def show_again(self, at_us: int) -> None:
        """Recompute the groups shown at an instant from the combinations."""
        self._show(self._group_rows(at_us), at_us)

    def _show(self, rows: list[tuple[Key, tuple[Row, Key], bool]], at_us: int) -> None:
        self.shown, self.shown_at_us = {identity: shown for identity, shown, holds in rows if holds}, at_us

    def _group_rows(self, at_us: int) -> list[tuple[Key, tuple[Row, Key], bool]]:
        """Return the groups at an instant: identity, row and key values, and whether HAVING is true."""
        now = self._estimate_groups_at(at_us)
        if now is None:
            return []
        rows = list(now.rows())
        keys = list(zip(*(key.to_pylist() for key in now.keys), strict=True)) if now.keys else [()] * len(rows)
        return [(identity, (row, key), holds) for (identity, row, holds), key in zip(rows, keys, strict=True)]

    def _evict_combinations(self, at_us: int) -> None:
        """Evict combinations with a row that has left its window: later evaluations never need them."""
        is_live = self.ends_us >= at_us
        if self.combinations is not None and not is_live.all():
            self.combinations = self.combinations.filter(pa.array(is_live))
            self.begins_us, self.ends_us = self.begins_us[is_live], self.ends_us[is_live]
            self.panes = evict_from_panes(self.panes, ~is_live)

    def _estimate_groups_at(self, at_us: int) -> EstimatedGroups | None:
        inside = np.flatnonzero(self.begins_us <= at_us)
        if self.combinations is None or not inside.size:
            return None
        table = self.combinations.take(inside)

        def sample_groups(group: Int64s, groups: int) -> SampledJoin:
            return SampledJoin(group, groups, tuple(self._sampled_inputs(table)))

        return estimate_groups(self.config.group_outputs, self.config.types, table, sample_groups)

    def _sampled_inputs(self, table: pa.Table) -> Iterator[SampledInput]:
        for source in self.config.bound.sources:
            keep = self.config.keep[source.alias]
            if source.is_stream and keep < 1:
                yield SampledInput(source.schema.name, keep, table[f"{ROW} {source.alias}"].to_numpy())


@dataclass
class AllocatedAggregation(ShedAggregation):
    """Shedding aggregation over two inputs whose shares depend on the direction."""

    shares: tuple[RoleShares, RoleShares] = (RoleShares(), RoleShares())

    def _sampled_inputs(self, table: pa.Table) -> Iterator[SampledInput]:
        first_probes = table[DIRECTION].to_numpy() == 0
        first, second = (table[f"{ROW} {source.alias}"].to_numpy() for source in self.config.bound.sources)
        second = second ^ _SECOND_STREAM
        a, b = self.shares
        yield _sample_role(PROBE, first_probes, (a.probe, first), (b.probe, second))
        yield _sample_role(WINDOW, first_probes, (b.window, second), (a.window, first))


def _build_join(bound: BoundQuery, shown: GroupOutputs) -> BoundQuery:
    """Build the join that yields every key and argument, and the identity and time of every row of a combination."""
    outputs = [Output(key_name(number), key) for number, key in enumerate(shown.keys)]
    outputs += [
        Output(aggregate_name(number), each.arg) for number, each in enumerate(shown.aggregates) if each.arg is not None
    ]
    streams = [source.alias for source in bound.sources if source.is_stream]
    outputs += [Output(f"{name} {alias}", Column(name, alias)) for alias in streams for name in (ROW, TIME)]
    sources = tuple(_declare_hidden_columns(source, bound.query.every_us) for source in bound.sources)
    return replace(bound, sources=sources, outputs=tuple(outputs), group_by=(), having=None)


def _declare_hidden_columns(source: BoundSource, every_us: int | None) -> BoundSource:
    """Add the hidden columns to a stream, and take the window that finds all combinations of the aggregation.

    Surplus combinations are dropped as soon as their interval is known.
    """
    if not isinstance(source.schema, StreamSchema):
        return source
    fields = source.schema.fields.append(pa.field(ROW, pa.int64())).append(pa.field(TIME, pa.int64()))
    window = None if source.window is None else source.window.covering_window(every_us)
    return replace(source, schema=replace(source.schema, fields=fields), window=window)


def _is_same_row(one: Row, other: Row) -> bool:
    """Return whether two rows show the same values. NaN equals NaN."""
    pairs = zip(one, other, strict=True)
    return all(left == right or (left != left and right != right) for left, right in pairs)  # noqa: PLR0124


def _sample_role(
    role: str,
    first_probes: NDArray[np.bool_],
    one: tuple[float, NDArray[np.int64]],
    other: tuple[float, NDArray[np.int64]],
) -> SampledInput:
    """Return the rows in a role, with their shares: `one` if the first input probes, else `other`."""
    return SampledInput(role, np.where(first_probes, one[0], other[0]), np.where(first_probes, one[1], other[1]))
