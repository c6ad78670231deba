"""The production tactic: grouped runs per pane, grown one input at a time, a batch at once. See
`operators.meet.expand`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.kernels.gather import gather_int64, tighten
from watersmeet.kernels.grouped_run import count_matches, fill_matches
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators import parallel as cores
from watersmeet.operators.expressions import maybe_true
from watersmeet.operators.window_join.config import JoinConfig, ProbeStep
from watersmeet.operators.window_join.matches import (
    PIECE_ROWS,
    PartialMatches,
    Recheck,
    apply_rechecks,
    gather_column,
    have_equal_codes,
    have_equal_keys,
    predicates_hold,
)
from watersmeet.operators.window_join.pane import Int32s, Int64s, Pane, Panes
from watersmeet.operators.window_join.tactics.tactic import Reach, Search, Tactic, refuse_options
from watersmeet.operators.window_join.work_counters import PROBE, WorkCounters


def compile_plan(config: JoinConfig, plan: Plan) -> Search:
    refuse_options(plan, "indexes", "evaluate_us", "expire_us", "cleanup_rows")
    return search_runs


def prepare_runs(config: JoinConfig, new: dict[int, Pane]) -> None:
    """Builds the runs of new panes that will be looked up, in this stretch or later ones."""
    last = _sort_by_new_rows(config, new)[-1]
    looked_up = {
        i: pane
        for i, pane in new.items()
        if len(pane) and (i != last or pane.outlasts_batch(config.inputs[i].retention_us))
    }
    _build_runs(
        (looked_up[step.target], step.key_classes)
        for steps in config.orders
        for step in steps
        if step.target in looked_up
    )


def search_runs(
    config: JoinConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane], tally: WorkCounters
) -> Iterator[tuple[Reach, PartialMatches]]:
    """One origin after the other, by the batch rule: new rows meet old and new rows of inputs before theirs, old rows
    of those after.

    Any order of the inputs finds the same. Here the input with the most new rows is the last one: its rows look others
    up and nobody looks them up, so there is no run to build of them until the next batch, if they are kept till then.
    """
    before = [Panes(panes) for panes in old]
    with_new = [Panes((*panes, new[i])) if i in new and len(new[i]) else before[i] for i, panes in enumerate(old)]
    ranks = {i: rank for rank, i in enumerate(_sort_by_new_rows(config, new))}
    reaches = {}
    for origin in config.stream_numbers:
        reach = _reachable_panes(origin, ranks, before, with_new) | {origin: Panes((new[origin],))}
        if all(len(panes) for panes in reach.values()):
            reaches[origin] = reach
    _build_runs(wanted for origin, reach in reaches.items() for wanted in _list_probed_panes(config, origin, reach))
    for origin, reach in reaches.items():
        with tally.timer.measure(PROBE, origin):
            pieces = [
                (piece, WorkCounters(tally.inputs)) for piece in _split_origin_rows(config, origin, reach[origin])
            ]
        for found in cores.parallel_flat_map(partial(_grow_piece, config, origin, reach), pieces, len(reach[origin])):
            yield reach, found
        for _, its in pieces:
            tally.add(its)


def _grow_piece(
    config: JoinConfig, origin: int, reach: Reach, piece: tuple[PartialMatches, WorkCounters]
) -> Iterator[PartialMatches]:
    """A piece has its own tally: several may grow at the same time."""
    rows, tally = piece
    return tally.timer.measure_items(
        PROBE, _grow_matches(config, origin, reach, rows, partial(_count_work, tally, origin)), origin
    )


def _sort_by_new_rows(config: JoinConfig, new: dict[int, Pane]) -> list[int]:
    return sorted(config.stream_numbers, key=lambda i: (len(new[i]), i))


def _reachable_panes(origin: int, ranks: dict[int, int], before: list[Panes], with_new: list[Panes]) -> Reach:
    """The same panes for every origin, so that what is put together over them is put together once. Relations have no
    rank.
    """
    return {i: with_new[i] if ranks.get(i, ranks[origin]) < ranks[origin] else before[i] for i in range(len(before))}


def _build_runs(wanted: Iterable[tuple[Pane, tuple[int, ...]]]) -> None:
    """Access paths of large panes, side by side; the others are built when they are first probed."""
    missing = {
        (id(pane), classes): pane
        for pane, classes in wanted
        if classes and len(pane) >= cores.MIN_PARALLEL_ROWS and not pane.has_run(classes)
    }
    cores.parallel_map(lambda each: each[1].run(each[0][1]), list(missing.items()), cores.MIN_PARALLEL_ROWS)


def _list_probed_panes(config: JoinConfig, origin: int, reach: Reach) -> Iterator[tuple[Pane, tuple[int, ...]]]:
    """Panes that are probed, and that of the origin itself where it will be: its rows probe in the order of their run."""
    steps = config.orders[origin]
    for step in steps:
        yield from ((pane, step.key_classes) for pane in reach[step.target].panes)
    (own,) = reach[origin].panes
    if steps and own.outlasts_batch(config.inputs[origin].retention_us):
        yield own, steps[0].key_classes


def _count_work(tally: WorkCounters, origin: int, target: int, probes: int, met: int, tested: int) -> None:
    tally.probes[origin, target] += probes
    tally.touched[origin, target] += met
    tally.tested[origin] += tested


RUNS = Tactic("runs", "grouped runs, ours", compile_plan, kernel_thetas=False, prepare=prepare_runs)


#: New rows that begin to grow at the same time: what a piece is looked up with stays in the cache, and several cores
#: have enough pieces.
ORIGIN_PIECE_ROWS = 1 << 17


@dataclass(frozen=True)
class ProbeRanges:
    """The stretches of each pane's run that each combination meets."""

    first: list[Int64s]
    count: list[Int32s]
    total: int


