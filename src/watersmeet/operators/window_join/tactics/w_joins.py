"""The W-joins and their baselines: n streams on a common attribute, every two rows within a window.

NLW-join, HW-join and MW-join take one window for all pairs (form 1 of the paper). Pairs may also have different windows
(its forms 2 and 3), including derived and directed ones. GCA then runs MW-join with the largest window for all, and LCA
with the largest window per stream. Both filter the matches afterwards. NLW-join and HW-join prune by the largest window
per stream and filter as well.

A join on the common attribute alone is one call of its kernel. Other comparisons are made inside the loops. The
remaining predicates are tested between the loops (`StagedScans`), so that no product of windows is built only to be
filtered. The kernel records its scans, and they run one stream at a time: depth first over pieces of bounded size,
breadth first inside a piece. Memory therefore does not depend on the number of matches.

References: Hammad, Aref, Elmagarmid, "Joining multiple data streams with window constraints", sections 3 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr, sources_of
from watersmeet.algebra.plan import DEFAULT_BUCKETS, Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.kernels.wjoin.extend import ThetaComparisons, extend_nested, extend_sweep
from watersmeet.kernels.wjoin.hw_join import hw_join, hw_scans
from watersmeet.kernels.wjoin.mw_join import mw_join, mw_scans
from watersmeet.kernels.wjoin.nlw_join import nlw_join, nlw_scans
from watersmeet.kernels.wjoin.outputs import (
    RecordedScans,
    ScannedRows,
    WindowJoinCounters,
    WindowJoinResult,
    allocate_scans,
)
from watersmeet.kernels.wjoin.ripple_join import ripple_join, ripple_scans, xjoin, xjoin_scans
from watersmeet.operators.expressions import maybe_true
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import (
    PIECE_ROWS,
    PartialMatches,
    drop_out_of_bounds,
    gather_column,
    recheck_matches,
)
from watersmeet.operators.window_join.pane import Int32s, Int64s, Pane, Panes
from watersmeet.operators.window_join.tactics.loop_stages import MAX_MATCHES
from watersmeet.operators.window_join.tactics.nested_loops import OP_CODES, choose_indexes
from watersmeet.operators.window_join.tactics.tactic import (
    HASH,
    DerivedState,
    OpenParts,
    Reach,
    Search,
    Tactic,
    refuse,
    refuse_options,
)
from watersmeet.operators.window_join.work_counters import WorkCounters


@dataclass(frozen=True, slots=True)
class WJoinKernel:
    """A kernel that joins, and the kernel that records the scans of the join.

    `is_sweep` is true for the scans of MW-join. `knows_windows` is true if loops visit only rows inside the window.
    """

    join: Callable[..., WindowJoinResult]
    scans: Callable[..., ScannedRows]
    is_sweep: bool = False
    knows_windows: bool = True


NLW, HW, MW = (
    WJoinKernel(nlw_join, nlw_scans),
    WJoinKernel(hw_join, hw_scans),
    WJoinKernel(mw_join, mw_scans, is_sweep=True),
)
RIPPLE, X = (
    WJoinKernel(ripple_join, ripple_scans, knows_windows=False),
    WJoinKernel(xjoin, xjoin_scans, knows_windows=False),
)

#: Reads the kernel arguments of one algorithm from a plan; refuses a plan that the algorithm cannot run.
ReadOptions = Callable[[JoinConfig, Plan], tuple[Int64s | int, ...]]


def _compile_w_join(
    config: JoinConfig,
    plan: Plan,
    *,
    algorithm: WJoinKernel,
    options: ReadOptions,
    needs_one_window: bool,
    prunes_per_stream: bool,
) -> Search:
    refuse_options(plan, "global_order", "orders", "evaluate_us", "expire_us")
    windows = _pair_windows(config, plan)
    largest = windows.max(axis=1)
    window_us = int(largest.max())
    if needs_one_window and np.any(windows[~np.eye(len(windows), dtype=np.bool_)] != window_us):
        raise refuse(plan, "it takes one window for all pairs, and here pairs differ", hint='pin "gca" or "lca"')
    reach_us = largest if prunes_per_stream else np.full(len(windows), window_us, np.int64)
    return partial(_search, WJoinPlan(algorithm, options(config, plan), window_us, reach_us))


def _pair_windows(config: JoinConfig, plan: Plan) -> Int64s:
    """Return the window of every pair, given or derived. A W-join needs one for each pair."""
    if len(config.inputs) < 2:
        raise refuse(plan, "a W-join joins at least two streams")
    if len(config.stream_inputs) < len(config.inputs):
        raise refuse(plan, "a W-join joins streams, and a relation is among the sources")
    later_by = np.array(config.bounds.later_by_us, np.int64)
    windows = np.maximum(later_by, later_by.T)
    if windows.max() >= FOREVER_US or any(each.has_ends for each in config.inputs):
        raise refuse(
            plan,
            "a W-join needs a window in time between every two streams",
            hint="RANGE windows and window constraints give one",
        )
    return windows


@dataclass(frozen=True, slots=True)
class WJoinPlan:
    """A compiled plan: the kernel, its further arguments, the largest window, and how far each stream's rows reach."""

    kernel: WJoinKernel
    options: tuple[Int64s | int, ...]
    window_us: int
    reach_us: Int64s


