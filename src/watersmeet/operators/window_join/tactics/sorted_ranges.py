"""The tactic "sorted-ranges": grouped runs whose rows are also sorted by value, for bands and inequalities.

It searches like "runs". Where a step has ranges, a probe first finds the places of its key and time bounds in the run.
Then it searches both bounds of the value in the blocks of these places (`kernels.range_search`). Ranges of further
values skip zones of a block. Steps without a range probe the run.

Blocks are chosen by cost from a sample of probes. Small blocks cost a search each. Large blocks have candidates outside
the time bounds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import null_array
from watersmeet.algebra.expressions import Column, Expr, sources_of
from watersmeet.algebra.plan import Plan
from watersmeet.errors import InternalError
from watersmeet.kernels.gather import gather_int64
from watersmeet.kernels.grouped_run import count_matches
from watersmeet.kernels.range_search import (
    ZONE_BITS,
    build_extremes,
    build_zones,
    fill_range_matches,
    sort_blocks,
    zone_starts,
)
from watersmeet.operators import parallel
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.window_join.config import JoinConfig, ProbeStep
from watersmeet.operators.window_join.join_predicates import fill_with_zero
from watersmeet.operators.window_join.matches import PIECE_ROWS, PartialMatches
from watersmeet.operators.window_join.pane import GroupedRun, Int32s, Int64s, Pane, Panes, build_run
from watersmeet.operators.window_join.range_conditions import (
    HIGHEST,
    LOWEST,
    Extent,
    InferType,
    RangeCondition,
    encode_range,
    find_range_conditions,
    fits_sums,
    measure_extent,
    tighten_range,
)
from watersmeet.operators.window_join.tactics.grouped_runs import (
    CountWork,
    add_target,
    extend_by_run,
    find_time_bounds,
    list_reaches,
    search_origins,
)
from watersmeet.operators.window_join.tactics.tactic import (
    PER_ORIGIN,
    DerivedState,
    OpenParts,
    Reach,
    Search,
    Tactic,
    refuse_options,
)
from watersmeet.operators.window_join.work_counters import WorkCounters

#: Probes and rows that the choice of blocks looks at.
_SAMPLED_PROBES, _SAMPLED_ROWS = 128, 1024
#: Cost of a search in a block, in tested entries.
_SEARCH_ENTRIES = 12.0
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 64, 1 << 20

Ranges = tuple[tuple[Expr, tuple[RangeCondition, ...]], ...]


@dataclass(frozen=True)
class RangeCodes:
    """Order-preserving codes of an expression in a pane: of the rows that have a value, or None if they do not fit."""

    codes: Int64s | None
    valid: NDArray[np.bool_] | None  # None: all rows
    extent: Extent


@dataclass(frozen=True)
class SortedRun:
    """A grouped run, and its places in blocks sorted by value; zones of the other values."""

    run: GroupedRun
    order: tuple[int, ...]  # numbers of the values, the one that sorts first
    block_rows: int
    values: Int64s  # by place
    ordered: Int64s
    places: Int32s
    others: NDArray[np.int64]
    zone_lows: NDArray[np.int64]
    zone_highs: NDArray[np.int64]
    levels: Int64s
    largest: NDArray[np.int64]
    smallest: NDArray[np.int64]


def compile_plan(config: JoinConfig, plan: Plan) -> Search:
    """Check that the plan has no option of another algorithm, and return the search."""
    refuse_options(plan, "indexes", "evaluate_us", "expire_us", "cleanup_rows")
    return search_sorted_ranges


def list_range_conditions(config: JoinConfig) -> tuple[RangeCondition, ...]:
    """Return the range conditions of all predicates between inputs."""
    infer = _infer_from(config)
    return tuple(each for predicate in config.classes.residuals for each in find_range_conditions(predicate, infer))


def _infer_from(config: JoinConfig) -> InferType:
    fields = {each.alias: each.fields for each in config.inputs}

    def empty_column(column: Column) -> pa.Array[Any]:
        if column.source is None:
            raise InternalError(f'column "{column.name}" was never bound')
        return null_array(0, fields[column.source].field(column.name).type)

    def infer(expr: Expr) -> pa.DataType:
        kind: pa.DataType = evaluate(expr, empty_column, 0).type
        return kind

    return infer


def search_sorted_ranges(
    config: JoinConfig,
    old: list[tuple[Pane, ...]],
    new: dict[int, Pane],
    tally: WorkCounters,
    derived: DerivedState,
) -> Iterator[tuple[Reach, PartialMatches]]:
    """Yield the matches of each origin in turn, found by sorted ranges where a step has one."""
    search = RangeSearch(list_range_conditions(config))
    yield from search_origins(config, list_reaches(config, old, new, derived), tally, search.extend)


@dataclass
class RangeSearch:
    """The conditions of a query. Threads that grow pieces share it, and one of them builds an access path."""

    conditions: tuple[RangeCondition, ...]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def extend(
        self, config: JoinConfig, reach: Reach, bound: PartialMatches, step: ProbeStep, count: CountWork, more: bool
    ) -> Iterator[tuple[PartialMatches, tuple[Expr, ...]]]:
        """Yield the matches extended by the target's rows inside the ranges, the key and the time bounds."""
        ranges = self._usable_ranges(config, reach, bound, step)
        if not ranges:
            yield from extend_by_run(config, reach, bound, step, count, more)
            return
        lows, highs = _find_bounds(config, reach, bound, ranges)
        order = _sort_probes(lows[0], highs[0]) if not step.key_classes and len(bound) > 1 else None
        keys = bound.keys[1] if bound.keys is not None else np.zeros(len(bound), np.int64)
        from_us, until_us = find_time_bounds(config, bound, step.target)
        alive_at = bound.latest if bound.latest is not None else from_us
        probes = (keys, from_us, until_us, alive_at)
        checks = _remaining_checks(step, ranges)
        panes, searching = reach[step.target], bound if order is None else bound.repeat(order)
        count(step.target, len(bound), 0, 0)
        for number, pane in enumerate(panes.panes):
            path = self._sorted_run(pane, step.key_classes, ranges, probes, lows, highs)
            if path is not None:
                for parents, matches in _fill_pieces(
                    path, int(panes.bases[number]), probes, lows, highs, order, step.target, count
                ):
                    yield add_target(config, panes, searching, parents, step.target, matches, more), checks

    def _usable_ranges(self, config: JoinConfig, reach: Reach, bound: PartialMatches, step: ProbeStep) -> Ranges:
        """Return the conditions that bound the target by bound inputs, by the target's value."""
        alias = config.inputs[step.target].alias
        usable: dict[Expr, tuple[RangeCondition, ...]] = {}
        for predicate in step.checks:
            oriented = [each.orient_to(alias) for each in self.conditions if each.predicate == predicate]
            found = [each for each in oriented if each is not None]
            if found and all(_is_usable(config, reach, bound, step.target, each) for each in found):
                for each in found:
                    usable[each.left] = (*usable.get(each.left, ()), each)
        return tuple(usable.items())

    def _sorted_run(
        self,
        pane: Pane,
        classes: tuple[int, ...],
        ranges: Ranges,
        probes: tuple[Int64s, Int64s, Int64s, Int64s],
        lows: NDArray[np.int64],
        highs: NDArray[np.int64],
    ) -> SortedRun | None:
        """Return the access path of a pane, built at the first call; None if no row has all values."""
        key = (classes, tuple(expr for expr, _ in ranges))
        with self._lock:
            if key not in pane.sorted_runs:
                pane.sorted_runs[key] = _build_sorted_run(pane, classes, key[1], probes, lows, highs)
            path = pane.sorted_runs[key]
        if path is not None and not isinstance(path, SortedRun):
            raise InternalError("an access path of another kind")
        return path


