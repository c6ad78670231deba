"""Where each measure's numbers stand: among the columns of its owner's rows, and among the columns of the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.kernels.aggregation.arguments import NONE, Columns
from watersmeet.operators.aggregate.config import AggregateConfig


@dataclass(frozen=True, slots=True)
class ColumnOffsets:
    """First column of each sort."""

    ints: int
    approx: int
    pairs: int


@dataclass(frozen=True, slots=True)
class MeasureLayout:
    """`in_row[m]` is where measure m stands among its owner's columns, `in_result[m]` where among all; widths cover the
    widest input.
    """

    in_row: tuple[ColumnOffsets, ...]
    in_result: tuple[ColumnOffsets, ...]
    row_widths: ColumnOffsets
    result_widths: ColumnOffsets
    columns: Columns


def build_layout(config: AggregateConfig) -> MeasureLayout:
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


def _advance_offsets(place: ColumnOffsets, ints: int, approx: int, pairs: int) -> ColumnOffsets:
    return ColumnOffsets(place.ints + ints, place.approx + approx, place.pairs + pairs)


def _build_kernel_columns(config: AggregateConfig, in_row: list[ColumnOffsets]) -> Columns:
    found: dict[str, list[int]] = {name: [] for name in Columns._fields}
    for measure, place in zip(config.measures, in_row, strict=True):
        owner = NONE if measure.owner is None else measure.owner
        for sort, first, count in (
            ("int", place.ints, measure.kind.ints),
            ("approx", place.approx, measure.kind.approx),
            ("pair", place.pairs, measure.kind.pairs),
        ):
            found[f"{sort}_owner"] += [owner] * count
            found[f"{sort}_place"] += list(range(first, first + count))
    return Columns(**{name: np.array(values, np.int64) for name, values in found.items()})