def _search(
    plan: WJoinPlan,
    config: JoinConfig,
    old: list[tuple[Pane, ...]],
    new: dict[int, Pane],
    tally: WorkCounters,
    derived: DerivedState,
) -> Iterator[tuple[Reach, PartialMatches]]:
    derived.take()
    algorithm, options, window_us, reach_us = plan.kernel, plan.options, plan.window_us, plan.reach_us
    reach = {i: Panes((*panes, new[i]) if len(new[i]) else panes) for i, panes in enumerate(old)}
    if not all(len(panes) for panes in reach.values()):
        return
    rows = _flatten_rows(config, reach, new)
    common = find_common_class(config)
    compared = frozenset() if common is None else frozenset({common})
    if common is not None and not config.residuals and not config.thetas:
        joined = algorithm.join(rows.times, rows.codes, rows.offsets, rows.old, window_us, reach_us, *options)
        _count_work(tally, joined.counters)
        for start in range(0, joined.rows.shape[1], PIECE_ROWS):
            piece = joined.rows[:, start : start + PIECE_ROWS]
            found = PartialMatches({i: rows.numbers[i][piece[i]] for i in range(len(old))}, {}, None, None)
            yield (
                reach,
                recheck_matches(
                    config, reach, drop_out_of_bounds(config, reach, found), compared, (), tally.tested[:1]
                ),
            )
        return
    scans = StagedScans(
        config, reach, rows, np.minimum(reach_us, window_us), tally, algorithm.is_sweep, algorithm.knows_windows
    )
    scanned = algorithm.scans(
        rows.times, rows.codes, rows.offsets, rows.old, window_us, reach_us, *options, scans.scans
    )
    _count_work(tally, scanned.counters)
    for matches in scans.matches(scanned):
        in_bounds = drop_out_of_bounds(config, reach, matches)
        yield reach, recheck_matches(config, reach, in_bounds, compared, scans.final_predicates, tally.tested[:1])


def _count_work(tally: WorkCounters, counters: WindowJoinCounters) -> None:
    for name in ("comparisons", "probes", "touched", "inserts", "expirations"):
        counted = getattr(tally, name)
        counted += getattr(counters, name)


def _flatten_rows(config: JoinConfig, reach: Reach, new: dict[int, Pane]) -> WJoinRows:
    """Return the rows stream by stream: old rows by time, then new rows by time.

    Rows with a NULL in a compared value match nothing and are left out.
    """
    common = find_common_class(config)
    times: list[Int64s] = []
    codes: list[Int64s] = []
    numbers: list[NDArray[np.int32]] = []
    old: list[int] = []
    for each in config.inputs:
        panes = reach[each.number].panes
        stream_times = np.concatenate([pane.times for pane in panes])
        before = stream_times.size - len(new[each.number])
        number = np.concatenate(
            [np.argsort(stream_times[:before], kind="stable"), np.arange(before, stream_times.size)]
        ).astype(np.int32)
        for _, expr in each.ranges:
            number = number[np.concatenate([pane.range_codes(expr)[1] for pane in panes])[number]]
        stream_codes = np.zeros(stream_times.size, np.int64)
        if common is not None:
            stream_codes = np.concatenate([pane.codes[common] for pane in panes])
        times.append(stream_times[number])
        codes.append(stream_codes[number])
        numbers.append(number)
        old.append(int(np.count_nonzero(number < before)))
    return WJoinRows(
        np.concatenate(times),
        np.concatenate(codes),
        np.cumsum([0, *(each.size for each in times)]).astype(np.int64),
        np.array(old, np.int64),
        numbers,
        _encode_thetas(config, reach, numbers),
    )


