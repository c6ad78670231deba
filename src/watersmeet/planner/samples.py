"""Samples of rows, and their estimates: how often rows of several inputs share a key, and how often predicates hold.

A sample of an input is a pane of rows that passed its own predicates. Take two independent samples of n and m rows. The
number h of the n · m pairs with equal keys estimates the share of pairs that match. It does so for any skew, and
whether or not the keys overlap: values need not be equally frequent. The share is Σ p(v) · q(v) over the values. With
distinct counts alone, 1 / max(v, w) is its estimate.

References: Haas, Naughton, Seshadri, Swami, "Selectivity and Cost Estimation for Joins Based on Random Sampling", 1996,
`t_cross`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr, conjuncts, sources_of
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.operators.expressions import is_true, maybe_true
from watersmeet.operators.window_join.admission import ReleasedRows, build_pane, combine_chunks, drop_raising_rows
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Pane
from watersmeet.stats.selectivity import measure_selectivity
from watersmeet.stats.stream_stats import Estimate
from watersmeet.stats.table_stats import draw_sample_rows

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Rows sampled of each input. The number of pairs counts: a key with a million values still matches in about sixty.
SAMPLE_ROWS = 8_192

#: Combinations that a predicate is evaluated on.
SAMPLE_COMBINATIONS = 4_096

#: Matching pairs that make a sample reliable. Fewer are trusted only if the distinct counts predict at least as many.
ENOUGH_HITS = 30.0


@dataclass(frozen=True)
class InputSample:
    """Rows of an input that passed its own predicates, out of `drawn_rows` rows."""

    pane: Pane
    drawn_rows: int
    passed: tuple[Bools, ...] = ()  # per predicate of the input, in the order of the query: the rows that pass it
    _passed_together: dict[frozenset[int], int] = field(default_factory=dict, repr=False)

    @property
    def pass_share(self) -> Estimate:
        """Share of the rows that passed."""
        return measure_selectivity(np.arange(self.drawn_rows) < len(self.pane))

    def measure_filter(self, number: int, tested: frozenset[int]) -> Estimate | None:
        """Measure how often a predicate holds on the rows that pass the predicates tested before it."""
        reached = self._count_passed(tested)
        if not reached:
            return None
        passed = self._count_passed(tested | {number})
        return measure_selectivity(np.arange(reached) < passed)

    def _count_passed(self, numbers: frozenset[int]) -> int:
        found = self._passed_together.get(numbers)
        if found is None:
            keep = np.ones(self.passed[0].size, np.bool_)
            for number in numbers:
                keep &= self.passed[number]
            found = self._passed_together[numbers] = int(np.count_nonzero(keep))
        return found


def draw_sample(source: JoinInput, table: pa.Table, times: Int64s) -> InputSample:
    """Draw a sample of a table's rows.

    The same table gives the same sample, but two inputs that read it get different ones.
    """
    chosen = draw_sample_rows(table.num_rows, SAMPLE_ROWS, seed=source.number)
    if chosen is not None:
        table, times = table.take(chosen), times[chosen]
    order = np.argsort(times, kind="stable")
    rows = drop_raising_rows(source, ReleasedRows(table.take(order), times[order], None))
    return InputSample(build_pane(source, rows), times.size, _test_predicates(source, rows))


def _test_predicates(source: JoinInput, rows: ReleasedRows) -> tuple[Bools, ...]:
    """Test each predicate of an input on all rows, so that their order can be chosen."""

    def column(reference: Column) -> pa.Array[Any]:
        return combine_chunks(rows.table, reference.name)

    return tuple(is_true(each, column, rows.times.size) for each in conjuncts(source.selection))


#: Parts of a sample's time span in which rows are counted, to see whether the rate fluctuates.
RATE_PARTS = 16

#: A rate fluctuates if its standard deviation over the parts is above this share of the mean, chance apart.
FLUCTUATION_SHARE = 0.5


def measure_fluctuation(times: Int64s) -> float:
    """Return the standard deviation of a rate over time as a share of its mean, without the part that is due to chance.

    >>> measure_fluctuation(np.arange(1600)), round(measure_fluctuation(np.repeat([0, 15], 800)), 2)
    (0.0, 2.64)
    """
    if times.size < RATE_PARTS or times[0] == times[-1]:
        return 0.0
    counts, _ = np.histogram(times, RATE_PARTS)
    excess = float(counts.var() - counts.mean())  # arrivals by chance have a variance as large as their mean
    return math.sqrt(max(excess, 0.0)) / float(counts.mean())


@dataclass(frozen=True)
class Samples:
    """Samples by input number; inputs without one have only their statistics."""

    by_input: Mapping[int, InputSample] = field(default_factory=dict)
    _counts: dict[int, dict[int, Floats]] = field(default_factory=dict, repr=False)
    _shares: dict[tuple[int, frozenset[int]], tuple[float, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def fluctuating_inputs(self) -> frozenset[int]:
        """Inputs whose rate changes widely over time.

        References: Golab, Özsu, section 5.4.
        """
        return frozenset(
            i for i, each in self.by_input.items() if measure_fluctuation(each.pane.times) > FLUCTUATION_SHARE
        )

    def estimate_key_match_share(
        self, config: JoinConfig, key_class: int, known: frozenset[int], target: int, uniform_share: float
    ) -> float | None:
        """Estimate the share of the target's rows with the key that the known inputs share; None if no sample can tell.

        `uniform_share` is the estimate from distinct counts, for equally frequent values. A sample with few matches is
        trusted only if it should have had many.
        """
        if not {*known, target} <= set(self.by_input):
            return None
        together, hits = self._measure_key_match(config, key_class, known | {target})
        if hits >= ENOUGH_HITS:
            return together / self._measure_key_match(config, key_class, known)[0]
        if len(known) > 1:  # three rare keys rarely match in a sample; use the pair that matches most often
            pairs = [
                self.estimate_key_match_share(config, key_class, frozenset({i}), target, uniform_share) for i in known
            ]
            return max((each for each in pairs if each is not None), default=None)
        pairs_seen = len(self.by_input[target].pane) * len(self.by_input[next(iter(known))].pane)
        return max(hits, 0.5) / pairs_seen if pairs_seen * uniform_share >= ENOUGH_HITS else None

    def estimate_selectivity(self, config: JoinConfig, check: Expr, given: tuple[Expr, ...] = ()) -> Estimate | None:
        """Estimate how often a predicate over several inputs holds if the given ones do; None if no sample can tell.

        Rows are drawn at most as far apart in time as a result allows.
        """
        numbers = sorted(config.aliases[alias] for alias in sources_of(check))
        if not numbers or any(i not in self.by_input or not len(self.by_input[i].pane) for i in numbers):
            return None
        rows = self._draw_combinations(config, numbers)

        def column(bound_column: Column) -> pa.Array[Any]:
            if bound_column.source is None:
                raise InternalError(f'column "{bound_column.name}" was not bound')
            number = config.aliases[bound_column.source]
            return self.by_input[number].pane.columns[bound_column.name].take(rows[number])

        # evaluation errors count only in results, and these combinations need not be results
        left = maybe_true(given, column, SAMPLE_COMBINATIONS).keep
        return measure_selectivity(maybe_true((check,), column, SAMPLE_COMBINATIONS).keep[left])

    def _draw_combinations(self, config: JoinConfig, numbers: list[int]) -> dict[int, Int64s]:
        """Draw random rows; those after the first lie inside the time bounds of the first, if there are any."""
        rng = np.random.default_rng(numbers)
        first = numbers[0]
        rows = {first: rng.integers(0, len(self.by_input[first].pane), SAMPLE_COMBINATIONS)}
        for other in numbers[1:]:
            pane = self.by_input[other].pane
            low, high = np.zeros(SAMPLE_COMBINATIONS, np.int64), np.full(SAMPLE_COMBINATIONS, len(pane), np.int64)
            if config.inputs[first].is_stream and config.inputs[other].is_stream:
                times = self.by_input[first].pane.times[rows[first]]
                before_us, after_us = (
                    min(config.bounds.later_by_us[i][j], FOREVER_US // 2) for i, j in ((other, first), (first, other))
                )
                low, high = (
                    np.searchsorted(pane.times, times - before_us),
                    np.searchsorted(pane.times, times + after_us, side="right"),
                )
                nothing = low >= high
                low, high = np.where(nothing, 0, low), np.where(nothing, len(pane), high)
            rows[other] = rng.integers(low, high)
        return rows

    def _measure_key_match(self, config: JoinConfig, key_class: int, inputs: frozenset[int]) -> tuple[float, float]:
        """Return the share of combinations of one row each with the same key, and the number of such combinations."""
        found = self._shares.get((key_class, inputs))
        if found is None:
            counts = self._class_counts(config, key_class)
            product = np.prod([counts[i] for i in sorted(inputs)], axis=0)
            hits = float(product.sum())
            sizes = np.prod([max(1.0, float(len(self.by_input[i].pane))) for i in inputs])
            found = self._shares[key_class, inputs] = (hits / float(sizes), hits)
        return found

    def _class_counts(self, config: JoinConfig, key_class: int) -> dict[int, Floats]:
        """Count each value in each sample, with common value numbers.

        Values of a single input are left out, except for their total.
        """
        found = self._counts.get(key_class)
        if found is None:
            members = sorted(i for i in config.classes.keys[key_class] if i in self.by_input)
            codes = [self.by_input[i].pane.codes[key_class] for i in members]
            _, places = np.unique(np.concatenate(codes), return_inverse=True)
            parts = np.split(places, np.cumsum([each.size for each in codes])[:-1])
            width = int(places.max(initial=-1)) + 1
            table = np.array([np.bincount(part, minlength=width) for part in parts], np.float64)
            shared = (table > 0).sum(axis=0) > 1
            alone = table[:, ~shared].sum(axis=1)
            # a last column per input counts its values that no other input has, so that each row sums to its sample
            kept = np.hstack([table[:, shared], np.diag(alone)])
            found = self._counts[key_class] = dict(zip(members, kept, strict=True))
        return found
