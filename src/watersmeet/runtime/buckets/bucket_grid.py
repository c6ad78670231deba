"""The grid of buckets of a query on Spark: choose it, place rows on it, label its cells and store it in the checkpoint.

**Axes.** An axis is an equality class, the group keys of one input, the rows of one input, or ranges of a value of one
input that bound another (`runtime.buckets.value_ranges`). Each axis fixes a row's coordinate or copies the row.

- On the axis of a class in which the row has a key, it goes to the coordinate of that key.
- On the axis of its own input's rows, it goes to its own coordinate.
- On an axis of ranges, it goes to the range of its value, or to all ranges that its bounds overlap.
- On every other axis, it goes to all coordinates.

The rows of a result agree on every class, so they meet in exactly one cell. One class that all inputs share needs no
copies. Without any class, one input is split and the others are copied. The shares of the axes minimize the number of
shuffled rows.

**Groups.** A group is whole in one cell if the group keys fix the coordinate of its results on every axis. Such an
axis lies along a class that is grouped by, or along an input's own group keys. Otherwise a cell has partial groups,
which a second step adds up.

**Labels.** Spark places a group by `pmod(murmur3(label), partitions)`. Buckets numbered 0, 1, 2, … would share
partitions and leave others idle. So labels are integers that Spark's hash puts on distinct partitions.

**Storage.** State is stored by bucket label. The rates of the streams may differ at every start, and with them the best
grid. So the grid of a query's first start is stored next to Spark's own logs before the first batch, and every later
start uses it. Every bucket also keeps the grid in its header (`runtime.buckets.state_store`). If the stored grid is
lost, a restart with another grid is refused, and no row is lost.

References: Afrati, Ullman, "Optimizing joins in a map-reduce environment" (shares). Okcan, Riedewald, "Processing
theta-joins using MapReduce" (the grid of two inputs' rows). Appleby, MurmurHash3, the 32-bit variant, with the seed
Spark uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr
from watersmeet.errors import InputError, InternalError
from watersmeet.files import write_atomically
from watersmeet.framing import DamagedFileError, encode_frame, read_frame
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.cost_of_spark import Shuffle, ShuffledInput
from watersmeet.runtime.buckets.value_ranges import ValueRanges, choose_boundaries, list_value_ranges

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the grid, with `share` coordinates.

    It lies along an equality class (`key_class`), along the rows of input `split`, or along `ranges` of a value. With
    `keys`, rows of the split input are placed by the values of these expressions. `spread_copies` is the mean number
    of ranges that a row of the spread input goes to.
    """

    share: int
    members: frozenset[int]
    key_class: int | None = None
    split: int | None = None
    keys: tuple[Expr, ...] = ()
    ranges: ValueRanges | None = None
    spread_copies: float = field(default=1.0, compare=False)

    def __post_init__(self) -> None:
        if self.share < 1 or [self.key_class, self.split, self.ranges].count(None) != 2:
            raise InternalError("an axis belongs to one class, one input or one value, with at least one coordinate")

    def coordinates(self, codes: Int64s) -> Int64s:
        seed = np.full(codes.size, self.share, np.int64)
        return (combine_codes(codes, seed).view(np.uint64) % np.uint64(self.share)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Classes whose key is in GROUP BY, and the group keys that belong to one input each.

    An aggregation that emits whole results at every evaluation must have all results of a group in one cell.
    """

    classes: frozenset[int]
    keys: Mapping[int, tuple[Expr, ...]]
    must_be_complete: bool = False

    def is_complete_in(self, grid: BucketGrid) -> bool:
        """Return whether all results of a group are in one cell."""
        return all(axis.key_class in self.classes or bool(axis.keys) for axis in grid.axes)


@dataclass(frozen=True, slots=True)
class BucketGrid:
    """A grid of cells, one per bucket. Cells are numbered with the first axis varying slowest."""

    axes: tuple[Axis, ...] = ()

    @property
    def cells(self) -> int:
        return math.prod(axis.share for axis in self.axes)

    def strides(self) -> list[int]:
        return [math.prod(axis.share for axis in self.axes[at + 1 :]) for at in range(len(self.axes))]

    def copies(self, number: int) -> list[int]:
        """Return the offsets from a row's first cell to all its cells: only 0 if no axis copies the input."""
        offsets = [0]
        for axis, stride in zip(self.axes, self.strides(), strict=True):
            if number not in axis.members:
                offsets = [offset + stride * at for offset in offsets for at in range(axis.share)]
        return offsets

    def mean_copies(self, number: int) -> float:
        """Return the mean number of cells that a row of an input goes to."""
        spread = (each.spread_copies for each in self.axes if each.ranges is not None and each.ranges.spread == number)
        return math.prod(spread, start=len(self.copies(number)))

    @property
    def range_axis(self) -> Axis | None:
        """The axis of ranges; a grid has at most one."""
        return next((axis for axis in self.axes if axis.ranges is not None), None)

    def is_first_copy(self, number: int, cell: int) -> bool:
        """Return whether this cell counts the rows of an input, except copies on the axis of ranges.

        Every row is counted in exactly one of its cells.
        """
        return all(
            number in axis.members or cell // stride % axis.share == 0
            for axis, stride in zip(self.axes, self.strides(), strict=True)
        )


def find_grouping(config: AggregateConfig) -> Grouping:
    """Return the equality classes that are grouped by, and the inputs that have their own group keys."""
    grouped = frozenset(
        number
        for number, keys in enumerate(config.join.classes.keys)
        if any(key in config.group_outputs.keys for key in keys.values())
    )
    keys = {number: each.attributes[: each.group_keys] for number, each in enumerate(config.carried) if each.group_keys}
    return Grouping(grouped, keys, must_be_complete=config.emits_whole_results)


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of streams, by name, that boundaries between ranges of values are chosen from."""

    tables: Mapping[str, pa.Table]
    is_complete: bool  # no other rows will arrive


def choose_grid(
    config: JoinConfig,
    buckets: int,
    rows_per_s: Sequence[float] | None = None,
    grouping: Grouping | None = None,
    sample: SampledRows | None = None,
) -> BucketGrid:
    """Return the grid of `buckets` cells that shuffles the fewest rows.

    A query that counts the rows of a whole stream gets one cell. `rows_per_s` are the rates by input; without them,
    equal rates are assumed. Adding up partial groups counts as if every row were shuffled once more. Without a
    `sample` there are no boundaries, and so no axis of ranges.
    """
    if config.waits_for_watermark or buckets == 1:
        return BucketGrid()
    rates = list(rows_per_s) if rows_per_s is not None else [1.0] * len(config.inputs)
    axes = list_axes(config, grouping)
    grids = list(_list_grids(buckets, axes))
    if sample is not None:
        grids += _list_range_grids(config, buckets, axes, sample)
    if grouping is not None and grouping.must_be_complete:
        grids = [grid for grid in grids if grouping.is_complete_in(grid)] or [BucketGrid()]
    return min(grids, key=lambda grid: _rank_grid(config, grid, rates, grouping))


def _rank_grid(
    config: JoinConfig, grid: BucketGrid, rates: list[float], grouping: Grouping | None
) -> tuple[float, int]:
    """Return the rows shuffled per second, then the number of axes as a tie-breaker. Relations are not shuffled."""
    again = 0 if grouping is None or grouping.is_complete_in(grid) else 1
    return sum(rates[i] * (grid.mean_copies(i) + again) for i in config.stream_inputs), len(grid.axes)


def list_axes(config: JoinConfig, grouping: Grouping | None = None) -> list[Axis]:
    """List every axis that a grid of the query can have, except those of ranges, with one coordinate each."""
    group_keys = {} if grouping is None else grouping.keys
    axes = [Axis(1, frozenset(members), key_class=c) for c, members in enumerate(config.classes.keys)]
    axes += [Axis(1, frozenset({i}), split=i, keys=group_keys[i]) for i in config.stream_inputs if i in group_keys]
    return [*axes, *(Axis(1, frozenset({i}), split=i) for i in config.stream_inputs)]


def estimate_shuffle(
    config: JoinConfig, grid: BucketGrid, rows: Sequence[float], *, is_total: bool, grouping: Grouping | None = None
) -> Shuffle:
    """Return the shuffle of a grid whose inputs have `rows` rows, in total or per second."""
    inputs = tuple(ShuffledInput(config.inputs[i].alias, i, rows[i], grid.mean_copies(i)) for i in config.stream_inputs)
    return Shuffle(
        inputs, grid.cells, is_total=is_total, merges_groups=grouping is not None and not grouping.is_complete_in(grid)
    )


def _list_grids(buckets: int, axes: list[Axis]) -> Iterator[BucketGrid]:
    for shares in _factorize(buckets, len(axes)):
        yield BucketGrid(
            tuple(replace(axis, share=share) for share, axis in zip(shares, axes, strict=True) if share > 1)
        )


def _list_range_grids(config: JoinConfig, buckets: int, axes: list[Axis], sample: SampledRows) -> Iterator[BucketGrid]:
    """Yield the grids that have an axis of ranges."""
    for ranges in list_value_ranges(config):
        for share in (each for each in range(2, buckets + 1) if buckets % each == 0):
            found = choose_boundaries(config, ranges, share, sample.tables, is_complete=sample.is_complete)
            if found is not None:
                axis = Axis(
                    share, frozenset({ranges.placed, ranges.spread}), ranges=found.ranges, spread_copies=found.copies
                )
                yield from (BucketGrid((axis, *grid.axes)) for grid in _list_grids(buckets // share, axes))


def _factorize(number: int, places: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to write a number as an ordered product of `places` factors.

    >>> sorted(_factorize(4, 2))
    [(1, 4), (2, 2), (4, 1)]
    """
    if places == 1:
        yield (number,)
        return
    for factor in range(1, number + 1):
        if number % factor == 0:
            for rest in _factorize(number // factor, places - 1):
                yield (factor, *rest)


_MASK_32 = 0xFFFFFFFF
_SEED = 42


def assign_labels(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return one label per bucket. Labels are assigned to the partitions in turn; label 0 is always among them.

    >>> labels = assign_labels(4, 4)
    >>> sorted(spark_partition(label, 4) for label in labels)
    [0, 1, 2, 3]
    """
    by_partition: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    per_partition = -(-buckets // partitions)
    label = 0
    while sum(map(len, by_partition.values())) < per_partition * partitions:
        labels = by_partition[spark_partition(label, partitions)]
        if len(labels) < per_partition:
            labels.append(label)
        label += 1
    in_turn = [labels[turn] for turn in range(per_partition) for labels in by_partition.values()]
    return tuple(sorted(in_turn, key=lambda each: (each != 0, in_turn.index(each)))[:buckets])


def spark_partition(label: int, partitions: int) -> int:
    """Return the partition that Spark assigns to a group with this INT key.

    >>> spark_partition(0, 1_000_000)
    211791
    """
    signed = _murmur3(label)
    return (signed - (1 << 32) if signed >> 31 else signed) % partitions


def _murmur3(value: int) -> int:
    mixed = (value * 0xCC9E2D51) & _MASK_32
    mixed = (_rotate_left(mixed, 15) * 0x1B873593) & _MASK_32
    state = (_rotate_left(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK_32
    state ^= 4
    state = ((state ^ state >> 16) * 0x85EBCA6B) & _MASK_32
    state = ((state ^ state >> 13) * 0xC2B2AE35) & _MASK_32
    return state ^ state >> 16


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK_32


GRID_FRAME = "grid"
_RESTORE_GRID = "restore it from a copy, or delete it and start with the statistics of the query's first start"


@dataclass(frozen=True, slots=True)
class GridStore:
    """File of a checkpoint that holds the grid of its buckets."""

    checkpoint: Path

    @classmethod
    def at(cls, location: str | Path) -> GridStore:
        """Return the store of a checkpoint location, given as Spark writes it.

        Refuse a location that this process cannot read and write.
        """
        path = to_local_path(location)
        if path is None:
            raise InputError(
                f'the grid of buckets cannot be stored in "{location}": '
                f"only a checkpoint in a file system of this machine can hold it",
                hint="leave checkpoint out and declare the rates of the streams with stats",
            )
        return cls(path)

    @property
    def has_started(self) -> bool:
        """Whether a batch of the query was ever planned: then the checkpoint may contain its state."""
        offsets = self.checkpoint / "offsets"
        return offsets.is_dir() and any(file.name.isdigit() for file in offsets.iterdir())

    def load(self, query: str, config: JoinConfig, grouping: Grouping | None) -> BucketGrid | None:
        """Return the stored grid of this query, or None where there is none."""
        if not self._file.exists():
            return None
        try:
            header = read_frame(self._file, GRID_FRAME).header
            if header["query"] != query:
                return None  # the headers of its buckets name the difference
            return BucketGrid(tuple(_find_axis(each, config, grouping) for each in header["axes"]))
        except DamagedFileError as error:
            raise DamagedFileError(error.path, error.problem, hint=_RESTORE_GRID) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(
                self._file, "is damaged: its grid does not fit the query", hint=_RESTORE_GRID
            ) from error

    def save(self, query: str, config: JoinConfig, grid: BucketGrid) -> None:
        """Write the grid atomically. It holds from batch 0 on, because rows in state cannot move to other buckets."""
        axes = [
            {
                "share": axis.share,
                "class": axis.key_class,
                "input": axis.split,
                "by_group": bool(axis.keys),
                "ranges": _save_ranges(axis.ranges, config),
            }
            for axis in grid.axes
        ]
        write_atomically(self._file, encode_frame(GRID_FRAME, {"query": query, "from_batch": 0, "axes": axes})[0])

    @property
    def _file(self) -> Path:
        return self.checkpoint / "watersmeet" / "grid.json"


def to_local_path(location: str | Path) -> Path | None:
    """Return a checkpoint location, given as Spark writes it, as a path; None if it is not in a local file system.

    >>> to_local_path("file:///data/checkpoint").as_posix(), to_local_path("s3://bucket/checkpoint")
    ('/data/checkpoint', None)
    """
    text = str(location)
    scheme, separator, _ = text.partition(":")
    if separator and len(scheme) > 1 and scheme != "file" and not Path(text).is_absolute():
        return None
    return Path("/" + text.removeprefix("file:").lstrip("/") if scheme == "file" else text)


def _find_axis(saved: dict[str, Any], config: JoinConfig, grouping: Grouping | None) -> Axis:
    if saved.get("ranges") is not None:
        ranges = _load_ranges(saved["ranges"], config)
        if len(ranges.boundaries) != int(saved["share"]) - 1:
            raise ValueError("a boundary is missing")
        return Axis(int(saved["share"]), frozenset({ranges.placed, ranges.spread}), ranges=ranges)
    for axis in list_axes(config, grouping):
        if (axis.key_class, axis.split, bool(axis.keys)) == (saved["class"], saved["input"], saved["by_group"]):
            return replace(axis, share=int(saved["share"]))
    raise ValueError("the query does not have this axis")


def _save_ranges(ranges: ValueRanges | None, config: JoinConfig) -> dict[str, Any] | None:
    """Return the number of the partition in the list of the query's partitions, its conditions and its boundaries."""
    if ranges is None:
        return None
    for number, each in enumerate(list_value_ranges(config)):
        if (each.placed, each.spread) == (ranges.placed, ranges.spread) and {*ranges.conditions} <= {*each.conditions}:
            used = [each.conditions.index(condition) for condition in ranges.conditions]
            return {"number": number, "conditions": used, "boundaries": list(ranges.boundaries)}
    raise InternalError("a partition by values that the query does not have")


def _load_ranges(saved: dict[str, Any], config: JoinConfig) -> ValueRanges:
    found = list_value_ranges(config)
    if not 0 <= saved["number"] < len(found):
        raise ValueError("the query does not have this partition by values")
    ranges: ValueRanges = found[saved["number"]]
    if not all(0 <= used < len(ranges.conditions) for used in saved["conditions"]):
        raise ValueError("the query does not have this condition")
    conditions = tuple(ranges.conditions[used] for used in saved["conditions"])
    return replace(ranges, conditions=conditions, boundaries=tuple(int(each) for each in saved["boundaries"]))