def _encode_thetas(config: JoinConfig, reach: Reach, numbers: list[NDArray[np.int32]]) -> ThetaComparisons:
    """Return the comparisons that the kernels check, on codes in the kernels' row order."""
    values: list[Int64s] = [np.empty(0, np.int64)]
    starts: dict[int, int] = {}
    at = 0
    for each in config.inputs:
        for column, expr in each.ranges:
            values.append(
                np.concatenate([pane.range_codes(expr)[0] for pane in reach[each.number].panes])[numbers[each.number]]
            )
            starts[column], at = at, at + values[-1].size
    described = [
        (OP_CODES[each.op], each.left, starts[each.left_column], each.right, starts[each.right_column])
        for each in config.thetas
    ]
    op, left, left_at, right, right_at = (np.array([each[place] for each in described], np.int64) for place in range(5))
    return ThetaComparisons(op, left, left_at, right, right_at, np.concatenate(values))


def find_common_class(config: JoinConfig) -> int | None:
    """Return the equality class with a key on every input; without one, every pair in the window is a candidate."""
    return next((c for c, members in enumerate(config.classes.keys) if len(members) == len(config.inputs)), None)


def _no_options(config: JoinConfig, plan: Plan) -> tuple[Int64s | int, ...]:
    refuse_options(plan, "indexes", "cleanup_rows")
    _refuse_other_equalities(config, plan)
    return ()


def _cleanup_options(config: JoinConfig, plan: Plan) -> tuple[Int64s | int, ...]:
    refuse_options(plan, "indexes")
    _refuse_other_equalities(config, plan)
    return (plan.cleanup_rows,)


def _hash_options(config: JoinConfig, plan: Plan) -> tuple[Int64s | int, ...]:
    refuse_options(plan, "cleanup_rows")
    return (_bucket_counts(config, plan),)


def _hash_and_cleanup_options(config: JoinConfig, plan: Plan) -> tuple[Int64s | int, ...]:
    return _bucket_counts(config, plan), plan.cleanup_rows


def _bucket_counts(config: JoinConfig, plan: Plan) -> Int64s:
    if find_common_class(config) is None:
        raise refuse(plan, "it hashes on an attribute that all streams have in common, and there is none")
    indexes = choose_indexes(config, plan, Index("hash", DEFAULT_BUCKETS))
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind != "hash":
            raise refuse(plan, f'it hashes every stream, but the plan gives "{each.alias}" a {index.kind}')
    return np.array([index.size for index in indexes], np.int64)


def _refuse_other_equalities(config: JoinConfig, plan: Plan) -> None:
    """Refuse equalities that no common attribute covers: they would need a product of whole windows."""
    if config.classes.keys and find_common_class(config) is None:
        raise refuse(
            plan, "it joins on one attribute that all streams have in common, and here pairs join on different ones"
        )


def _build_tactic(
    name: str,
    algorithm: WJoinKernel,
    options: ReadOptions,
    *,
    indexes: str | None = None,
    needs_one_window: bool = False,
    prunes_per_stream: bool = True,
) -> Tactic:
    return Tactic(
        name,
        f"Hammad, Aref, Elmagarmid: {name}",
        partial(
            _compile_w_join,
            algorithm=algorithm,
            options=options,
            needs_one_window=needs_one_window,
            prunes_per_stream=prunes_per_stream,
        ),
        OpenParts(indexes=indexes),
    )


TACTICS = (
    _build_tactic("nlw-join", NLW, _no_options),
    _build_tactic("hw-join", HW, _hash_options, indexes=HASH),
    _build_tactic("mw-join", MW, _no_options, needs_one_window=True),
    _build_tactic("gca", MW, _no_options, prunes_per_stream=False),
    _build_tactic("lca", MW, _no_options),
    _build_tactic("ripple-join", RIPPLE, _cleanup_options, prunes_per_stream=False),
    _build_tactic("xjoin", X, _hash_and_cleanup_options, indexes=HASH, prunes_per_stream=False),
)


@dataclass(frozen=True, slots=True)
class WJoinRows:
    """The rows of all streams in kernel layout; `numbers` maps them back to row numbers of the panes."""

    times: Int64s
    codes: Int64s
    offsets: Int64s
    old: Int64s
    numbers: list[Int32s]
    thetas: ThetaComparisons