#: Called with a target, how many combinations probed it, how many rows they met, and how many of those predicates were
#: evaluated on.
CountWork = Callable[[int, int, int, int], None]


def _split_origin_rows(config: JoinConfig, origin: int, panes: Panes) -> list[PartialMatches]:
    """The origin's new rows, a piece at a time."""
    start = _start_matches(config, origin, config.orders[origin], panes)
    return [start.take(slice(at, at + ORIGIN_PIECE_ROWS)) for at in range(0, len(start), ORIGIN_PIECE_ROWS)]


def _grow_matches(
    config: JoinConfig, origin: int, reach: dict[int, Panes], piece: PartialMatches, count: CountWork
) -> Iterator[PartialMatches]:
    """Every combination of some of the origin's rows with rows of the others that their panes in `reach` hold."""
    return _grow_depth_first(config, reach, piece, config.orders[origin], count)


def _start_matches(config: JoinConfig, origin: int, steps: tuple[ProbeStep, ...], panes: Panes) -> PartialMatches:
    """The origin's new rows, by the first key they are probed with: neighbours then look at the same places.

    That is the order of their run. Where it is not built yet, and most rows are gone before anybody could look them up,
    it is not worth building: the rows come as they came.
    """
    (pane,) = panes.panes
    classes = steps[0].key_classes if steps else ()
    if classes and not pane.has_run(classes) and not pane.outlasts_batch(config.inputs[origin].retention_us):
        rows, times, codes = np.arange(len(pane), dtype=np.int32), pane.times, pane.key(classes)
    else:
        run = pane.run(classes)
        rows, times, codes = run.rows, run.times, np.repeat(run.group_keys, np.diff(run.offsets) if classes else 0)
    keys = (classes, codes) if classes else None
    if not any(each.has_ends for each in config.inputs):
        return PartialMatches({origin: rows}, {origin: times}, None, None, keys)
    end = gather_int64(pane.ends, rows) if pane.ends is not None else np.full(len(pane), FOREVER_US, np.int64)
    return PartialMatches({origin: rows}, {origin: times}, times, end, keys)


def _grow_depth_first(
    config: JoinConfig, reach: dict[int, Panes], bound: PartialMatches, steps: tuple[ProbeStep, ...], count: CountWork
) -> Iterator[PartialMatches]:
    """Depth first over pieces, breadth first inside a piece."""
    if not len(bound):
        return
    if not steps:
        yield bound
        return
    step, rest = steps[0], steps[1:]
    bound = _with_probe_keys(reach, bound, step)
    probe = _probe_target(config, reach, bound, step)
    count(step.target, len(bound), probe.total, 0)
    if not probe.total:
        return
    for piece in _split_pieces(probe):
        grown = _bind_target(config, reach, bound, step, probe, piece, bool(rest))
        grown = apply_rechecks(_list_rechecks(config, reach, step), grown)
        if step.checks or (grown.retest and not rest):
            count(step.target, 0, 0, len(grown))
            grown = (
                _filter_partial(config, reach, grown, step.checks)
                if rest
                else _filter_whole(config, reach, grown, step.checks)
            )
        yield from _grow_depth_first(config, reach, grown, rest, count)


def _probe_target(config: JoinConfig, reach: dict[int, Panes], bound: PartialMatches, step: ProbeStep) -> ProbeRanges:
    keys = bound.keys[1] if bound.keys is not None else np.zeros(len(bound), np.int64)
    from_us, until_us = _time_bounds(config, bound, step.target)
    alive_at = bound.latest if bound.latest is not None else from_us
    first, count, total = [], [], 0
    for pane in reach[step.target].panes:
        run = pane.run(step.key_classes)
        start, matches = np.empty(len(bound), np.int64), np.empty(len(bound), np.int32)
        asked = (keys, from_us, until_us, alive_at, start, matches)
        total += count_matches(run.slots, run.group_keys, run.offsets, run.times, run.ends, *asked)
        first.append(start)
        count.append(matches)
    return ProbeRanges(first, count, total)


def _with_probe_keys(reach: dict[int, Panes], bound: PartialMatches, step: ProbeStep) -> PartialMatches:
    """With the codes the step probes by, which often are those of the step before."""
    if not step.key_classes:
        return replace(bound, keys=None)
    if bound.keys is not None and bound.keys[0] == step.key_classes:
        return bound
    codes = [
        reach[provider].codes(key_class, bound.rows[provider])
        for key_class, provider in zip(step.key_classes, step.providers, strict=True)
    ]
    return replace(bound, keys=(step.key_classes, reduce(combine_codes, codes)))


