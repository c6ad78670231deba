"""The W-joins and their baselines: n streams, every two rows within a window.

NLW-join, HW-join and MW-join take one window for all pairs (form 1 of the paper). Pairs may also have different windows
(its forms 2 and 3), including derived ones. GCA then runs MW-join with the largest window for all, and LCA with the
largest window per stream. Both filter the matches afterwards. NLW-join and HW-join prune by the largest window per
stream and filter as well. GCA also runs on these two: `gca-nlw` and `gca-hw`.

In a path join, windows have a direction (DWINDOW). NLW-join and HW-join then go along the path, away from the new row.
Each chosen row opens a period on one side of it only: `[TSb, TSb + W2]` for the stream that follows b.

A join on one common attribute alone is one call of its kernel. Equalities of some pairs only and other comparisons are
tested inside the loops. The remaining predicates are tested between the loops (`StagedScans`), so that no product of
windows is built only to be filtered. The kernel records its scans, and they run one stream at a time: depth first over
pieces of bounded size, breadth first inside a piece. Memory therefore does not depend on the number of matches.

Buffers are derived from the panes and kept between batches (`live_buffers`).

References: Hammad, Aref, Elmagarmid, "Joining multiple data streams with window constraints", sections 3 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr, sources_of
from watersmeet.algebra.plan import DEFAULT_BUCKETS, Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.kernels.loop_state import LOWEST
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
from watersmeet.kernels.wjoin.ripple_join import ripple_join, ripple_scans
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
from watersmeet.operators.window_join.tactics.live_buffers import BufferLayout, LiveBuffers, resume_buffers
from watersmeet.operators.window_join.tactics.live_rows import RowFinder
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
RIPPLE = WJoinKernel(ripple_join, ripple_scans, knows_windows=False)


@dataclass(frozen=True, slots=True)
class WJoinOptions:
    """Options of a plan that only some algorithms have: an index per stream, and rows between two clean-ups."""

    indexes: tuple[Index, ...] = ()
    further: tuple[int, ...] = ()


#: Reads the options of one algorithm from a plan; refuses a plan that the algorithm cannot run.
ReadOptions = Callable[[JoinConfig, Plan], WJoinOptions]


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
    reach_us = np.minimum(largest if prunes_per_stream else window_us, window_us) * np.ones_like(largest)
    read = options(config, plan)
    layout = BufferLayout(algorithm.is_sweep, read.indexes, find_common_class(config))
    is_path = prunes_per_stream and algorithm.knows_windows and has_direction(config)
    loops = np.array([order_loops(config, i, along_path=is_path) for i in range(len(reach_us))], np.int64)
    exact_us, symmetric_us = np.array(config.bounds.later_by_us, np.int64), np.minimum.outer(reach_us, reach_us)
    later_by_us = exact_us if is_path else symmetric_us
    return partial(_search, WJoinPlan(algorithm, layout, read.further, reach_us, later_by_us, loops))


def has_direction(config: JoinConfig) -> bool:
    """Return whether the window of some pair has a direction."""
    later_by = np.array(config.bounds.later_by_us)
    return bool(np.any(later_by != later_by.T))


def order_loops(config: JoinConfig, origin: int, *, along_path: bool) -> list[int]:
    """Return the streams in the order of the loops of an origin: in a circle, or along the path away from the origin.

    On a path, the next stream is the one with the shortest window to a stream before it, so its period is the shortest.
    """
    count = len(config.inputs)
    if not along_path:
        return [(origin + step) % count for step in range(count)]
    later_by = np.array(config.bounds.later_by_us)
    lengths = later_by + later_by.T
    order = [origin]
    while len(order) < count:
        others = [i for i in range(count) if i not in order]
        order.append(min(others, key=lambda i: (int(lengths[i, order].min()), i)))
    return order


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
    """A compiled plan: the kernel, the layout of its buffers, its further arguments, and windows and loops of streams.

    `later_by_us[s, r]` is the most by which a row of r may be later than one of s. `loops[s]` is the order of the
    streams for a new row of s.
    """

    kernel: WJoinKernel
    layout: BufferLayout
    further: tuple[int, ...]
    reach_us: Int64s
    later_by_us: Int64s
    loops: Int64s

    def run(self, live: LiveBuffers) -> WindowJoinResult:
        """Join the new rows."""
        return self.kernel.join(*self._arguments(live))

    def record(self, live: LiveBuffers, scans: RecordedScans) -> ScannedRows:
        """Record the scans of the new rows."""
        return self.kernel.scans(*self._arguments(live), scans)

    def _arguments(self, live: LiveBuffers) -> tuple[object, ...]:
        if live.sweep is not None:
            return live.sweep, live.first_new, *live.new_row_times(), self.reach_us
        rows = live.rows
        places, buffers = live.new_row_places(), live.hash_or_list_buffers()
        return rows.times, live.codes, rows.offsets, *places, self.later_by_us, self.loops, buffers, *self.further


def _search(
    plan: WJoinPlan,
    config: JoinConfig,
    old: list[tuple[Pane, ...]],
    new: dict[int, Pane],
    tally: WorkCounters,
    derived: DerivedState,
) -> Iterator[tuple[Reach, PartialMatches]]:
    reach = {i: Panes((*panes, new[i]) if len(new[i]) else panes) for i, panes in enumerate(old)}
    live = resume_buffers(config, plan.layout, old, new, derived.take())
    live.start_batch(new)
    scans = StagedScans(config, reach, live, live.rows.locate(reach), plan, tally)
    compared = frozenset(range(len(config.classes.keys)))
    if not all(len(panes) for panes in reach.values()):
        plan.record(live, scans.scans)  # there is no match, but rows enter the buffers
    elif plan.layout.column is not None and len(config.classes.keys) == 1 and not config.residuals + config.thetas:
        joined = plan.run(live)
        _count_work(tally, joined.counters)
        for start in range(0, joined.rows.shape[1], PIECE_ROWS):
            found = scans.find_rows(joined.rows[:, start : start + PIECE_ROWS], range(len(old)))[0]
            in_bounds = drop_out_of_bounds(config, reach, found)
            yield reach, recheck_matches(config, reach, in_bounds, compared, (), tally.tested[:1])
    else:
        scanned = plan.record(live, scans.scans)
        _count_work(tally, scanned.counters)
        for matches in scans.matches(scanned):
            in_bounds = drop_out_of_bounds(config, reach, matches)
            yield reach, recheck_matches(config, reach, in_bounds, compared, scans.final_predicates, tally.tested[:1])
    derived.value = live.finish_batch(derived.horizon_us)


def _count_work(tally: WorkCounters, counters: WindowJoinCounters) -> None:
    for name in ("comparisons", "probes", "touched", "inserts", "expirations"):
        counted = getattr(tally, name)
        counted += getattr(counters, name)


def _encode_thetas(config: JoinConfig, live: LiveBuffers) -> ThetaComparisons:
    """Return the comparisons that the loops check: those of the query, and equalities without the common attribute."""
    column_at, described = live.rows.column_at, []
    for each in config.thetas:
        left_at, right_at = column_at[each.left, each.left_column], column_at[each.right, each.right_column]
        described.append((OP_CODES[each.op], each.left, left_at, each.right, right_at))
    for key_class, members in enumerate(config.classes.keys):
        if key_class != live.layout.column:
            described += [
                (OP_CODES["="], left, column_at[left, key_class], right, column_at[right, key_class])
                for left, right in combinations(members, 2)
            ]
    op, left, left_at, right, right_at = (np.array([each[place] for each in described], np.int64) for place in range(5))
    return ThetaComparisons(op, left, left_at, right, right_at, live.rows.values)


def find_common_class(config: JoinConfig) -> int | None:
    """Return the equality class with a key on every input; without one, every pair in the window is a candidate."""
    return next((c for c, members in enumerate(config.classes.keys) if len(members) == len(config.inputs)), None)


def _no_options(config: JoinConfig, plan: Plan) -> WJoinOptions:
    refuse_options(plan, "indexes", "cleanup_rows")
    return WJoinOptions()


def _cleanup_options(config: JoinConfig, plan: Plan) -> WJoinOptions:
    refuse_options(plan, "indexes")
    return WJoinOptions(further=(plan.cleanup_rows,))


def _hash_options(config: JoinConfig, plan: Plan) -> WJoinOptions:
    refuse_options(plan, "cleanup_rows")
    return WJoinOptions(_choose_tables(config, plan))


def _hash_and_cleanup_options(config: JoinConfig, plan: Plan) -> WJoinOptions:
    return WJoinOptions(_choose_tables(config, plan), (plan.cleanup_rows,))


def _choose_tables(config: JoinConfig, plan: Plan) -> tuple[Index, ...]:
    if find_common_class(config) is None:
        raise refuse(
            plan,
            "it hashes on an attribute that all streams have in common, and there is none",
            hint='pin "nlw-join" or "mw-join", which join on different attributes',
        )
    indexes = choose_indexes(config, plan, Index("hash", DEFAULT_BUCKETS))
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind != "hash":
            raise refuse(plan, f'it hashes every stream, but the plan gives "{each.alias}" a {index.kind}')
    return indexes


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
    _build_tactic("gca-nlw", NLW, _no_options, prunes_per_stream=False),
    _build_tactic("gca-hw", HW, _hash_options, indexes=HASH, prunes_per_stream=False),
    _build_tactic("lca", MW, _no_options),
    _build_tactic("ripple-join", RIPPLE, _cleanup_options, prunes_per_stream=False),
    _build_tactic("xjoin", RIPPLE, _hash_and_cleanup_options, indexes=HASH, prunes_per_stream=False),
)


@dataclass
class StagedScans:
    """The scans of one search, and the predicates to test between them."""

    config: JoinConfig
    reach: Reach
    live: LiveBuffers
    finders: list[RowFinder]
    plan: WJoinPlan
    tally: WorkCounters
    scans: RecordedScans = field(init=False)
    thetas: ThetaComparisons = field(init=False)
    raised: dict[Expr, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = self.live.rows
        first = rows.first if self.live.sweep is not None else self.live.first_new
        self.scans = allocate_scans(1 + int((rows.tail - first).sum()), first.size)
        self.thetas = _encode_thetas(self.config, self.live)

    @property
    def streams(self) -> int:
        return self.live.first_new.size

    @property
    def final_predicates(self) -> tuple[Expr, ...]:
        """Predicates that raised on a partial match; complete matches decide whether the error counts."""
        return tuple(self.raised)

    def matches(self, scanned: ScannedRows) -> Iterator[PartialMatches]:
        """Yield complete matches of the recorded rows in pieces. `final_predicates` are still to be tested on them."""
        recorded = int(self.scans.used[0])
        streams = self.streams
        for start in range(0, recorded, MAX_MATCHES):
            at = np.arange(start, min(start + MAX_MATCHES, recorded), dtype=np.int32)
            partials = np.zeros((streams + 1, at.size), np.int32)
            partials[self.scans.origin[at], np.arange(at.size)] = self.scans.row[at]
            partials[streams] = at
            yield from self._grow(scanned, partials, 0)

    def _grow(self, scanned: ScannedRows, partials: Int32s, depth: int) -> Iterator[PartialMatches]:
        streams = self.streams
        for grown in self._extend(scanned, partials, depth):
            passed = self._test(grown, depth)
            if not passed.shape[1]:
                continue
            if depth < streams - 2:
                yield from self._grow(scanned, passed, depth + 1)
            else:
                yield self.find_rows(passed, range(streams))[0]

    def _extend(self, scanned: ScannedRows, partials: Int32s, depth: int) -> Iterator[Int32s]:
        rows, tally, streams, kernel = self.live.rows, self.tally, self.streams, self.plan.kernel
        extend = extend_sweep if kernel.is_sweep else extend_nested
        checked_from = 0 if kernel.knows_windows else streams - 2
        compared = tally.comparisons if kernel.knows_windows else np.zeros_like(tally.comparisons)
        # A partial match grows by at most the rows of one buffer; the buffers have room for more rows than they hold.
        room = max(MAX_MATCHES, int((rows.tail - rows.offsets[:-1]).max()))
        following = 0
        while following < partials.shape[1]:
            out, touched = np.empty((streams + 1, room), np.int32), tally.touched.copy()
            used, following = extend(
                scanned.times,
                scanned.codes,
                scanned.numbers,
                rows.times,
                self.live.codes,
                rows.offsets,
                self.live.first_new,
                self.plan.reach_us,
                self.plan.later_by_us,
                self.scans,
                self.thetas,
                depth,
                checked_from,
                partials,
                following,
                tally.probes,
                tally.touched,
                compared,
                out,
            )
            if not kernel.knows_windows:  # codes are compared first, the window last
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
        kinds = bound * self.streams + self.scans.loops[at, depth]
        keep = np.ones(at.size, np.bool_)
        for kind in np.unique(kinds).tolist():
            inputs, target = divmod(kind, self.streams)
            checks = tuple(check for check in self.config.residuals if self._is_bound(check, inputs, target))
            if checks:
                of_kind = np.flatnonzero(kinds == kind)
                keep[of_kind] = False
                keep[of_kind[self._test_predicates(grown[:, of_kind], inputs, checks)]] = True
        return grown if keep.all() else np.ascontiguousarray(grown[:, keep])

    def _is_bound(self, check: Expr, inputs: int, target: int) -> bool:
        read = [self.config.aliases[alias] for alias in sources_of(check)]
        return target in read and all(inputs >> i & 1 for i in read)

    def _test_predicates(self, rows: Int32s, inputs: int, checks: tuple[Expr, ...]) -> NDArray[np.int64]:
        """Return the positions of the matches that fail no predicate."""
        matches, at = self.find_rows(rows, [i for i in range(self.streams) if inputs >> i & 1])
        test = maybe_true(checks, lambda column: gather_column(self.config, self.reach, matches, column), len(matches))
        self.raised |= dict.fromkeys(test.raised)
        self.tally.tested[0] += len(matches)
        return at[test.keep]

    def find_rows(self, rows: Int32s, inputs: range | list[int]) -> tuple[PartialMatches, NDArray[np.int64]]:
        """Return the matches over these inputs by row numbers of the panes, and their positions.

        Matches with a row that has left the panes are left out, and so are rows whose NULL fails a comparison. They are
        in no result.
        """
        live, found = self.live.rows, {i: self.finders[i].find(rows[i]) for i in inputs}
        there = np.logical_and.reduce([hit for _, hit in found.values()])
        for i in inputs:
            if self.config.inputs[i].ranges:
                there &= live.ends[live.offsets[i] + rows[i]] > LOWEST
        return PartialMatches({i: own[there] for i, (own, _) in found.items()}, {}, None, None), np.flatnonzero(there)
