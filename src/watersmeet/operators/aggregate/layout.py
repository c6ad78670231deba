"""Where each measure's numbers stand: among the columns of its owner's rows, and among the columns of the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.kernels.aggregation.arguments import NONE, Columns
from watersmeet.operators.aggregate.config import AggregateConfig


@dataclass(frozen=True, slots=True)
class Place:
    """First column of each sort."""

    ints: int
    approx: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Layout:
    """`in_row[m]` is where measure m stands among its owner's columns, `in_result[m]` where among all; widths cover the
    widest input.
    """

    in_row: tuple[Place, ...]
    in_result: tuple[Place, ...]
    row_widths: Place
    result_widths: Place
    columns: Columns


def layout_of(config: AggregateConfig) -> Layout:
    taken = {number: Place(0, 0, 0) for number in [None, *range(len(config.join.inputs))]}
    total = Place(0, 0, 0)
    in_row, in_result = [], []
    for measure in config.measures:
        in_row.append(taken[measure.owner])
        in_result.append(total)
        taken[measure.owner] = _after(taken[measure.owner], measure.kind.ints, measure.kind.approx, measure.kind.pairs)
        total = _after(total, measure.kind.ints, measure.kind.approx, measure.kind.pairs)
    owned = [place for owner, place in taken.items() if owner is not None]
    widths = Place(
        max(each.ints for each in owned), max(each.approx for each in owned), max(each.pairs for each in owned)
    )
    return Layout(tuple(in_row), tuple(in_result), widths, total, _columns(config, in_row))


def _after(place: Place, ints: int, approx: int, pairs: int) -> Place:
    return Place(place.ints + ints, place.approx + approx, place.pairs + pairs)


def _columns(config: AggregateConfig, in_row: list[Place]) -> Columns:
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
