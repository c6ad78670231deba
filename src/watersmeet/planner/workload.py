"""Workload of a query as the cost model sees it: arrival pattern, rates, stored rows, matches per probe.

Every number carries its provenance. The arrival pattern is the length of a batch and the length of the stream. It
determines which rows an arriving row can still match.

References: Golab, Özsu, section 3.2: windows are filled before they slide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr, columns_of, conjuncts, sources_of
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US, LANDMARK_US
from watersmeet.errors import InternalError
from watersmeet.operators.expressions.node_kinds import COSTLY_KINDS, list_node_kinds
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.planner.declared_predicates import DeclaredPredicates
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.samples import Samples
from watersmeet.stats.selectivity import estimate_selectivity
from watersmeet.stats.stream_stats import Estimate, Provenance, StreamStats, derive

Floats = NDArray[np.float64]

#: Number of batches, and of positions inside a batch, that averages are taken over.
_BATCHES, _PLACES = 24, 16

#: Batch length if none was measured: typical of Spark's batches and ours.
ASSUMED_BATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class ArrivalPattern:
    """Batches of `batch_s` seconds of stream each, for `horizon_s` seconds in total; infinite for an endless stream."""

    batch_s: float = ASSUMED_BATCH_S
    horizon_s: float = math.inf
    is_assumed: bool = True

    def __post_init__(self) -> None:
        if not (0 < self.batch_s < math.inf and self.horizon_s >= self.batch_s):
            raise InternalError(f"invalid arrival pattern: batches of {self.batch_s} s for {self.horizon_s} s")

    def filled_window_s(self, reach_s: float) -> float:
        """Return the mean filled length of a window of `reach_s` seconds when a row arrives. Windows start empty.

        >>> ten_seconds = ArrivalPattern(batch_s=1, horizon_s=10)
        >>> ten_seconds.filled_window_s(4), ten_seconds.filled_window_s(20)
        (3.2, 5.0)

        """
        if math.isinf(self.horizon_s):
            return reach_s
        return reach_s - reach_s**2 / (2 * self.horizon_s) if reach_s < self.horizon_s else self.horizon_s / 2

    def earlier_batches_s(self, reach_s: float) -> float:
        """Return the seconds of a window that lie in earlier batches, averaged over rows and batches.

        >>> one_batch, endless = ArrivalPattern(batch_s=10, horizon_s=10), ArrivalPattern(batch_s=1)
        >>> one_batch.earlier_batches_s(5), endless.earlier_batches_s(5)
        (0.0, 4.5)

        """
        return _mean_earlier_batches_s(self, reach_s)

    def same_batch_s(self, back_s: float, ahead_s: float) -> float:
        """Return the mean seconds of a row's own batch that are at most `back_s` before or `ahead_s` after it.

        >>> ArrivalPattern(batch_s=10).same_batch_s(2.5, 2.5), ArrivalPattern(batch_s=10).same_batch_s(100, 100)
        (4.375, 10.0)

        """
        return _mean_same_batch_s(self.batch_s, back_s, ahead_s)

    def histories_s(self) -> Floats:
        """Return the seconds of stream before each batch, or before an even sample of the batches."""
        if math.isinf(self.horizon_s):
            return np.array([1e15])
        batches = max(1, round(self.horizon_s / self.batch_s))
        return (
            np.unique(np.linspace(0, batches - 1, min(batches, _BATCHES)).astype(np.int64)).astype(np.float64)
            * self.batch_s
        )


# A search costs thousands of plans over windows of a few lengths.
@lru_cache(maxsize=1 << 12)
def _mean_earlier_batches_s(arrivals: ArrivalPattern, reach_s: float) -> float:
    inside = _sample_positions(arrivals.batch_s)
    history = np.minimum(arrivals.histories_s()[:, None] + inside, reach_s)
    return float(np.maximum(history - inside, 0).mean())


@lru_cache(maxsize=1 << 12)
def _mean_same_batch_s(batch_s: float, back_s: float, ahead_s: float) -> float:
    inside = _sample_positions(batch_s)
    return float((np.minimum(inside, back_s) + np.minimum(batch_s - inside, ahead_s)).mean())


def _sample_positions(length_s: float) -> Floats:
    return (np.arange(_PLACES, dtype=np.float64) + 0.5) * (length_s / _PLACES)


_US = 1e6


@dataclass(frozen=True, slots=True)
class FilterEstimate:
    """A predicate that reads one input: its selectivity on all rows, and its cost per row if that is declared."""

    predicate: Expr
    share: Estimate
    cost_s: Estimate | None = None


@dataclass(frozen=True, slots=True)
class InputEstimate:
    """One input in the cost model. Relations have a rate of zero and hold all their rows."""

    alias: str
    rows_per_s: Estimate  # as they arrive
    kept_per_s: Estimate  # after the predicates that read this input alone
    held_rows: Estimate  # rows in the window
    row_bytes: Estimate
    distinct: Mapping[int, Estimate]  # by equality class
    filters: tuple[FilterEstimate, ...] = ()  # the predicates that read this input alone, in the order of the query


@dataclass(frozen=True, slots=True)
class ResidualPredicate:
    """A predicate over several inputs that no equality class covers, its selectivity, and its cost if declared.

    `costly_kinds` are the kinds of its nodes that cost more than a comparison.
    """

    predicate: Expr
    inputs: frozenset[int]
    share: Estimate
    declared_cost_s: Estimate | None = None
    costly_kinds: tuple[str, ...] = ()

    def check_s(self, profile: Profile) -> float:
        """Return the seconds per candidate: declared, or those of a comparison and of the costly nodes."""
        if self.declared_cost_s is not None:
            return self.declared_cost_s.value
        return profile.check_s + sum(profile.expressions.kind_s(kind) for kind in self.costly_kinds)


@dataclass(frozen=True)
class Workload:
    """All inputs of a query, their arrival pattern, and the selectivity of the predicates that join them."""

    inputs: tuple[InputEstimate, ...]
    residuals: tuple[ResidualPredicate, ...]
    gaps_us: tuple[tuple[int, ...], ...]  # difference bounds D[i][j] (`algebra.time_bounds`)
    arrivals: ArrivalPattern = field(default_factory=ArrivalPattern)
    samples: Samples = field(default_factory=Samples)
    pair_shares: Mapping[tuple[int, int, int], float] = field(default_factory=dict)  # declared: (class, origin, target)
    # How often keys match depends on distinct values only. A copy with other rates keeps that part of what is known.
    _key_shares: dict[tuple[frozenset[int], int], float] = field(default_factory=dict, compare=False, repr=False)
    _matches: dict[tuple[frozenset[int], int], float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _reach: dict[tuple[int, int], float] = field(default_factory=dict, init=False, compare=False, repr=False)
    _filled: dict[int, float] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def streams(self) -> list[int]:
        return [i for i, each in enumerate(self.inputs) if each.rows_per_s.value > 0]

    @property
    def residual(self) -> Estimate:
        """Share of combinations that pass all residual predicates."""
        return derive(math.prod(each.share.value for each in self.residuals), *(each.share for each in self.residuals))

    def matches(self, config: JoinConfig, known: frozenset[int], target: int) -> float:
        """Estimate the rows of the target that match one combination of the known inputs by keys and times.

        The estimate comes from samples, or from the assumption that value sets contain each other. Then two rows, of
        attributes with v and w distinct values, are equal with probability 1 / max(v, w).

        References: Golab, Özsu, section 4.2.
        """
        found = self._matches.get((known, target))
        if found is None:
            found = self._matches[known, target] = self.reachable_rows(config, known, target) * self.key_share(
                config, known, target
            )
        return found

    def key_share(self, config: JoinConfig, known: frozenset[int], target: int) -> float:
        """Estimate the share of the target's rows that have the keys of a combination of the known inputs."""
        found = self._key_shares.get((known, target))
        if found is None:
            found = self._key_shares[known, target] = self._all_classes_share(config, known, target)
        return found

    def _all_classes_share(self, config: JoinConfig, known: frozenset[int], target: int) -> float:
        share = 1.0
        for key_class, members in enumerate(config.classes.keys):
            providers = frozenset(i for i in known if i in members)
            if target in members and providers:
                share *= self.class_share(config, key_class, providers, target)
        return share

    def class_share(self, config: JoinConfig, key_class: int, providers: frozenset[int], target: int) -> float:
        """Estimate the share of the target's rows that have the key of the providers in one equality class.

        A declared selectivity of the equality with one of the providers takes precedence.
        """
        declared = [self.pair_shares[pair] for i in providers if (pair := (key_class, i, target)) in self.pair_shares]
        if declared:
            return min(declared)
        fewest = min(self.inputs[i].distinct[key_class].value for i in providers)
        uniform_share = 1 / max(fewest, self.inputs[target].distinct[key_class].value, 1.0)
        seen = self.samples.estimate_key_match_share(config, key_class, providers, target, uniform_share)
        return uniform_share if seen is None else seen

    def residual_share(self, known: frozenset[int], target: int) -> float:
        """Estimate the share of combinations that pass the residual predicates which the target completes."""
        share = 1.0
        for each in self.residuals:
            if target in each.inputs and each.inputs <= known | {target}:
                share *= each.share.value
        return share

    def fanout(self, config: JoinConfig, known: frozenset[int], target: int) -> float:
        """Estimate the combinations with the target, per combination without it."""
        return self.matches(config, known, target) * self.residual_share(known, target)

    def reachable_rows(self, config: JoinConfig, known: frozenset[int], target: int) -> float:
        """Estimate the rows of the target inside the time bounds of the known inputs when a row arrives."""
        streams = [i for i in known if config.inputs[i].is_stream]
        return min((self._reachable_from(config, i, target) for i in streams), default=self.filled_rows(config, target))

    def filter_share(self, number: int, place: int, tested: frozenset[int]) -> Estimate:
        """Estimate how often a filter of an input holds on the rows that pass the filters tested before it."""
        sample = self.samples.by_input.get(number)
        measured = None if sample is None or not sample.passed else sample.measure_filter(place, tested)
        return self.inputs[number].filters[place].share if measured is None else measured

    def filled_rows(self, config: JoinConfig, number: int) -> float:
        """Estimate the mean rows in a window, while it fills and after."""
        found = self._filled.get(number)
        if found is None:
            each = self.inputs[number]
            rate, found = each.kept_per_s.value, each.held_rows.value
            if config.inputs[number].is_stream and rate:
                found = rate * self.arrivals.filled_window_s(found / rate)
            self._filled[number] = found
        return found

    def _reachable_from(self, config: JoinConfig, known: int, target: int) -> float:
        found = self._reach.get((known, target))
        if found is None:
            each, gap_us = self.inputs[target], self.gaps_us[target][known]
            found = self.filled_rows(config, target)
            if config.inputs[target].is_stream and gap_us < FOREVER_US:
                found = min(found, each.kept_per_s.value * self.arrivals.filled_window_s(length_to_seconds(gap_us)))
            self._reach[known, target] = found
        return found


