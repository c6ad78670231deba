"""How a query is spread over buckets: a grid whose axes are equality classes, group keys of one input, or the rows of
one input.

A row goes to every cell that agrees with what is known of it: on the axis of a class it has a key in, to the coordinate
of that key; on the axis of an input's own rows, to the coordinate of the row; along all other axes, to every
coordinate. The rows of a result agree on every class, so they meet in exactly one cell. One class that all inputs share
costs no copies; no class at all means that one input is split and the others are copied. Which shares the axes get is
decided by the number of rows that have to travel.

An aggregation's groups are whole in their cells when the group keys say where on every axis a result is: an axis along
a class that is grouped by, or along an input's own group keys. Otherwise a cell has parts of groups, which a second
step adds up.

References: Afrati, Ullman, "Optimizing joins in a map-reduce environment" (shares); Okcan, Riedewald, "Processing
theta-joins using MapReduce" (the grid of two inputs' rows).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr
from watersmeet.errors import InternalError
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.planner.cost_of_spark import Shuffle, ShuffledInput

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Axis:
    """`share` coordinates along an equality class (`key_class`), or along the rows of input `split`: along the values
    of `keys` in them.
    """

    share: int
    members: frozenset[int]
    key_class: int | None = None
    split: int | None = None
    keys: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        if self.share < 1 or (self.key_class is None) == (self.split is None):
            raise InternalError("an axis stands for one class or for one input, with at least one coordinate")

    def coordinates(self, codes: Int64s) -> Int64s:
        seed = np.full(codes.size, self.share, np.int64)
        return (combine_codes(codes, seed).view(np.uint64) % np.uint64(self.share)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Grouping:
    """What GROUP BY says of places: the classes whose key is grouped by, and the group keys that are an input's own."""

    classes: frozenset[int]
    keys: Mapping[int, tuple[Expr, ...]]

    def is_whole_in(self, layout: Layout) -> bool:
        """Whether all results of a group are in one cell."""
        return all(axis.key_class in self.classes if axis.split is None else bool(axis.keys) for axis in layout.axes)


@dataclass(frozen=True, slots=True)
class Layout:
    """The grid. Cells are numbered with the first axis varying slowest."""

    axes: tuple[Axis, ...] = ()

    @property
    def cells(self) -> int:
        return math.prod(axis.share for axis in self.axes)

    def strides(self) -> list[int]:
        return [math.prod(axis.share for axis in self.axes[at + 1 :]) for at in range(len(self.axes))]

    def copies(self, number: int) -> list[int]:
        """What to add to a row's first cell to reach all its cells: 0 alone when no axis copies the input."""
        offsets = [0]
        for axis, stride in zip(self.axes, self.strides(), strict=True):
            if number not in axis.members:
                offsets = [offset + stride * at for offset in offsets for at in range(axis.share)]
        return offsets

    def is_first_copy(self, number: int, cell: int) -> bool:
        """Whether rows of this input that are in the cell are counted there: every row is, in one of its cells."""
        return all(
            number in axis.members or cell // stride % axis.share == 0
            for axis, stride in zip(self.axes, self.strides(), strict=True)
        )


def grouping_of(config: AggregateConfig) -> Grouping:
    """Return which equality classes are grouped by, and which inputs have group keys of their own."""
    grouped = frozenset(
        number
        for number, keys in enumerate(config.join.classes.keys)
        if any(key in config.shown.keys for key in keys.values())
    )
    keys = {number: each.attributes[: each.group_keys] for number, each in enumerate(config.carried) if each.group_keys}
    return Grouping(grouped, keys)


def choose_layout(
    config: MeetConfig, buckets: int, rows_per_s: Sequence[float] | None = None, grouping: Grouping | None = None
) -> Layout:
    """Return the grid of `buckets` cells that shuffles the fewest rows; one cell where rows are counted over the whole
    stream.

    `rows_per_s` are the rates by input; equal ones are assumed where nothing is known. Adding up the parts of groups
    counts as if every row travelled once more.
    """
    if config.waits_for_watermark or buckets == 1:
        return Layout()
    rates = list(rows_per_s) if rows_per_s is not None else [1.0] * len(config.inputs)
    grids = _grids(buckets, axes_of(config, grouping))
    return min(grids, key=lambda grid: _travelling(config, grid, rates, grouping))


def _travelling(config: MeetConfig, grid: Layout, rates: list[float], grouping: Grouping | None) -> tuple[float, int]:
    """Rows that travel per second; between equals, the grid with fewer axes. Relations do not travel."""
    again = 0 if grouping is None or grouping.is_whole_in(grid) else 1
    return sum(rates[i] * (len(grid.copies(i)) + again) for i in config.streams), len(grid.axes)


def axes_of(config: MeetConfig, grouping: Grouping | None = None) -> list[Axis]:
    """Return every axis that a grid of the query can have, with one coordinate each."""
    group_keys = {} if grouping is None else grouping.keys
    axes = [Axis(1, frozenset(members), key_class=c) for c, members in enumerate(config.classes.keys)]
    axes += [Axis(1, frozenset({i}), split=i, keys=group_keys[i]) for i in config.streams if i in group_keys]
    return [*axes, *(Axis(1, frozenset({i}), split=i) for i in config.streams)]


def shuffle_of(
    config: MeetConfig, grid: Layout, rows: Sequence[float], *, is_total: bool, grouping: Grouping | None = None
) -> Shuffle:
    """Return what a grid shuffles when its inputs bring so many rows: in all, or per second."""
    inputs = tuple(ShuffledInput(config.inputs[i].alias, i, rows[i], len(grid.copies(i))) for i in config.streams)
    return Shuffle(
        inputs, grid.cells, is_total=is_total, merges_groups=grouping is not None and not grouping.is_whole_in(grid)
    )


def _grids(buckets: int, axes: list[Axis]) -> Iterator[Layout]:
    for shares in _factorisations(buckets, len(axes)):
        yield Layout(tuple(replace(axis, share=share) for share, axis in zip(shares, axes, strict=True) if share > 1))


def _factorisations(number: int, places: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as an ordered product of `places` factors.

    >>> sorted(_factorisations(4, 2))
    [(1, 4), (2, 2), (4, 1)]
    """
    if places == 1:
        yield (number,)
        return
    for factor in range(1, number + 1):
        if number % factor == 0:
            for rest in _factorisations(number // factor, places - 1):
                yield (factor, *rest)
