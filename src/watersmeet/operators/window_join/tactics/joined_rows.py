"""Results of a subtree of joins: matches of some inputs' rows, each with all its components.

A component keeps its time, end, keys and columns, so that bounds between any two inputs can be checked when subtrees
are joined. The rows of a match are valid together from the largest of their times, `latest`, until the first of them
ends, `end`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.kernels.grouped_run import accumulate_maximum, count_matches, fill_matches, group_rows
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.expressions import all_true, maybe_true
from watersmeet.operators.keys import compare_keys
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PIECE_ROWS
from watersmeet.operators.window_join.pane import GroupedRun, Int32s, Int64s, Pane, concat_panes


@dataclass(frozen=True)
class JoinedRows:
    """Matches in the order of `latest`, one pane per input: row r of every pane belongs to match r.

    `retest` are predicates that raised on some match and must be tested on complete matches.
    """

    config: JoinConfig
    parts: Mapping[int, Pane]
    retest: tuple[Expr, ...] = ()
    _runs: dict[tuple[tuple[int, int], ...], GroupedRun] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    @cached_property
    def latest(self) -> Int64s:
        """The largest time of the streams' rows; the lowest time if there are only relations."""
        times = [part.times for i, part in self.parts.items() if self.config.inputs[i].is_stream]
        return reduce(np.maximum, times) if times else np.full(len(self), -FOREVER_US, np.int64)

    @cached_property
    def end(self) -> Int64s:
        """The last instant at which all rows of a match are valid."""
        ends = [part.ends for part in self.parts.values() if part.ends is not None]
        return reduce(np.minimum, ends) if ends else np.full(len(self), FOREVER_US, np.int64)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> JoinedRows:
        return JoinedRows(self.config, {i: part.take(rows) for i, part in self.parts.items()}, self.retest)

    def key(self, providers: tuple[tuple[int, int], ...]) -> Int64s:
        """Return one code per match for the given (equality class, input that provides its key) pairs."""
        if not providers:
            return np.zeros(len(self), np.int64)
        return reduce(combine_codes, (self.parts[i].codes[c] for c, i in providers))

    def run(self, providers: tuple[tuple[int, int], ...]) -> GroupedRun:
        """Return the matches grouped by key, each group in the order of `latest`; built once."""
        if len(self.parts) == 1:
            return next(iter(self.parts.values())).run(tuple(c for c, _ in providers))
        if providers not in self._runs:
            slots, group_keys, offsets, rows = group_rows(self.key(providers))
            if not providers:  # without a key there is one group to scan, and no directory
                slots, group_keys = np.empty(0, np.int32), np.empty(0, np.int64)
            ends = accumulate_maximum(self.end[rows], offsets)
            self._runs[providers] = GroupedRun(slots, group_keys, offsets, rows, self.latest[rows], ends)
        return self._runs[providers]


def sort_by_latest(joined: JoinedRows) -> JoinedRows:
    """Sort matches by `latest`."""
    return joined.take(np.argsort(joined.latest, kind="stable"))


def concat_joined(chunks: list[JoinedRows]) -> JoinedRows:
    """Concatenate matches of the same inputs, in order."""
    if len(chunks) == 1:
        return chunks[0]
    parts = {i: concat_panes([chunk.parts[i] for chunk in chunks]) for i in chunks[0].parts}
    return sort_by_latest(JoinedRows(chunks[0].config, parts, _merge_predicates(chunk.retest for chunk in chunks)))


@dataclass(frozen=True, slots=True)
class SubtreeLink:
    """The connection of two subtrees.

    `classes` has (class, input of the probing key, input of the probed key) for every shared equality class. `checks`
    are the predicates that can be tested once both subtrees are bound.
    """

    classes: tuple[tuple[int, int, int], ...]
    checks: tuple[Expr, ...]

    @property
    def probing_keys(self) -> tuple[tuple[int, int], ...]:
        return tuple((c, i) for c, i, _ in self.classes)

    @property
    def probed_keys(self) -> tuple[tuple[int, int], ...]:
        return tuple((c, j) for c, _, j in self.classes)

    def flip(self) -> SubtreeLink:
        return SubtreeLink(tuple((c, j, i) for c, i, j in self.classes), self.checks)


@dataclass(frozen=True)
class CandidatePairs:
    """Candidates: row numbers of the probing matches and of the probed matches."""

    probing: JoinedRows
    probed: JoinedRows
    left: Int32s
    right: Int32s
    retest: tuple[Expr, ...] = ()

    def __len__(self) -> int:
        return self.left.size

    def take(self, keep: NDArray[np.bool_]) -> CandidatePairs:
        return self if np.all(keep) else replace(self, left=self.left[keep], right=self.right[keep])

    def part(self, number: int) -> tuple[Pane, Int32s]:
        is_probing = number in self.probing.parts
        return (self.probing.parts[number], self.left) if is_probing else (self.probed.parts[number], self.right)

    def column(self, ref: Column) -> pa.Array[Any]:
        if ref.source is None:
            raise InternalError(f'column "{ref.name}" was never bound')
        pane, rows = self.part(self.probing.config.aliases[ref.source])
        return pane.columns[ref.name].take(rows)

    def to_joined(self) -> JoinedRows:
        parts = {**self.probing.take(self.left).parts, **self.probed.take(self.right).parts}
        return JoinedRows(self.probing.config, dict(sorted(parts.items())), self.retest)


