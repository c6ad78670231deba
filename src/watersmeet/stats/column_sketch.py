"""What a few kilobytes remember of a column: how many values it has and how frequent the most frequent one is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import datasketches as ds  # type: ignore[import-untyped] # it publishes no type information
import numpy as np

from watersmeet.errors import InternalError
from watersmeet.stats.estimate import Estimate, Provenance
from watersmeet.stats.values import ValueCounts

#: 4096 registers: a standard error of 1.04/√4096, about 1.6 %.
_LG_REGISTERS = 12
#: 768 counters: counts are short by at most 0.35 % of the rows.
_LG_COUNTERS = 10
#: Values per batch that are counted at all; one left out has at most 1/128 of the rows looked at.
_COUNTED_VALUES = 128
#: With more values than this per row looked at, the sketch's own error is as large as what the correction goes by.
_MOSTLY_ONCE = 0.9
#: Values with at least this share of the rows are in every sample, so no correction is for them.
_FREQUENT_SHARE = 0.01


def _new_registers() -> Any:
    return ds.hll_sketch(_LG_REGISTERS, ds.tgt_hll_type.HLL_8)


def _new_counters() -> Any:
    return ds.frequent_strings_sketch(_LG_COUNTERS)


@dataclass(slots=True)
class ColumnSketch:
    """A HyperLogLog sketch of the values and a frequent items sketch of their counts, both mergeable.

    `rows` were seen, about `valued` of them not null, and `sampled` of those were looked at; in batches that are sampled, each row looked
    at counts for as many as it stands for.

    References: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog", 2007; Anderson et al., "A High-Performance Algorithm for Identifying
    Frequent Items in Data Streams", 2017; Apache DataSketches.
    """

    rows: int = 0
    valued: int = 0
    sampled: int = 0
    registers: Any = field(default_factory=_new_registers)
    counters: Any = field(default_factory=_new_counters)

    def update(self, counts: ValueCounts, rows: int, looked_at: int) -> None:
        """Takes in a batch of `rows` rows, of which `looked_at` gave these counts."""
        scale = rows / looked_at
        self.rows += rows
        self.valued += round(counts.rows * scale)
        self.sampled += counts.rows
        items = counts.items()
        add = self.registers.update
        for item in items:
            add(item)
        places = _most_frequent(counts)
        for place, weight in zip(places, np.rint(counts.counts[places] * scale).astype(np.int64).tolist(), strict=True):
            self.counters.update(str(items[place]), weight)

    def merged(self, other: ColumnSketch) -> ColumnSketch:
        union = ds.hll_union(_LG_REGISTERS)
        union.update(self.registers)
        union.update(other.registers)
        counters = ds.frequent_strings_sketch.deserialize(self.counters.serialize())
        counters.merge(other.counters)
        return ColumnSketch(
            rows=self.rows + other.rows,
            valued=self.valued + other.valued,
            sampled=self.sampled + other.sampled,
            registers=union.get_result(ds.tgt_hll_type.HLL_8),
            counters=counters,
        )

    @property
    def distinct(self) -> Estimate | None:
        """Distinct values, nulls aside; None when there was no value."""
        if not self.valued:
            return None
        seen = float(self.registers.get_estimate())
        if self.sampled >= self.valued:
            return Estimate(_whole(seen, self.valued), Provenance.MEASURED, "sketched, give or take 1.6 %")
        rough = "; rough, since hardly a value came twice" if seen > _MOSTLY_ONCE * self.sampled else ""
        note = f"sketched from {self.sampled} of {self.valued} values, corrected as if all but the frequent were equally frequent{rough}"
        return Estimate(_whole(self._corrected(seen), self.valued), Provenance.MEASURED, note)

    @property
    def hot_share(self) -> Estimate | None:
        """The most frequent value's share of the values: the sketch's lower bound, exact up to 128 values when nothing is sampled."""
        if (distinct := self.distinct) is None:
            return None
        share = min(1.0, max(max(self._shares(), default=0.0), 1 / distinct.value))
        return Estimate(share, Provenance.MEASURED, "sketched, short by at most 1.2 % of the rows looked at")

    @property
    def null_share(self) -> Estimate | None:
        return Estimate(max(0.0, 1 - self.valued / self.rows), Provenance.MEASURED) if self.rows else None

    def blobs(self) -> tuple[bytes, bytes]:
        return bytes(self.registers.serialize_compact()), bytes(self.counters.serialize())

    @classmethod
    def of_blobs(cls, rows: int, valued: int, sampled: int, blobs: tuple[bytes, bytes]) -> ColumnSketch:
        return cls(rows, valued, sampled, ds.hll_sketch.deserialize(blobs[0]), ds.frequent_strings_sketch.deserialize(blobs[1]))

    def _shares(self) -> list[float]:
        """At least how frequent each counted value is."""
        found = self.counters.get_frequent_items(ds.frequent_items_error_type.NO_FALSE_NEGATIVES)
        return [lower / self.valued for _, _, lower, _ in found]

    def _corrected(self, seen: float) -> float:
        """Frequent values are counted as they are; the others, and the rows left to them, go through the correction."""
        frequent = [share for share in self._shares() if share >= _FREQUENT_SHARE]
        rest = max(0.0, 1 - math.fsum(frequent))
        others = seen - len(frequent)
        if others < 0.5 or rest * self.sampled < 1:
            return seen
        return len(frequent) + unsampled_distinct(others, rest * self.sampled, rest * self.valued)


def unsampled_distinct(seen: float, sampled: float, population: float) -> float:
    """The D for which a sample of n rows shows `seen` values, all being equally frequent: seen = D · (1 − e^(−n/D)).

    At most the population, which is the answer wherever the sample shows hardly a value twice. The right side grows with D, so halving
    finds it. Values of unequal frequency make it too low.

    >>> round(unsampled_distinct(100, 10_000, 1_000_000)), round(unsampled_distinct(9_999, 10_000, 100_000))
    (100, 100000)
    """
    low, high = seen, population
    if low >= high:
        return population
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if -middle * math.expm1(-sampled / middle) < seen else (low, middle)
    return high


def _whole(count: float, most: int) -> float:
    if count < 0 or most < 1:
        raise InternalError(f"a sketch of {most} values counts {count} different ones")
    return float(min(most, max(1, round(count))))


def _most_frequent(counts: ValueCounts) -> list[int]:
    if len(counts.counts) <= _COUNTED_VALUES:
        return list(range(len(counts.counts)))
    places: list[int] = np.argpartition(-counts.counts, _COUNTED_VALUES)[:_COUNTED_VALUES].tolist()
    return places