def estimate_workload(
    bound: BoundQuery,
    config: JoinConfig,
    stats: Mapping[str, StreamStats],
    samples: Samples | None = None,
    arrivals: ArrivalPattern | None = None,
) -> Workload:
    """Estimate the workload of a bound query from statistics by stream name, and from samples if there are any.

    The statistics must cover every source.
    """
    samples, arrivals = samples or Samples(), arrivals or ArrivalPattern()
    every_us = bound.query.every_us
    declared = DeclaredPredicates.resolve(bound, config, stats)
    inputs = tuple(
        _estimate_input(config, each, stats[each.name], samples, arrivals, every_us, declared) for each in config.inputs
    )

    def distinct(column: Column) -> Estimate:
        if column.source is None:
            raise InternalError(f'column "{column.name}" was not bound')
        return stats[config.inputs[config.aliases[column.source]].name].distinct[column.name]

    def column_type(column: Column) -> pa.DataType:
        assert column.source is not None  # `distinct` has looked it up before
        kind: pa.DataType = config.inputs[config.aliases[column.source]].fields.field(column.name).type
        return kind

    checks: list[ResidualPredicate] = []
    for check in config.classes.residuals:
        inputs_read = frozenset(config.aliases[alias] for alias in sources_of(check))
        # Predicates over the same inputs are not independent: they may be the two halves of a band.
        given = tuple(each.predicate for each in checks if each.inputs == inputs_read)
        checks.append(
            ResidualPredicate(
                check,
                inputs_read,
                declared.selectivity(check)
                or samples.estimate_selectivity(config, check, given)
                or estimate_selectivity(check, distinct),
                declared.cost_s(check),
                tuple(kind for kind in list_node_kinds(check, column_type) if kind in COSTLY_KINDS),
            )
        )
    pair_shares = declared.pair_shares(config)
    return Workload(inputs, tuple(checks), config.bounds.later_by_us, arrivals, samples, pair_shares)


