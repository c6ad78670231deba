"""Panes: immutable, columnar slices of one input's rows in time order, with access paths built at the first probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import index_array
from watersmeet.algebra.expressions import Expr
from watersmeet.errors import InternalError
from watersmeet.kernels.gather import gather_int64
from watersmeet.kernels.grouped_run import accumulate_maximum, group_rows
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.window_join.join_predicates import encode_ordered, fill_with_zero

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]

_NO_TIMES: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class GroupedRun:
    """Rows of a pane grouped by key, each group in time order; a single group if there is no key."""

    slots: Int32s
    group_keys: Int64s
    offsets: Int32s
    rows: Int32s
    times: Int64s
    ends: Int64s  # running maximum in each group, so that it is monotone; empty if rows have no ends


@dataclass(frozen=True)
class RowNumbers:
    """Numbers of a pane's rows in data derived from them; −1 for rows that are not part of it."""

    values: Int64s

    @cached_property
    def order(self) -> Int64s | None:
        """The rows by number, or None if they are in this order."""
        return None if is_sorted(self.values) else np.argsort(self.values, kind="stable")


@dataclass(frozen=True)
class Pane:
    """Rows of one input in time order.

    `columns` are the payload. `keys` are the key values whose codes are hashes. `codes` hold one int64 per row and
    equality class. `ends` is the last instant of each row's validity, if the window needs one. `seqs` is the row's
    sequence number in its stream, if rows are counted.
    """

    times: Int64s
    columns: Mapping[str, pa.Array[Any]]
    keys: Mapping[int, pa.Array[Any]]
    codes: Mapping[int, Int64s]
    ends: Int64s | None = None
    seqs: Int64s | None = None
    stale_ends: int = field(default=0, compare=False)  # rows whose end was set after the access paths were built
    _runs: dict[tuple[int, ...], GroupedRun] = field(default_factory=dict, compare=False, repr=False)
    _ranges: dict[Expr, tuple[Int64s, NDArray[np.bool_]]] = field(default_factory=dict, compare=False, repr=False)
    _sorted_runs: dict[object, object] = field(default_factory=dict, compare=False, repr=False)
    _numbers: dict[object, RowNumbers] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return self.times.size

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, without access paths."""
        numbers = (self.times, *self.codes.values(), *(each for each in (self.ends, self.seqs) if each is not None))
        arrays: tuple[Int64s | pa.Array[Any], ...] = (*numbers, *self.columns.values(), *self.keys.values())
        return sum(each.nbytes for each in arrays)

    def key(self, classes: tuple[int, ...]) -> Int64s:
        """Return one code per row for several equality classes."""
        return reduce(combine_codes, (self.codes[c] for c in classes))

    def run(self, classes: tuple[int, ...]) -> GroupedRun:
        """Return the access path for these equality classes, built at the first call."""
        found = self._runs.get(classes)
        if found is None:
            found = self._runs[classes] = build_run(self, classes)
        return found

    def has_run(self, classes: tuple[int, ...]) -> bool:
        return classes in self._runs

    def range_codes(self, expr: Expr) -> tuple[Int64s, NDArray[np.bool_]]:
        """Return order-preserving codes of an expression over the columns, and which rows have a value (cached)."""
        found = self._ranges.get(expr)
        if found is None:
            values = evaluate(expr, lambda column: self.columns[column.name], len(self))
            valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
            found = self._ranges[expr] = encode_ordered(fill_with_zero(values)), valid
        return found

    @property
    def sorted_runs(self) -> dict[object, object]:
        """Access paths in the order of values, by the conditions that they answer (`tactics.sorted_ranges`)."""
        return self._sorted_runs

    def number_rows(self, owner: object, numbers: Int64s) -> None:
        """Note the numbers that the owner of derived data gave to the rows. Those of another owner are forgotten.

        Rows keep their numbers when panes are merged or cut, so derived data finds its rows again.
        """
        self._numbers.clear()
        self._numbers[owner] = RowNumbers(numbers)

    def numbers_of(self, owner: object) -> RowNumbers | None:
        """Return the numbers that an owner of derived data gave to the rows, or None if it does not know them."""
        return self._numbers.get(owner)

    def replace_ends(self, ends: Int64s, changed: int) -> Pane:
        """Return the same rows, `changed` of them with an earlier end.

        Access paths prune by the ends they were built with. Those are never earlier than the true ends, and every
        candidate is checked against the true ends, so the paths stay correct. They are rebuilt when a quarter of the
        rows has ended since.
        """
        stale = self.stale_ends + changed
        if 4 * stale > len(self):
            return replace(self, ends=ends, stale_ends=0, _runs={}, _sorted_runs={}, _ranges=self._ranges)
        return replace(
            self,
            ends=ends,
            stale_ends=stale,
            _runs=dict(self._runs),
            _sorted_runs=dict(self._sorted_runs),
            _ranges=self._ranges,
        )

    def last_use_us(self, retention_us: int) -> int:
        """Return the last instant at which a row of the pane can still match a new row."""
        by_time = int(self.times[-1]) + retention_us
        return by_time if self.ends is None else min(by_time, int(self.ends.max()))

    def outlasts_batch(self, retention_us: int) -> bool:
        """Return whether at least half of the rows can match rows that arrive after all of them."""
        return int(self.times[len(self) // 2]) >= int(self.times[-1]) - retention_us

    def live_mask(self, retention_us: int, future_us: int) -> NDArray[np.bool_]:
        """Return a mask of the rows that can still match a row at or after `future_us`."""
        live = self.times >= future_us - retention_us
        return live if self.ends is None else live & (self.ends >= future_us)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Pane:
        """Return some of the rows, by number or by mask, in their order."""
        chosen: NDArray[Any] = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        index = index_array(chosen)
        return Pane(
            times=self.times[chosen],
            columns={name: column.take(index) for name, column in self.columns.items()},
            keys={c: keys.take(index) for c, keys in self.keys.items()},
            codes={c: codes[chosen] for c, codes in self.codes.items()},
            ends=None if self.ends is None else self.ends[chosen],
            seqs=None if self.seqs is None else self.seqs[chosen],
            _numbers={owner: RowNumbers(each.values[chosen]) for owner, each in self._numbers.items()},
        )


def merge_panes(panes: list[Pane]) -> Pane:
    """Merge panes into one in time order (rows of equal time keep the order of their panes)."""
    rows = concat_panes(panes)
    return rows if is_sorted(rows.times) else rows.take(np.argsort(rows.times, kind="stable"))


def concat_panes(panes: list[Pane]) -> Pane:
    """Concatenate the rows of several panes."""
    first = panes[0]
    return Pane(
        times=np.concatenate([pane.times for pane in panes]),
        columns={name: pa.concat_arrays([pane.columns[name] for pane in panes]) for name in first.columns},
        keys={c: pa.concat_arrays([pane.keys[c] for pane in panes]) for c in first.keys},
        codes={c: np.concatenate([pane.codes[c] for pane in panes]) for c in first.codes},
        ends=None if first.ends is None else np.concatenate([_require(pane.ends) for pane in panes]),
        seqs=None if first.seqs is None else np.concatenate([_require(pane.seqs) for pane in panes]),
        _numbers=_concat_numbers(panes),
    )


def _concat_numbers(panes: list[Pane]) -> dict[object, RowNumbers]:
    """Return the numbers of all rows, if one owner numbered all panes."""
    owners = set(panes[0]._numbers).intersection(*(pane._numbers for pane in panes))
    return {owner: RowNumbers(np.concatenate([pane._numbers[owner].values for pane in panes])) for owner in owners}


def is_sorted(times: Int64s) -> bool:
    return bool(np.all(times[1:] >= times[:-1]))


def build_run(pane: Pane, classes: tuple[int, ...], chosen: Int32s | None = None) -> GroupedRun:
    """Group the rows of a pane, or the chosen ones, by key."""
    if not classes:
        rows = np.arange(len(pane), dtype=np.int32) if chosen is None else chosen
        offsets = np.array([0, rows.size], np.int32)
        slots, group_keys = np.empty(0, np.int32), np.empty(0, np.int64)
    else:
        keys = pane.key(classes)
        slots, group_keys, offsets, rows = group_rows(keys if chosen is None else keys[chosen])
        rows = rows if chosen is None else chosen[rows]
    ends = _NO_TIMES if pane.ends is None else accumulate_maximum(gather_int64(pane.ends, rows), offsets)
    return GroupedRun(slots, group_keys, offsets, rows, gather_int64(pane.times, rows), ends)


def _require(values: Int64s | None) -> Int64s:
    if values is None:
        raise InternalError("a pane without the ends or sequence numbers its input needs")
    return values


@dataclass(frozen=True)
class Panes:
    """Panes that a probe may match. Row numbers run over all of them."""

    panes: tuple[Pane, ...]

    @cached_property
    def bases(self) -> Int64s:
        """The row number of each pane's first row, and the total number of rows."""
        return np.cumsum([0, *(len(pane) for pane in self.panes)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.bases[-1])

    @cached_property
    def _concatenated(self) -> dict[str, Any]:
        """Columns concatenated over all panes, because a caller gathered many of their rows."""
        return {}

    def column(self, name: str, rows: Int32s) -> pa.Array[Any]:
        return self._gather(f"column {name}", [pane.columns[name] for pane in self.panes], rows)

    def keys(self, key_class: int, rows: Int32s) -> pa.Array[Any]:
        return self._gather(f"keys {key_class}", [pane.keys[key_class] for pane in self.panes], rows)

    def codes(self, key_class: int, rows: Int32s) -> Int64s:
        return self._numbers(f"codes {key_class}", [pane.codes[key_class] for pane in self.panes], rows)

    def times(self, rows: Int32s) -> Int64s:
        return self._numbers("times", [pane.times for pane in self.panes], rows)

    def ends(self, rows: Int32s) -> Int64s:
        return self._numbers("ends", [_require(pane.ends) for pane in self.panes], rows)

    def _gather(self, name: str, parts: list[pa.Array[Any]], rows: Int32s) -> pa.Array[Any]:
        if len(parts) == 1:
            return pc.take(parts[0], index_array(rows), boundscheck=False)
        if rows.size * 8 >= len(self):  # concatenating once costs less than sorting the rows by pane
            if name not in self._concatenated:
                self._concatenated[name] = pa.concat_arrays(parts)
            joined: pa.Array[Any] = self._concatenated[name]
            return pc.take(joined, index_array(rows), boundscheck=False)
        places = self._places(rows)
        found = pa.concat_arrays([part.take(local) for part, (_, local) in zip(parts, places, strict=True)])
        back = np.empty(rows.size, np.int64)
        back[np.concatenate([at for at, _ in places])] = np.arange(rows.size)
        return found.take(back)

    def _numbers(self, name: str, parts: list[Int64s], rows: Int32s) -> Int64s:
        if len(parts) == 1:
            return gather_int64(parts[0], rows)
        if rows.size * 8 >= len(self):
            if name not in self._concatenated:
                self._concatenated[name] = np.concatenate(parts)
            return gather_int64(self._concatenated[name], rows)
        numbers = np.empty(rows.size, np.int64)
        for part, (at, local) in zip(parts, self._places(rows), strict=True):
            numbers[at] = part[local]
        return numbers

    def _places(self, rows: Int32s) -> list[tuple[Int64s, Int64s]]:
        """Return for each pane the positions of the rows that lie in it, and their numbers inside it."""
        pane_of = np.searchsorted(self.bases, rows, side="right") - 1
        places = [np.flatnonzero(pane_of == number) for number in range(len(self.panes))]
        return [(at, rows[at] - self.bases[number]) for number, at in enumerate(places)]
