"""The production tactic "runs": probe grouped runs per pane, one input at a time, a batch at once.

Matches start from an origin's new rows. Each step probes the grouped runs of the next input for rows with the same key
inside the time bounds that all bound rows impose. Candidates whose codes are hashes are compared by value. Predicates
are checked at the first step that binds all their inputs. Work proceeds in pieces of bounded size, and partial matches
do not outlive the call: they are never state.
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
from watersmeet.kernels.gather import gather_int64, tighten_bounds
from watersmeet.kernels.grouped_run import count_matches, fill_matches
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators import parallel
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
from watersmeet.operators.window_join.tactics.tactic import (
    PER_ORIGIN,
    DerivedState,
    OpenParts,
    Reach,
    Search,
    Tactic,
    refuse_options,
)
from watersmeet.operators.window_join.work_counters import PROBE, WorkCounters

#: New rows in one piece of an origin: small enough that the probed data stays in the cache and every core gets a piece.
ORIGIN_PIECE_ROWS = 1 << 17


def compile_plan(config: JoinConfig, plan: Plan) -> Search:
    """Check that the plan sets no option of another algorithm, and return the search."""
    refuse_options(plan, "indexes", "evaluate_us", "expire_us", "cleanup_rows")
    return search_runs


def prepare_runs(config: JoinConfig, new: dict[int, Pane]) -> None:
    """Build the runs of new panes that this time slice or later ones will probe."""
    last = _sort_by_new_rows(config, new)[-1]
    probed = {
        i: pane
        for i, pane in new.items()
        if len(pane) and (i != last or pane.outlasts_batch(config.inputs[i].retention_us))
    }
    _build_runs(
        (probed[step.target], step.key_classes) for steps in config.orders for step in steps if step.target in probed
    )


def search_runs(
    config: JoinConfig,
    old: list[tuple[Pane, ...]],
    new: dict[int, Pane],
    tally: WorkCounters,
    derived: DerivedState,
) -> Iterator[tuple[Reach, PartialMatches]]:
    """Yield the matches of each origin in turn, found by grouped runs."""
    reaches = list_reaches(config, old, new, derived)
    _build_runs(probed for origin, reach in reaches.items() for probed in _list_probed_panes(config, origin, reach))
    yield from search_origins(config, reaches, tally, extend_by_run)


def list_reaches(
    config: JoinConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane], derived: DerivedState
) -> dict[int, Reach]:
    """Return the panes that each origin may match, by the batch rule, without origins that match nothing.

    New rows of an input match old and new rows of inputs before it, and old rows of inputs after it. Any order of the
    inputs gives the same matches. The input with the most new rows comes last here: its rows probe others and are not
    probed. Their run is therefore built in the next batch at the earliest, if the rows are kept until then.
    """
    derived.take()  # the access paths of this tactic belong to the panes
    old_only = [Panes(panes) for panes in old]
    with_new = [Panes((*panes, new[i])) if i in new and len(new[i]) else old_only[i] for i, panes in enumerate(old)]
    ranks = {i: rank for rank, i in enumerate(_sort_by_new_rows(config, new))}
    reaches = {}
    for origin in config.stream_inputs:
        reach = _reachable_panes(origin, ranks, old_only, with_new) | {origin: Panes((new[origin],))}
        if all(len(panes) for panes in reach.values()):
            reaches[origin] = reach
    return reaches


def search_origins(
    config: JoinConfig, reaches: dict[int, Reach], tally: WorkCounters, extend: ExtendMatches
) -> Iterator[tuple[Reach, PartialMatches]]:
    """Yield the matches of each origin in turn. Its rows are searched in pieces, in parallel."""
    for origin, reach in reaches.items():
        with tally.timer.measure(PROBE, origin):
            pieces = [
                (piece, WorkCounters(tally.inputs)) for piece in _split_origin_rows(config, origin, reach[origin])
            ]
        for matches in parallel.parallel_flat_map(
            partial(_grow_piece, config, origin, reach, extend), pieces, len(reach[origin])
        ):
            yield reach, matches
        for _, piece_tally in pieces:
            tally.add(piece_tally)


def _grow_piece(
    config: JoinConfig,
    origin: int,
    reach: Reach,
    extend: ExtendMatches,
    piece: tuple[PartialMatches, WorkCounters],
) -> Iterator[PartialMatches]:
    """Yield the complete matches of a piece; it has its own counters because pieces grow in parallel."""
    rows, tally = piece
    count = partial(_count_work, tally, origin)
    return tally.timer.measure_items(
        PROBE, _grow_matches(config, reach, rows, config.orders[origin], extend, count), origin
    )


def _sort_by_new_rows(config: JoinConfig, new: dict[int, Pane]) -> list[int]:
    return sorted(config.stream_inputs, key=lambda i: (len(new[i]), i))


def _reachable_panes(origin: int, ranks: dict[int, int], before: list[Panes], with_new: list[Panes]) -> Reach:
    """Return the panes that an origin may match, by input. Relations have no rank.

    The `Panes` objects are the same for every origin, so that their columns are concatenated once.
    """
    return {i: with_new[i] if ranks.get(i, ranks[origin]) < ranks[origin] else before[i] for i in range(len(before))}


def _build_runs(probed: Iterable[tuple[Pane, tuple[int, ...]]]) -> None:
    """Build the access paths of large panes in parallel; those of small panes are built at the first probe."""
    missing = {
        (id(pane), classes): pane
        for pane, classes in probed
        if classes and len(pane) >= parallel.MIN_PARALLEL_ROWS and not pane.has_run(classes)
    }
    parallel.parallel_map(lambda each: each[1].run(each[0][1]), list(missing.items()), parallel.MIN_PARALLEL_ROWS)


def _list_probed_panes(config: JoinConfig, origin: int, reach: Reach) -> Iterator[tuple[Pane, tuple[int, ...]]]:
    """Yield the panes to probe, and the origin's own pane if it outlasts the batch: its rows probe in run order."""
    steps = config.orders[origin]
    for step in steps:
        yield from ((pane, step.key_classes) for pane in reach[step.target].panes)
    (own,) = reach[origin].panes
    if steps and own.outlasts_batch(config.inputs[origin].retention_us):
        yield own, steps[0].key_classes


