"""The second step of an aggregation that is spread: parts of groups from several places become groups, and evaluations
show those.

It is the AS update alone. Signed rows of parts (`aggregate.partials`) are added to groups as signed results of a join
are; HAVING, expressions over aggregates, overflow and what counts as a change are decided on whole groups, here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Aggregate, Column
from watersmeet.algebra.query import BoundQuery
from watersmeet.operators.aggregate.compaction import compacted, is_wasteful
from watersmeet.operators.aggregate.config import AggregateConfig, Carried, Extreme
from watersmeet.operators.aggregate.outputs import GROUP, aggregate_name
from watersmeet.operators.aggregate.partials import AS_OF_US, SIGN, partial_firsts, partial_keys, partial_matrix
from watersmeet.operators.aggregate.result_set import Contributions
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.sql.typing import type_of

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class _Parts(Contributions):
    """Contributions whose values count by their sign: a part shows one MIN, however many rows it has."""

    signs: Int64s

    @property
    def weights(self) -> Int64s:
        return self.signs


def merging_config(bound: BoundQuery, config: AggregateConfig) -> AggregateConfig:
    """The same aggregation with no input: group keys come as values, and each MIN or MAX has values of its own."""
    aggregates = tuple(_of_its_own(number, each) for number, each in enumerate(config.shown.aggregates))
    types = {
        each.arg: type_of(before, bound.sources)
        for each, before in zip(aggregates, config.shown.aggregates, strict=True)
    }
    return replace(
        config,
        carried=tuple(Carried((), (), 0) for _ in config.carried),
        spanning_keys=config.shown.keys,
        spanning_types=tuple(type_of(key, bound.sources) for key in config.shown.keys),
        extremes=tuple(
            Extreme(each.arg, None, types[each.arg])
            for each in aggregates
            if _is_extreme(each) and each.arg is not None
        ),
        shown=replace(config.shown, aggregates=aggregates),
        early=frozenset(),
        partial=False,
    )


def merge(
    config: AggregateConfig, state: AggregateState, rows: pa.Table
) -> tuple[list[pa.RecordBatch], AggregateState]:
    """Adds all places' parts of one batch of evaluations; returns what they show of whole groups."""
    instants_us, instants = np.unique(rows.column(AS_OF_US).to_numpy(), return_inverse=True)
    order = np.argsort(
        2 * instants + (rows.column(SIGN).to_numpy() > 0), kind="stable"
    )  # in an instant, parts leave first
    results = _contributions(config, state, rows.take(pa.array(order)), instants[order].astype(np.int64))
    shown = state.result.add(results, instants_us, instants_us.size - 1)
    return shown, compacted(config, state) if is_wasteful(state) else state


def _contributions(config: AggregateConfig, state: AggregateState, rows: pa.Table, instants: Int64s) -> Contributions:
    widths = state.layout.result_widths
    groups = state.result.group_numbers([], partial_keys(rows, len(config.shown.keys)), rows.num_rows)
    firsts = partial_firsts(rows, len(config.extremes))
    return _Parts(
        groups,
        instants,
        ints=partial_matrix(rows, "ints", 1 + widths.ints),
        approx=partial_matrix(rows, "approx", widths.approx),
        pairs=partial_matrix(rows, "pairs", 2 * widths.pairs),
        codes=[coder.codes(values) for coder, values in zip(state.result.order_codes, firsts, strict=True)],
        present=[np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_) for values in firsts],
        signs=rows.column(SIGN).to_numpy().astype(np.int64),
    )


def _is_extreme(aggregate: Aggregate) -> bool:
    return aggregate.function in ("MIN", "MAX")


def _of_its_own(number: int, aggregate: Aggregate) -> Aggregate:
    return replace(aggregate, arg=Column(aggregate_name(number), GROUP)) if _is_extreme(aggregate) else aggregate