def join_subtrees(
    probing: JoinedRows, probed: JoinedRows, link: SubtreeLink, tested: Int64s
) -> Iterator[tuple[int, JoinedRows]]:
    """Yield (number of candidates, matches) of two subtrees in pieces of bounded size.

    The function adds to `tested` the number of candidates on which it evaluates predicates.
    """
    if not len(probing) or not len(probed):
        return
    run = probed.run(link.probed_keys)
    from_us, until_us = _time_bounds_us(probing, probed)
    first, count = np.empty(len(probing), np.int64), np.empty(len(probing), np.int32)
    keys = probing.key(link.probing_keys)
    count_matches(
        run.slots,
        run.group_keys,
        run.offsets,
        run.times,
        run.ends,
        keys,
        from_us,
        until_us,
        probing.latest,
        first,
        count,
    )
    for start, stop in _split_pieces(count):
        total = int(count[start:stop].sum())
        left, right = np.empty(total, np.int32), np.empty(total, np.int32)
        fill_matches(run.rows, first[start:stop], count[start:stop], 0, left, right, 0)
        retest = _merge_predicates((probing.retest, probed.retest))
        pairs = _filter_pairs(CandidatePairs(probing, probed, left + np.int32(start), right, retest), link, tested)
        yield total, pairs.to_joined()


def _time_bounds_us(probing: JoinedRows, probed: JoinedRows) -> tuple[Int64s, Int64s]:
    """Return the earliest and latest instants for `latest` of a probed match.

    Every bound between two inputs gives a bound for the latest of them.
    """
    config, later_by = probing.config, probing.config.bounds.later_by_us
    low, high = np.full(len(probing), -FOREVER_US, np.int64), np.full(len(probing), -FOREVER_US, np.int64)
    streams = [j for j in probed.parts if config.inputs[j].is_stream]
    for j in streams:
        reach = np.full(len(probing), FOREVER_US, np.int64)
        for i, part in probing.parts.items():
            if later_by[j][i] < FOREVER_US:
                low = np.maximum(low, part.times - later_by[j][i])
            if later_by[i][j] < FOREVER_US:
                reach = np.minimum(reach, part.times + later_by[i][j])
        high = np.maximum(high, reach)
    return low, np.minimum(high, probing.end) if streams else np.full(len(probing), FOREVER_US, np.int64)


def _split_pieces(count: Int32s) -> Iterator[tuple[int, int]]:
    """Yield ranges of the probing matches with at most `PIECE_ROWS` candidates each, or with a single match."""
    running = np.cumsum(count, dtype=np.int64)
    start = 0
    while start < count.size and running[-1] > (running[start - 1] if start else 0):
        before = int(running[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(running, before + PIECE_ROWS, side="right")))
        yield start, stop
        start = stop


def _merge_predicates(predicates: Iterable[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    return tuple(dict.fromkeys(predicate for group in predicates for predicate in group))


def _filter_pairs(pairs: CandidatePairs, link: SubtreeLink, tested: Int64s) -> CandidatePairs:
    """Drop candidates that violate a time bound, are not valid together, have unequal keys, or fail a predicate."""
    config = pairs.probing.config
    latest = np.maximum(pairs.probing.latest[pairs.left], pairs.probed.latest[pairs.right])
    pairs = pairs.take(np.minimum(pairs.probing.end[pairs.left], pairs.probed.end[pairs.right]) >= latest)
    for i, here in pairs.probing.parts.items():
        for j, there in pairs.probed.parts.items():
            for bound, earlier, later in (
                (config.bounds.later_by_us[i][j], i, j),
                (config.bounds.later_by_us[j][i], j, i),
            ):
                if bound < FOREVER_US:
                    gap = there.times[pairs.right] - here.times[pairs.left]
                    pairs = pairs.take((gap if (earlier, later) == (i, j) else -gap) <= bound)
    for key_class, i, j in link.classes:
        pairs = pairs.take(_have_equal_keys(pairs, key_class, i, j))
    is_complete = len(pairs.probing.parts) + len(pairs.probed.parts) == len(config.inputs)
    predicates = _merge_predicates((link.checks, pairs.retest)) if is_complete else link.checks
    if not predicates or not len(pairs):
        return pairs
    tested += len(pairs)
    if is_complete:
        return pairs.take(all_true(predicates, pairs.column, len(pairs)))
    test = maybe_true(predicates, pairs.column, len(pairs))
    return replace(pairs.take(test.keep), retest=_merge_predicates((pairs.retest, test.raised)))


def _have_equal_keys(pairs: CandidatePairs, key_class: int, i: int, j: int) -> NDArray[np.bool_]:
    (here, left), (there, right) = pairs.part(i), pairs.part(j)
    if key_class in pairs.probing.config.exact_classes:
        return np.equal(here.codes[key_class][left], there.codes[key_class][right])
    return compare_keys(here.keys[key_class].take(left), there.keys[key_class].take(right))