def _count_work(tally: WorkCounters, origin: int, target: int, probes: int, hits: int, tested: int) -> None:
    tally.probes[origin, target] += probes
    tally.touched[origin, target] += hits
    tally.tested[origin] += tested


@dataclass(frozen=True)
class ProbeRanges:
    """For each pane, the range of its run that each partial match hits."""

    first: list[Int64s]
    count: list[Int32s]
    total: int


#: Called with a target, the number of matches that probed it, the rows they hit, and the matches tested by predicates.
CountWork = Callable[[int, int, int, int], None]

#: Extends partial matches by the rows of a step's target. Yields pieces, with the predicates that are still to be
#: tested. The last argument says whether another step follows.
ExtendMatches = Callable[
    [JoinConfig, Reach, PartialMatches, ProbeStep, CountWork, bool],
    Iterator[tuple[PartialMatches, tuple[Expr, ...]]],
]


def _split_origin_rows(config: JoinConfig, origin: int, panes: Panes) -> list[PartialMatches]:
    """Return the origin's new rows in pieces."""
    start = _start_matches(config, origin, config.orders[origin], panes)
    return [start.take(slice(at, at + ORIGIN_PIECE_ROWS)) for at in range(0, len(start), ORIGIN_PIECE_ROWS)]


def _start_matches(config: JoinConfig, origin: int, steps: tuple[ProbeStep, ...], panes: Panes) -> PartialMatches:
    """Return the origin's new rows, sorted by the first key they probe with, so that neighbours hit the same memory.

    This is the order of their run. If the run does not exist yet and most rows expire before a later batch could probe
    them, building it does not pay. The rows then keep their order.
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


def _grow_matches(
    config: JoinConfig,
    reach: Reach,
    bound: PartialMatches,
    steps: tuple[ProbeStep, ...],
    extend: ExtendMatches,
    count: CountWork,
) -> Iterator[PartialMatches]:
    """Grow partial matches to complete ones: depth first over pieces, breadth first inside a piece."""
    if not len(bound):
        return
    if not steps:
        yield bound
        return
    step, rest = steps[0], steps[1:]
    bound = _with_probe_keys(reach, bound, step)
    for found, checks in extend(config, reach, bound, step, count, bool(rest)):
        grown = apply_rechecks(_list_rechecks(config, reach, step), found)
        if checks or (grown.retest and not rest):
            count(step.target, 0, 0, len(grown))
            grown = (
                _filter_partial(config, reach, grown, checks)
                if rest
                else _filter_complete(config, reach, grown, checks)
            )
        yield from _grow_matches(config, reach, grown, rest, extend, count)


def extend_by_run(
    config: JoinConfig, reach: Reach, bound: PartialMatches, step: ProbeStep, count: CountWork, more: bool
) -> Iterator[tuple[PartialMatches, tuple[Expr, ...]]]:
    """Yield the matches extended by the target's rows with the same key inside the time bounds, in pieces."""
    probe = _probe_target(config, reach, bound, step)
    count(step.target, len(bound), probe.total, 0)
    if probe.total:
        for piece in _split_pieces(probe):
            yield _bind_target(config, reach, bound, step, probe, piece, more), step.checks


def _probe_target(config: JoinConfig, reach: dict[int, Panes], bound: PartialMatches, step: ProbeStep) -> ProbeRanges:
    """Find for each partial match the rows of the target with its key inside its time bounds."""
    keys = bound.keys[1] if bound.keys is not None else np.zeros(len(bound), np.int64)
    from_us, until_us = find_time_bounds(config, bound, step.target)
    alive_at = bound.latest if bound.latest is not None else from_us
    first, count, total = [], [], 0
    for pane in reach[step.target].panes:
        run = pane.run(step.key_classes)
        start, matches = np.empty(len(bound), np.int64), np.empty(len(bound), np.int32)
        probes = (keys, from_us, until_us, alive_at, start, matches)
        total += count_matches(run.slots, run.group_keys, run.offsets, run.times, run.ends, *probes)
        first.append(start)
        count.append(matches)
    return ProbeRanges(first, count, total)