def _time_bounds(config: JoinConfig, bound: PartialMatches, target: int) -> tuple[Int64s, Int64s]:
    """Between which times the target's row must lie, given the times of the rows bound so far."""
    later_by = config.bounds.later_by_us
    low = np.full(len(bound), -FOREVER_US, np.int64)
    high = np.full(len(bound), FOREVER_US, np.int64)
    if bound.end is not None and config.inputs[target].is_stream:
        high = np.minimum(high, bound.end)
    for i, times in bound.times.items():
        before_us, after_us = later_by[target][i], later_by[i][target]
        if before_us < FOREVER_US and after_us < FOREVER_US:
            tighten(times, before_us, after_us, low, high)
        elif before_us < FOREVER_US:
            low = np.maximum(low, times - before_us)
        elif after_us < FOREVER_US:
            high = np.minimum(high, times + after_us)
    return low, high


def _split_pieces(probe: ProbeRanges) -> Iterator[slice]:
    """Stretches of the combinations that find at most `PIECE_ROWS` matches each (or are a single one)."""
    size = probe.count[0].size
    if probe.total <= PIECE_ROWS:
        yield slice(0, size)
        return
    running = np.cumsum(reduce(np.add, (count.astype(np.int64) for count in probe.count)))
    start = 0
    while start < size:
        before = int(running[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(running, before + PIECE_ROWS, side="right")))
        yield slice(start, stop)
        start = stop


def _bind_target(
    config: JoinConfig,
    reach: dict[int, Panes],
    bound: PartialMatches,
    step: ProbeStep,
    probe: ProbeRanges,
    piece: slice,
    more: bool,
) -> PartialMatches:
    """The combinations of one piece, each with the rows it met."""
    panes, target = reach[step.target], step.target
    total = sum(int(count[piece].sum()) for count in probe.count)
    parents, matches = np.empty(total, np.int32), np.empty(total, np.int32)
    at = 0
    for number, pane in enumerate(panes.panes):
        met = pane.run(step.key_classes).rows
        at = fill_matches(
            met, probe.first[number][piece], probe.count[number][piece], int(panes.bases[number]), parents, matches, at
        )
    whole = piece.start == 0 and piece.stop == len(bound)
    here = bound if whole else bound.take(piece)
    if not more:  # nothing is probed after this
        here = replace(here, times={}, keys=None)
    return _add_target(config, panes, here.repeat(parents), target, matches, more)


def _add_target(
    config: JoinConfig, panes: Panes, grown: PartialMatches, target: int, matches: Int32s, more: bool
) -> PartialMatches:
    rows = {**grown.rows, target: matches}
    source = config.inputs[target]
    if not source.is_stream or (grown.latest is None and not more):
        return replace(grown, rows=rows)
    times = panes.times(matches)
    latest, end = grown.latest, grown.end
    if latest is not None and source.has_ends:
        end = np.minimum(end, panes.ends(matches)) if end is not None else None
    if latest is not None:
        latest = np.maximum(latest, times)
    return replace(grown, rows=rows, times={**grown.times, target: times}, latest=latest, end=end)


def _filter_partial(
    config: JoinConfig, reach: dict[int, Panes], found: PartialMatches, predicates: tuple[Expr, ...]
) -> PartialMatches:
    """Drop partial combinations that fail a predicate. Those on which one raises stay, to be tested again when they are
    whole.
    """
    test = maybe_true(predicates, lambda column: gather_column(config, reach, found, column), len(found))
    retest = tuple(dict.fromkeys((*found.retest, *test.raised)))
    return replace(found.filter(test.keep), retest=retest)


def _filter_whole(
    config: JoinConfig, reach: dict[int, Panes], found: PartialMatches, predicates: tuple[Expr, ...]
) -> PartialMatches:
    """Keep the whole combinations that are results; raise if one would be, but for a predicate that raises on it."""
    predicates = tuple(dict.fromkeys((*predicates, *found.retest)))
    return found.filter(predicates_hold(config, reach, predicates, found))


def _list_rechecks(config: JoinConfig, reach: dict[int, Panes], step: ProbeStep) -> list[Recheck]:
    """Tests of a step's candidates that the kernel leaves open: validity, and keys behind equal codes. The cheapest
    comes first.
    """
    doubts: list[Recheck] = []
    if any(each.has_ends for each in config.inputs):
        doubts.append(_are_valid_together)
    composite = len(step.key_classes) > 1
    for key_class, provider in zip(step.key_classes, step.providers, strict=True):
        if key_class not in config.exact_classes:
            doubts.append(partial(have_equal_keys, reach, key_class, provider, step.target))
        elif composite:
            doubts.append(partial(have_equal_codes, reach, key_class, provider, step.target))
    return doubts


def _are_valid_together(found: PartialMatches) -> NDArray[np.bool_]:
    if found.latest is None or found.end is None:
        raise InternalError("combinations without the ends of their rows")
    return found.latest <= found.end