def _estimate_input(
    config: JoinConfig,
    source: JoinInput,
    stats: StreamStats,
    samples: Samples,
    arrivals: ArrivalPattern,
    every_us: int | None,
    declared: DeclaredPredicates,
) -> InputEstimate:
    filters = tuple(_estimate_filter(each, stats, declared) for each in conjuncts(source.selection))
    if source.number in samples.by_input:
        share = samples.by_input[source.number].pass_share
    else:
        share = derive(math.prod(each.share.value for each in filters), *(each.share for each in filters))
    rate = stats.rows_per_s if source.is_stream else Estimate(0.0, Provenance.DERIVED, "a relation does not change")
    kept = derive(rate.value * share.value, rate, share)
    held = _estimate_held_rows(source, kept, share, stats, arrivals, every_us)
    return InputEstimate(
        source.alias,
        rate,
        kept,
        held,
        _estimate_stored_bytes(source, stats),
        _estimate_key_distinct(source, held, stats),
        filters,
    )


def _estimate_filter(predicate: Expr, stats: StreamStats, declared: DeclaredPredicates) -> FilterEstimate:
    share = declared.selectivity(predicate) or estimate_selectivity(
        predicate, lambda column: stats.distinct[column.name]
    )
    return FilterEstimate(predicate, share, declared.cost_s(predicate))