@dataclass
class StagedScans:
    """The scans of one search, and the predicates to test between them."""

    config: JoinConfig
    reach: Reach
    rows: WJoinRows
    reach_us: Int64s
    tally: WorkCounters
    is_sweep: bool
    knows_windows: bool
    scans: RecordedScans = field(init=False)
    raised: dict[Expr, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scans = allocate_scans(self.rows.times.size, self.rows.old.size)

    @property
    def final_predicates(self) -> tuple[Expr, ...]:
        """Predicates that raised on a partial match; complete matches decide whether the error counts."""
        return tuple(self.raised)

    def matches(self, scanned: ScannedRows) -> Iterator[PartialMatches]:
        """Yield complete matches of the recorded rows in pieces. `final_predicates` are still to be tested on them."""
        recorded = int(self.scans.used[0])
        streams = self.rows.old.size
        for start in range(0, recorded, MAX_MATCHES):
            at = np.arange(start, min(start + MAX_MATCHES, recorded), dtype=np.int32)
            partials = np.zeros((streams + 1, at.size), np.int32)
            partials[self.scans.origin[at], np.arange(at.size)] = self.scans.row[at]
            partials[streams] = at
            yield from self._grow(scanned, partials, 0)

    def _grow(self, scanned: ScannedRows, partials: Int32s, depth: int) -> Iterator[PartialMatches]:
        streams = self.rows.old.size
        for grown in self._extend(scanned, partials, depth):
            passed = self._test(grown, depth)
            if not passed.shape[1]:
                continue
            if depth < streams - 2:
                yield from self._grow(scanned, passed, depth + 1)
            else:
                yield self._to_matches(passed, range(streams))

    def _extend(self, scanned: ScannedRows, partials: Int32s, depth: int) -> Iterator[Int32s]:
        rows, tally, streams = self.rows, self.tally, self.rows.old.size
        extend = extend_sweep if self.is_sweep else extend_nested
        checked_from = 0 if self.knows_windows else streams - 2
        compared = tally.comparisons if self.knows_windows else np.zeros_like(tally.comparisons)
        room = max(MAX_MATCHES, int(np.diff(rows.offsets).max()))
        following = 0
        while following < partials.shape[1]:
            out, touched = np.empty((streams + 1, room), np.int32), tally.touched.copy()
            used, following = extend(
                scanned.times,
                scanned.codes,
                scanned.numbers,
                rows.times,
                rows.codes,
                rows.offsets,
                rows.old,
                self.reach_us,
                self.scans,
                rows.thetas,
                depth,
                checked_from,
                partials,
                following,
                tally.probes,
                tally.touched,
                compared,
                out,
            )
            if not self.knows_windows:  # codes are compared first, the window last
                tally.comparisons += tally.touched - touched
            if used:
                yield np.ascontiguousarray(out[:, :used])

    def _test(self, grown: Int32s, depth: int) -> Int32s:
        """Keep the matches that pass the predicates which the last bound stream completes."""
        if not self.config.residuals:
            return grown
        at = grown[-1]
        bound = (1 << self.scans.origin[at].astype(np.int64)) | (
            1 << self.scans.loops[at, : depth + 1].astype(np.int64)
        ).sum(axis=1)
        kinds = bound * self.rows.old.size + self.scans.loops[at, depth]
        keep = np.ones(at.size, np.bool_)
        for kind in np.unique(kinds).tolist():
            inputs, target = divmod(kind, self.rows.old.size)
            checks = tuple(check for check in self.config.residuals if self._is_bound(check, inputs, target))
            if checks:
                of_kind = np.flatnonzero(kinds == kind)
                keep[of_kind] = self._test_predicates(grown[:, of_kind], inputs, checks)
        return grown if keep.all() else np.ascontiguousarray(grown[:, keep])

    def _is_bound(self, check: Expr, inputs: int, target: int) -> bool:
        read = [self.config.aliases[alias] for alias in sources_of(check)]
        return target in read and all(inputs >> i & 1 for i in read)

    def _test_predicates(self, rows: Int32s, inputs: int, checks: tuple[Expr, ...]) -> NDArray[np.bool_]:
        matches = self._to_matches(rows, [i for i in range(self.rows.old.size) if inputs >> i & 1])
        test = maybe_true(checks, lambda column: gather_column(self.config, self.reach, matches, column), len(matches))
        self.raised |= dict.fromkeys(test.raised)
        self.tally.tested[0] += len(matches)
        return test.keep

    def _to_matches(self, rows: Int32s, inputs: range | list[int]) -> PartialMatches:
        return PartialMatches({i: self.rows.numbers[i][rows[i]] for i in inputs}, {}, None, None)