def _remaining_checks(step: ProbeStep, ranges: Ranges) -> tuple[Expr, ...]:
    """Return the predicates of a step that the ranges do not decide."""
    decided = {each.predicate for _, conditions in ranges for each in conditions if each.is_exact}
    return tuple(check for check in step.checks if check not in decided)


def _is_usable(config: JoinConfig, reach: Reach, bound: PartialMatches, target: int, condition: RangeCondition) -> bool:
    (provider,) = (config.aliases[alias] for alias in sources_of(condition.right))
    if provider not in bound.rows:
        return False
    extents = []
    for number, expr in ((target, condition.left), (provider, condition.right)):
        found = [encode_pane(pane, expr) for pane in reach[number].panes]
        if any(each.codes is None for each in found):
            return False
        extent = Extent()
        for each in found:
            extent = extent.union(each.extent)
        extents.append(extent)
    return fits_sums(condition, *extents)


def encode_pane(pane: Pane, expr: Expr) -> RangeCodes:
    """Return the codes of an expression in a pane, computed at the first call. Rows without a value have code 0."""
    key = ("codes", expr)
    found = pane.sorted_runs.get(key)
    if found is None:
        values = evaluate(expr, lambda column: pane.columns[column.name], len(pane))
        valid = None
        if values.null_count:
            valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        codes = encode_range(fill_with_zero(values))
        is_float = pa.types.is_floating(values.type)
        extent = Extent() if codes is None else measure_extent(codes, is_float=is_float)
        found = pane.sorted_runs[key] = RangeCodes(codes, valid, extent)
    if not isinstance(found, RangeCodes):
        raise InternalError("codes of another kind")
    return found


