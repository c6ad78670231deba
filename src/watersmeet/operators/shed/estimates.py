"""Estimates of aggregates over all combinations, from the combinations of kept rows, with standard errors.

Each row of stream i is kept with probability p_i, independently of all others. So a combination of one row each is kept
with P = Π p_i, and

    T̂ = Σ y / P                                     is unbiased for the sum of y over all combinations
    V̂ = − Σ_{S ≠ ∅} Π_{i ∈ S} (p_i − 1) · Q_S / P²    is unbiased for its variance

Q_S runs over every choice of rows on the inputs in S. It adds up the squares of the sums of y over the combinations
with those rows, because two combinations depend on each other through the rows they share. COUNT is the sum of ones.
AVG is the ratio of two such sums, with the variance of its residuals y − R̂. MIN and MAX of kept rows are bounds, not
estimates.

Rows that are equal in every column are kept or shed together, so a row is identified by its identity hash. Two inputs
that read the same stream are sampled together. There only the terms of single rows are used, which makes the interval
slightly wider than necessary.

References: Horvitz, Thompson, "A generalization of sampling without replacement from a finite universe", 1952; Haas,
Hellerstein, "Ripple joins for online aggregation", 1999.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from watersmeet.errors import InternalError

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class SampledInput:
    """One sampled input: its stream, the kept share of the stream, and the identity of its row in each combination.

    If rows are kept at different shares, `keep` has one share per combination. A row has the same share in all its
    combinations.
    """

    stream: str
    keep: float | Floats
    rows: Int64s

    @property
    def keeps(self) -> Floats:
        """Share at which the row of each combination is kept."""
        return np.broadcast_to(np.asarray(self.keep, np.float64), self.rows.shape)

    @property
    def is_sampled(self) -> bool:
        """Whether some rows are shed."""
        return bool(np.any(np.asarray(self.keep) < 1))


@dataclass(frozen=True, slots=True)
class Estimates:
    """An estimate per group, with its standard error."""

    values: Floats
    stderrs: Floats


@dataclass(frozen=True)
class SharedRowTerm:
    """One Q_S: combinations, the choice of rows on the inputs of S in each, and group and factor per choice."""

    combination: Int64s
    choice: Int64s
    owner: Int64s
    factor: Floats


@dataclass(frozen=True)
class SampledJoin:
    """Combinations of kept rows: their groups (0 … groups − 1) and the rows they consist of.

    Inputs that keep all rows may be omitted.

    >>> rows = np.array([1, 1, 2])
    >>> sampled = SampledJoin(np.zeros(3, np.int64), 1, (SampledInput("a", 0.5, rows),))
    >>> count = sampled.estimate_count()
    >>> count.values.tolist(), round(float(count.stderrs[0]) ** 2, 6)
    ([6.0], 10.0)
    """

    group: Int64s
    groups: int
    inputs: tuple[SampledInput, ...]
    _shared_terms: list[SharedRowTerm] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if any(each.rows.size != self.group.size for each in self.inputs):
            raise InternalError("every combination has a row on every input")

    @property
    def weights(self) -> Floats:
        """Number of combinations that each one represents: one over its probability of being kept."""
        chance = np.ones(self.group.size)
        for place, each in enumerate(self.inputs):
            same = [other for other in self.inputs[:place] if other.stream == each.stream]
            first = _find_first_occurrences([*same, each], len(same))
            chance[first] *= each.keeps[first]  # a row on two inputs is kept or shed once
        return 1 / chance

    def estimate_count(self) -> Estimates:
        """Estimate the number of combinations per group."""
        return self.estimate_sum(np.ones(self.group.size))

    def estimate_sum(self, values: Floats, present: Bools | None = None) -> Estimates:
        """Estimate the sum of a value over the combinations that have one."""
        _, weighted = self._weight_values(values, present)
        return Estimates(self._sum_by_group(weighted), np.sqrt(self._estimate_variances(weighted)))

    def estimate_mean(self, values: Floats, present: Bools | None = None) -> Estimates:
        """Estimate the mean of a value over the combinations that have one; NaN if none has."""
        weights, weighted = self._weight_values(values, present)
        size = self._sum_by_group(weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = self._sum_by_group(weighted) / size
            residuals = weighted - np.where(size > 0, ratio, 0.0)[self.group] * weights
            return Estimates(ratio, np.sqrt(self._estimate_variances(residuals)) / size)

    def _weight_values(self, values: Floats, present: Bools | None) -> tuple[Floats, Floats]:
        weights = self.weights
        if present is None:
            return weights, values * weights
        return np.where(present, weights, 0.0), np.where(present, values * weights, 0.0)

    def _sum_by_group(self, weighted: Floats) -> Floats:
        return np.asarray(np.bincount(self.group, weighted, self.groups), np.float64)

    def _estimate_variances(self, weighted: Floats) -> Floats:
        """Return V̂ per group. An unbiased estimate of a small variance can be negative; it is raised to zero."""
        total = np.zeros(self.groups)
        for each in self._list_shared_terms():
            sums = np.bincount(each.choice, weighted[each.combination], each.owner.size)
            total += np.bincount(each.owner, each.factor * sums**2, self.groups)
        return np.maximum(total, 0.0)

    def _list_shared_terms(self) -> list[SharedRowTerm]:
        if not self._shared_terms:
            reads_stream_twice = len({each.stream for each in self.inputs}) < len(self.inputs)
            self._shared_terms.extend(self._terms_by_stream() if reads_stream_twice else self._terms_by_subset())
        return self._shared_terms

    def _terms_by_subset(self) -> Iterator[SharedRowTerm]:
        everything = np.arange(self.group.size)
        thinned = [each for each in self.inputs if each.is_sampled]
        for size in range(1, len(thinned) + 1):
            for chosen in combinations(thinned, size):
                factor = -np.prod([each.keeps - 1 for each in chosen], axis=0)
                yield _build_shared_term(everything, self.group, [each.rows for each in chosen], factor)

    def _terms_by_stream(self) -> Iterator[SharedRowTerm]:
        """Yield the terms of single rows; a row counts once per combination, however many inputs it appears in."""
        for stream in {each.stream: None for each in self.inputs if each.is_sampled}:
            places = [each for each in self.inputs if each.stream == stream]
            first = [_find_first_occurrences(places, number) for number in range(len(places))]
            rows = np.concatenate([each.rows[chosen] for each, chosen in zip(places, first, strict=True)])
            keeps = np.concatenate([each.keeps[chosen] for each, chosen in zip(places, first, strict=True)])
            combination = np.concatenate(first)
            yield _build_shared_term(combination, self.group[combination], [rows], 1 - keeps)


def _build_shared_term(combination: Int64s, group: Int64s, columns: Sequence[Int64s], factor: Floats) -> SharedRowTerm:
    """Assign numbers to the distinct choices of group and rows; all combinations of a choice have the same factor."""
    codes = group
    for column in columns:
        _, rows = np.unique(column, return_inverse=True)
        width = int(rows.max(initial=0)) + 1
        _, codes = np.unique(codes * width + rows, return_inverse=True)
    choices = int(codes.max(initial=-1)) + 1
    owner, factors = np.zeros(choices, np.int64), np.zeros(choices)
    owner[codes], factors[codes] = group, factor
    return SharedRowTerm(combination, codes, owner, factors)


def _find_first_occurrences(places: Sequence[SampledInput], number: int) -> Int64s:
    """Return the combinations whose row on this input appears on no earlier input of the same stream."""
    fresh = np.ones(places[number].rows.size, np.bool_)
    for other in places[:number]:
        fresh &= other.rows != places[number].rows
    return np.flatnonzero(fresh)