def _estimate_held_rows(
    source: JoinInput,
    kept: Estimate,
    share: Estimate,
    stats: StreamStats,
    arrivals: ArrivalPattern,
    every_us: int | None,
) -> Estimate:
    """Estimate the rows in a full window; never more than arrive in total."""
    steady = _estimate_steady_rows(source, kept, share, stats, every_us)
    most = kept.value * arrivals.horizon_s if source.is_stream else math.inf
    return steady if steady.value <= most else derive(most, steady, note="no more than the rows that were read")


def _estimate_steady_rows(
    source: JoinInput, kept: Estimate, share: Estimate, stats: StreamStats, every_us: int | None
) -> Estimate:
    if not source.is_stream:
        rows = stats.rows or Estimate(1000.0, Provenance.ASSUMED, "rows of a relation were not declared")
        return derive(rows.value * share.value, rows, share)
    if source.row_limit is not None:
        partitions = math.prod(stats.distinct[name].value for name in source.row_limit.partition_by)
        return derive(source.row_limit.count * partitions * share.value, share)
    kept_us = min(source.retention_us, LANDMARK_US)
    filled_us = kept_us if source.window is None else source.window.mean_filled_us(kept_us, every_us)
    return derive(kept.value * length_to_seconds(filled_us), kept)


def length_to_seconds(length_us: float) -> float:
    """Convert the length of a time window or a time bound to seconds of stream.

    Both ends are inside. So length 0 covers one instant, a microsecond: it has few rows, but the estimate is never
    zero.

    >>> length_to_seconds(2_500_000), length_to_seconds(0)
    (2.5, 1e-06)

    """
    return max(length_us, 1) / _US


def _estimate_stored_bytes(source: JoinInput, stats: StreamStats) -> Estimate:
    """Estimate the bytes of a stored row.

    It has the columns that are read later, a time, a code per key, and in some windows an end and a sequence number.
    """
    whole = max(1, sum(_type_bytes(source.fields.field(name).type) for name in source.fields.names))
    kept = sum(_type_bytes(source.fields.field(name).type) for name in source.columns)
    numbers = 1 + len(source.keys) + source.has_ends + (source.row_limit is not None)
    return derive(stats.row_bytes.value * kept / whole + 8 * numbers, stats.row_bytes)


def _type_bytes(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 16  # text and other values of no fixed width


def _estimate_key_distinct(source: JoinInput, held: Estimate, stats: StreamStats) -> dict[int, Estimate]:
    """Estimate distinct values of each key; an expression over several columns has at most the product of theirs."""
    found: dict[int, Estimate] = {}
    for key_class, expr in source.keys:
        parts = [stats.distinct[column.name] for column in columns_of(expr)]
        product = 1.0
        for part in parts:
            product *= part.value
        found[key_class] = derive(max(product, 1.0), *parts)
    return found