def _with_probe_keys(reach: dict[int, Panes], bound: PartialMatches, step: ProbeStep) -> PartialMatches:
    """Set the codes that the step probes with; often they are those of the previous step."""
    if not step.key_classes:
        return replace(bound, keys=None)
    if bound.keys is not None and bound.keys[0] == step.key_classes:
        return bound
    codes = [
        reach[provider].codes(key_class, bound.rows[provider])
        for key_class, provider in zip(step.key_classes, step.providers, strict=True)
    ]
    return replace(bound, keys=(step.key_classes, reduce(combine_codes, codes)))


def find_time_bounds(config: JoinConfig, bound: PartialMatches, target: int) -> tuple[Int64s, Int64s]:
    """Return the earliest and latest times of a target row that satisfy the bounds of all bound rows."""
    later_by = config.bounds.later_by_us
    low = np.full(len(bound), -FOREVER_US, np.int64)
    high = np.full(len(bound), FOREVER_US, np.int64)
    if bound.end is not None and config.inputs[target].is_stream:
        high = np.minimum(high, bound.end)
    for i, times in bound.times.items():
        before_us, after_us = later_by[target][i], later_by[i][target]
        if before_us < FOREVER_US and after_us < FOREVER_US:
            tighten_bounds(times, before_us, after_us, low, high)
        elif before_us < FOREVER_US:
            low = np.maximum(low, times - before_us)
        elif after_us < FOREVER_US:
            high = np.minimum(high, times + after_us)
    return low, high


def _split_pieces(probe: ProbeRanges) -> Iterator[slice]:
    """Yield slices of the partial matches that hit at most `PIECE_ROWS` rows each, or consist of one match."""
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
    """Return the partial matches of one piece, each extended by the rows it hit."""
    panes, target = reach[step.target], step.target
    total = sum(int(count[piece].sum()) for count in probe.count)
    parents, matches = np.empty(total, np.int32), np.empty(total, np.int32)
    at = 0
    for number, pane in enumerate(panes.panes):
        run_rows = pane.run(step.key_classes).rows
        at = fill_matches(
            run_rows,
            probe.first[number][piece],
            probe.count[number][piece],
            int(panes.bases[number]),
            parents,
            matches,
            at,
        )
    is_all = piece.start == 0 and piece.stop == len(bound)
    parent_matches = bound if is_all else bound.take(piece)
    return add_target(config, panes, parent_matches, parents, target, matches, more)


def add_target(
    config: JoinConfig, panes: Panes, bound: PartialMatches, parents: Int32s, target: int, matches: Int32s, more: bool
) -> PartialMatches:
    """Return the partial matches with these numbers, each extended by a row of the target."""
    if not more:  # no step follows, so nothing reads times and keys
        bound = replace(bound, times={}, keys=None)
    grown = bound.repeat(parents)
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
    config: JoinConfig, reach: dict[int, Panes], matches: PartialMatches, predicates: tuple[Expr, ...]
) -> PartialMatches:
    """Drop partial matches that fail a predicate.

    Matches on which a predicate raises stay. They are tested again when they are complete.
    """
    test = maybe_true(predicates, lambda column: gather_column(config, reach, matches, column), len(matches))
    retest = tuple(dict.fromkeys((*matches.retest, *test.raised)))
    return replace(matches.filter(test.keep), retest=retest)


def _filter_complete(
    config: JoinConfig, reach: dict[int, Panes], matches: PartialMatches, predicates: tuple[Expr, ...]
) -> PartialMatches:
    """Keep the complete matches that pass all predicates; raise if only an error keeps one from being a result."""
    predicates = tuple(dict.fromkeys((*predicates, *matches.retest)))
    return matches.filter(predicates_hold(config, reach, predicates, matches))


def _list_rechecks(config: JoinConfig, reach: dict[int, Panes], step: ProbeStep) -> list[Recheck]:
    """Return the tests of a step's candidates that the kernel leaves open, the cheapest first.

    These are joint validity and the keys behind equal codes.
    """
    rechecks: list[Recheck] = []
    if any(each.has_ends for each in config.inputs):
        rechecks.append(_are_valid_together)
    composite = len(step.key_classes) > 1
    for key_class, provider in zip(step.key_classes, step.providers, strict=True):
        if key_class not in config.exact_classes:
            rechecks.append(partial(have_equal_keys, reach, key_class, provider, step.target))
        elif composite:
            rechecks.append(partial(have_equal_codes, reach, key_class, provider, step.target))
    return rechecks


def _are_valid_together(matches: PartialMatches) -> NDArray[np.bool_]:
    if matches.latest is None or matches.end is None:
        raise InternalError("partial matches without the ends of their rows")
    return matches.latest <= matches.end


RUNS = Tactic(
    "runs", "grouped runs, ours", compile_plan, OpenParts(PER_ORIGIN), kernel_thetas=False, prepare=prepare_runs
)
TACTICS = (RUNS,)
