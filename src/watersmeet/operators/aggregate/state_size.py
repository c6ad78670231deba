"""Bytes of the parts of an aggregation's state, for its metrics and for predictions: rows, entries, keys and groups."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.operators.aggregate.config import AggregateConfig, MeasureLayout

_NUMBER_BYTES = 8
#: Slots of a hash table per number that it holds, on average.
_SLOTS = 3
#: Bytes of a value in a heap of MIN or MAX: its words, its slots and the numbers of its node.
VALUE_BYTES = (2 + _SLOTS + 5) * _NUMBER_BYTES


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Bytes of a row of a window, of an entry of the AS join, of a combination of keys, and of a group."""

    row_bytes: int
    entry_bytes: int
    node_bytes: int
    identity_bytes: int
    group_bytes: int


def compute_state_sizes(config: AggregateConfig, layout: MeasureLayout) -> StateSizes:
    """Compute the bytes of each part of the state from the columns that a query needs."""
    row, result = layout.row_widths, layout.result_widths
    keys, ranges = len(config.join.classes.keys), sum(len(each.ranges) for each in config.join.inputs)
    paths = {(step.target, step.key_classes) for order in config.join.orders for step in order}
    spaces = {classes for _, classes in paths}
    places = max(map(len, spaces), default=0)
    arguments, extremes = len(config.extremes), len(config.extreme_aggregates)
    sums, totals = row.ints + row.approx + row.pairs, 1 + result.ints + result.approx + 2 * result.pairs
    return StateSizes(
        row_bytes=_NUMBER_BYTES * (5 + keys + ranges + arguments + sums) + arguments,
        entry_bytes=_NUMBER_BYTES
        * (4 + keys + ranges + sums + row.pairs + 2 * extremes + 2 * len(paths) + len(spaces)),
        node_bytes=_NUMBER_BYTES * (places + len(paths) + _SLOTS),
        identity_bytes=_NUMBER_BYTES * (keys + ranges + 2 + _SLOTS),
        group_bytes=_NUMBER_BYTES * (2 * totals + 2 + len(config.carried) + _SLOTS + 2 * extremes),
    )
