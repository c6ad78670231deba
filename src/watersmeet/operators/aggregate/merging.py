"""Merging of partial groups: the second step of an aggregation that runs in several buckets.

Each bucket sends signed rows (`result_set.build_partial_batch`). For a group that changed, the previous part leaves and
the current part enters. A part carries its sums unconverted, because a part may overflow where the whole group does
not, and its own MIN and MAX. Sums add up. The first of all buckets' MINs is the MIN, so the merger keeps them as it
would keep values of rows.

Merging is the AS update alone: signed partial rows are added to groups like signed results of a join. HAVING,
expressions over aggregates, overflow and the detection of changes apply to whole groups, here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Aggregate, Column
from watersmeet.algebra.query import BoundQuery
from watersmeet.operators.aggregate.config import (
    GROUP,
    AggregateConfig,
    CarriedAttributes,
    ExtremeArgument,
    aggregate_name,
    key_name,
)
from watersmeet.operators.aggregate.functions import is_extreme
from watersmeet.operators.aggregate.result_set import AS_OF_US, SIGN, Contributions, select_values
from watersmeet.operators.aggregate.state import AggregateState, compact_state, needs_compaction
from watersmeet.sql.type_inference import type_of

Int64s = NDArray[np.int64]


def build_merge_config(bound: BoundQuery, config: AggregateConfig) -> AggregateConfig:
    """Return the same aggregation without inputs.

    Group keys arrive as values, and each MIN or MAX has its own column.
    """
    aggregates = tuple(_with_own_column(number, each) for number, each in enumerate(config.group_outputs.aggregates))
    types = {
        each.arg: type_of(before, bound.sources)
        for each, before in zip(aggregates, config.group_outputs.aggregates, strict=True)
    }
    return replace(
        config,
        carried=tuple(CarriedAttributes((), (), 0) for _ in config.carried),
        spanning_keys=config.group_outputs.keys,
        spanning_types=tuple(type_of(key, bound.sources) for key in config.group_outputs.keys),
        extremes=tuple(
            ExtremeArgument(each.arg, None, types[each.arg])
            for each in aggregates
            if is_extreme(each) and each.arg is not None
        ),
        group_outputs=replace(config.group_outputs, aggregates=aggregates),
        early=frozenset(),
        partial=False,
    )


def merge_partials(
    config: AggregateConfig, state: AggregateState, rows: pa.Table
) -> tuple[list[pa.RecordBatch], AggregateState]:
    """Add the partial rows of one batch of evaluations from all buckets; return the rows of whole groups they emit."""
    instants_us, instants = np.unique(rows.column(AS_OF_US).to_numpy(), return_inverse=True)
    # Within an instant, parts leave first.
    order = np.argsort(2 * instants + (rows.column(SIGN).to_numpy() > 0), kind="stable")
    results = _decode_contributions(config, state, rows.take(order), instants[order].astype(np.int64))
    shown = state.result.add_results(results, instants_us, instants_us.size - 1)
    return shown, compact_state(config, state) if needs_compaction(state) else state


def read_partial_keys(rows: pa.Table, count: int) -> list[pa.Array[Any]]:
    """Return the values of the group keys in partial rows."""
    return [rows.column(key_name(number)).combine_chunks() for number in range(count)]


def read_partial_extremes(rows: pa.Table, count: int) -> list[pa.Array[Any]]:
    """Return the MIN and MAX values in partial rows."""
    return [rows.column(aggregate_name(number)).combine_chunks() for number in range(count)]


def read_partial_sums(rows: pa.Table, name: str, width: int) -> NDArray[Any]:
    """Return one of the matrices of sums, multiplied by the signs."""
    signs = rows.column(SIGN).to_numpy()
    matrix = np.zeros((rows.num_rows, width), np.int64 if name == "ints" else np.float64)
    for place in range(width):
        matrix[:, place] = rows.column(f"{name} {place}").to_numpy() * signs
    return matrix


def _decode_contributions(
    config: AggregateConfig, state: AggregateState, rows: pa.Table, instants: Int64s
) -> Contributions:
    widths = state.layout.result_widths
    groups = state.result.number_groups([], read_partial_keys(rows, len(config.group_outputs.keys)), rows.num_rows)
    firsts = read_partial_extremes(rows, len(config.extremes))
    signs = rows.column(SIGN).to_numpy().astype(np.int64)
    return Contributions(
        groups,
        instants,
        ints=read_partial_sums(rows, "ints", 1 + widths.ints),
        approx=read_partial_sums(rows, "approx", widths.approx),
        pairs=read_partial_sums(rows, "pairs", 2 * widths.pairs),
        # A part shows one MIN, however many rows it has.
        values=[
            select_values(groups, instants, coder.encode(values), values, signs)
            for coder, values in zip(state.result.order_codes, firsts, strict=True)
        ],
    )


def _with_own_column(number: int, aggregate: Aggregate) -> Aggregate:
    return replace(aggregate, arg=Column(aggregate_name(number), GROUP)) if is_extreme(aggregate) else aggregate