def _require_codes(pane: Pane, expr: Expr) -> Int64s:
    codes = encode_pane(pane, expr).codes
    if codes is None:
        raise InternalError("a range over values without codes")
    return codes


def _find_bounds(
    config: JoinConfig, reach: Reach, bound: PartialMatches, ranges: Ranges
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the inclusive bounds of each value of the target, by value and partial match."""
    lows = np.full((len(ranges), len(bound)), LOWEST, np.int64)
    highs = np.full((len(ranges), len(bound)), HIGHEST, np.int64)
    for k, (_, conditions) in enumerate(ranges):
        for each in conditions:
            (provider,) = (config.aliases[alias] for alias in sources_of(each.right))
            codes, valid = _gather_codes(reach[provider], each.right, bound.rows[provider])
            tighten_range(each, codes, lows[k], highs[k])
            if valid is not None:
                lows[k, ~valid], highs[k, ~valid] = HIGHEST, LOWEST
    empty = (lows > highs).any(axis=0)
    if empty.any():
        lows[:, empty], highs[:, empty] = HIGHEST, LOWEST
    return lows, highs


def _gather_codes(panes: Panes, expr: Expr, rows: Int32s) -> tuple[Int64s, NDArray[np.bool_] | None]:
    """Return the codes of some rows, and which of them have a value (None: all)."""
    found = [encode_pane(pane, expr) for pane in panes.panes]
    parts = [_require_codes(pane, expr) for pane in panes.panes]
    codes = gather_int64(parts[0] if len(parts) == 1 else np.concatenate(parts), rows)
    if all(each.valid is None for each in found):
        return codes, None
    masks = [
        np.ones(len(pane), np.bool_) if each.valid is None else each.valid
        for pane, each in zip(panes.panes, found, strict=True)
    ]
    return codes, np.concatenate(masks)[rows]


def _sort_probes(lows: Int64s, highs: Int64s) -> Int32s:
    """Return the probes in the order of a bound, so that neighbours search the same part of a block."""
    bounds = highs if lows[0] == LOWEST and lows[-1] == LOWEST else lows
    ordered, places = np.empty(bounds.size, np.int64), np.empty(bounds.size, np.int32)
    sort_blocks(np.ascontiguousarray(bounds), bounds.size, 0, 1, ordered, places)
    return places


def _build_sorted_run(
    pane: Pane,
    classes: tuple[int, ...],
    exprs: tuple[Expr, ...],
    probes: tuple[Int64s, Int64s, Int64s, Int64s],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
) -> SortedRun | None:
    masks = [each.valid for each in (encode_pane(pane, expr) for expr in exprs) if each.valid is not None]
    run = pane.run(classes)
    if masks:
        run = build_run(pane, classes, np.flatnonzero(np.logical_and.reduce(masks)).astype(np.int32))
    if not run.rows.size:
        return None
    values = [gather_int64(_require_codes(pane, expr), run.rows) for expr in exprs]
    order, block_rows = _choose_blocks(run, values, probes, lows, highs)
    main, others = values[order[0]], [values[k] for k in order[1:]]
    ordered, places = _sort_in_parallel(main, block_rows)
    zones = [build_zones(each, places) for each in others]
    extremes = [build_extremes(each, places, block_rows) for each in others]
    entries = main.size if others else 0
    levels = zone_starts(main.size)
    width = int(levels[-1]) if others else 0
    return SortedRun(
        run,
        order,
        block_rows,
        main,
        ordered,
        places,
        np.array(others, np.int64).reshape(len(others), entries),
        np.array([low for low, _ in zones], np.int64).reshape(len(others), width),
        np.array([high for _, high in zones], np.int64).reshape(len(others), width),
        levels,
        np.array([largest for largest, _ in extremes], np.int64).reshape(len(others), entries),
        np.array([smallest for _, smallest in extremes], np.int64).reshape(len(others), entries),
    )


def _sort_in_parallel(values: Int64s, block_rows: int) -> tuple[Int64s, Int32s]:
    ordered, places = np.empty(values.size, np.int64), np.empty(values.size, np.int32)
    blocks = -(-values.size // block_rows)
    parts = np.unique(np.linspace(0, blocks, min(blocks, 8) + 1).astype(np.int64)).tolist()
    parallel.parallel_map(
        lambda part: sort_blocks(values, block_rows, part[0], part[1], ordered, places),
        list(pairwise(parts)),
        values.size,
    )
    return ordered, places


def _choose_blocks(
    run: GroupedRun,
    values: list[Int64s],
    probes: tuple[Int64s, Int64s, Int64s, Int64s],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
) -> tuple[tuple[int, ...], int]:
    """Choose the value that sorts blocks, the most selective one, and the rows of a block.

    A probe of m places searches m/B + 1 blocks of B rows, and tests a share s of m + B entries. So the best B is
    √(c·m/s), if a search costs as much as c tests.
    """
    chosen = np.unique(np.linspace(0, lows.shape[1] - 1, _SAMPLED_PROBES).astype(np.int64))
    rows = np.unique(np.linspace(0, values[0].size - 1, _SAMPLED_ROWS).astype(np.int64))
    inside = [
        (lows[k, chosen, None] <= value[rows]) & (value[rows] <= highs[k, chosen, None])
        for k, value in enumerate(values)
    ]
    order = tuple(sorted(range(len(values)), key=lambda k: (float(inside[k].mean()), k)))
    share = max(float(np.logical_and.reduce(inside).mean()), 0.5 / (chosen.size * rows.size))
    keys, from_us, until_us, alive_at = (np.ascontiguousarray(each[chosen]) for each in probes)
    first, count = np.empty(chosen.size, np.int64), np.empty(chosen.size, np.int32)
    places = count_matches(
        run.slots, run.group_keys, run.offsets, run.times, run.ends, keys, from_us, until_us, alive_at, first, count
    )
    best = math.sqrt(_SEARCH_ENTRIES * max(places / chosen.size, 1.0) / share)
    zones = 1 << (2 * ZONE_BITS) if len(values) > 1 else _MIN_BLOCK_ROWS
    bits = round(math.log2(min(max(best, zones), _MAX_BLOCK_ROWS)))
    return order, 1 << bits


def _fill_pieces(
    path: SortedRun,
    base: int,
    probes: tuple[Int64s, Int64s, Int64s, Int64s],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    probe_order: Int32s | None,
    target: int,
    count: CountWork,
) -> Iterator[tuple[Int32s, Int32s]]:
    """Yield (probe, row) of all matches in one pane, in pieces of at most `PIECE_ROWS`, or of one probe.

    Places are found in the order of arrival, in which neighbours have similar times. Values are searched in the order
    of `probe_order`, which numbers the probes.
    """
    run, size = path.run, probes[0].size
    first, places = np.empty(size, np.int64), np.empty(size, np.int32)
    total = count_matches(run.slots, run.group_keys, run.offsets, run.times, run.ends, *probes, first, places)
    if not total:
        return
    order = np.array(path.order)
    lows, highs = np.ascontiguousarray(lows[order]), np.ascontiguousarray(highs[order])
    if probe_order is not None:
        first, places = first[probe_order], places[probe_order]
        lows, highs = (np.ascontiguousarray(each[:, probe_order]) for each in (lows, highs))
    near = np.zeros(4 * (-(-path.ordered.size // path.block_rows)), np.int64)
    capacity = min(total, PIECE_ROWS)
    progress = np.zeros(2, np.int64)
    probe = 0
    while probe < size:
        parents, matches = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        following = fill_range_matches(
            path.values,
            path.ordered,
            path.places,
            path.block_rows,
            path.others,
            path.zone_lows,
            path.zone_highs,
            path.levels,
            path.largest,
            path.smallest,
            run.rows,
            first,
            places,
            lows,
            highs,
            base,
            probe,
            near,
            parents,
            matches,
            progress,
        )
        filled = int(progress[0])
        count(target, 0, int(progress[1]), 0)
        if following == probe:
            capacity *= 2  # the matches of a single probe did not fit
            continue
        probe = following
        if filled:
            yield parents[:filled].copy(), matches[:filled].copy()


SORTED_RANGES = Tactic("sorted-ranges", "sorted ranges, ours", compile_plan, OpenParts(PER_ORIGIN), kernel_thetas=False)
TACTICS = (SORTED_RANGES,)
