"""What a query's streams look like to the cost model: rates, rows held, matches per probe; each number with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.algebra.expressions import Column, columns_of
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US, LandmarkWindow, RangeWindow, RowsWindow, TumbleWindow
from watersmeet.errors import InternalError
from watersmeet.operators.meet.config import MeetConfig, MeetInput
from watersmeet.stats.estimate import Estimate, Provenance, derived
from watersmeet.stats.selectivity import selectivity
from watersmeet.stats.stream_stats import StreamStats

_US = 1e6

#: How long a window without end is taken to have grown when its state is asked for.
LANDMARK_S = 86_400.0


@dataclass(frozen=True, slots=True)
class InputEstimate:
    """One input as the cost model sees it. Relations have a rate of zero and hold all their rows."""

    alias: str
    rows_per_s: Estimate  # as they arrive
    kept_per_s: Estimate  # after the predicates that read this input alone
    held_rows: Estimate  # rows in the window
    row_bytes: Estimate
    distinct: Mapping[int, Estimate]  # by equality class


@dataclass(frozen=True, slots=True)
class Workload:
    """All inputs of a query, and how selective what joins them is."""

    inputs: tuple[InputEstimate, ...]
    residual: Estimate  # the share of combinations that the predicates no class covers let through
    gaps_us: tuple[tuple[int, ...], ...]
    _matches: dict[tuple[frozenset[int], int], float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def streams(self) -> list[int]:
        return [i for i, each in enumerate(self.inputs) if each.rows_per_s.value > 0]

    def matches(self, config: MeetConfig, known: frozenset[int], target: int) -> float:
        """Rows of the target that one combination of the known inputs meets, on average.

        Containment of value sets: of two attributes with v and w distinct values, a pair of rows is equal with probability 1 / max(v, w).

        References: Golab, Özsu, section 4.2.
        """
        found = self._matches.get((known, target))
        if found is None:
            found = self._matches[known, target] = self._matching_rows(config, known, target)
        return found

    def _matching_rows(self, config: MeetConfig, known: frozenset[int], target: int) -> float:
        rows = self._reachable_rows(config, known, target)
        for key_class, members in enumerate(config.classes.keys):
            providers = [self.inputs[i].distinct[key_class].value for i in known if i in members]
            if target in members and providers:
                rows /= max(min(providers), self.inputs[target].distinct[key_class].value, 1.0)
        return rows

    def _reachable_rows(self, config: MeetConfig, known: frozenset[int], target: int) -> float:
        """Rows of the target inside the time bounds that the known inputs leave of its window."""
        each = self.inputs[target]
        reach_us = min((self.gaps_us[target][i] for i in known if config.inputs[i].is_stream), default=FOREVER_US)
        if not config.inputs[target].is_stream or reach_us >= FOREVER_US:
            return each.held_rows.value
        return min(each.held_rows.value, each.kept_per_s.value * reach_us / _US)


def workload_of(bound: BoundQuery, config: MeetConfig, stats: Mapping[str, StreamStats]) -> Workload:
    """The estimates of a bound query, from statistics by stream name that cover every source."""
    inputs = tuple(_input(bound, config, each, stats[each.name]) for each in config.inputs)

    def distinct(column: Column) -> Estimate:
        if column.source is None:
            raise InternalError(f'column "{column.name}" was never bound')
        return stats[config.inputs[config.aliases[column.source]].name].distinct[column.name]

    residual = derived(1.0)
    for check in config.classes.residuals:
        residual = derived(residual.value * selectivity(check, distinct).value, residual, selectivity(check, distinct))
    return Workload(inputs, residual, config.bounds.later_by_us)


def _input(bound: BoundQuery, config: MeetConfig, source: MeetInput, stats: StreamStats) -> InputEstimate:
    share = Estimate(1.0, Provenance.DERIVED)
    if source.selection is not None:
        share = selectivity(source.selection, lambda column: stats.distinct[column.name])
    rate = stats.rows_per_s if source.is_stream else Estimate(0.0, Provenance.DERIVED, "a relation does not change")
    kept = derived(rate.value * share.value, rate, share)
    held = _held_rows(config, source, kept, share, stats)
    return InputEstimate(source.alias, rate, kept, held, _kept_bytes(source, stats), _class_distinct(source, held, stats))


def _held_rows(config: MeetConfig, source: MeetInput, kept: Estimate, share: Estimate, stats: StreamStats) -> Estimate:
    match source.window:
        case RowsWindow(count, partition_by):
            partitions = 1.0
            for name in partition_by:
                partitions *= stats.distinct[name].value
            return derived(count * partitions * share.value, share)
        case TumbleWindow(length_us):
            return derived(kept.value * length_us / _US / 2, kept)
        case LandmarkWindow():
            return derived(kept.value * LANDMARK_S, kept)
        case RangeWindow() | None:
            if not source.is_stream:
                rows = stats.rows or Estimate(1000.0, Provenance.ASSUMED, "rows of a relation nobody declared")
                return derived(rows.value * share.value, rows, share)
            kept_us = min(source.retention_us, int(LANDMARK_S * _US))
            return derived(kept.value * kept_us / _US, kept)


def _kept_bytes(source: MeetInput, stats: StreamStats) -> Estimate:
    """A kept row: the columns that are read later, a time, and a code per key."""
    whole = max(1, sum(_width(source.fields.field(name).type) for name in source.fields.names))
    kept = sum(_width(source.fields.field(name).type) for name in source.columns)
    return derived(stats.row_bytes.value * kept / whole + 8 * (1 + len(source.keys)), stats.row_bytes)


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 16  # text and other values of no fixed width


def _class_distinct(source: MeetInput, held: Estimate, stats: StreamStats) -> dict[int, Estimate]:
    """Distinct values of each key; an expression over several columns has at most the product of theirs."""
    found: dict[int, Estimate] = {}
    for key_class, expr in source.keys:
        parts = [stats.distinct[column.name] for column in columns_of(expr)]
        product = 1.0
        for part in parts:
            product *= part.value
        found[key_class] = derived(max(product, 1.0), *parts)
    return found
