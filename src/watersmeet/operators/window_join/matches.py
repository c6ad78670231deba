"""The production tactic: combinations grow one input at a time, by row numbers, in bounded pieces.

From an origin's new rows, each step probes the next input's grouped runs for rows with the same key inside the time
bounds that every row bound so far sets. Candidates whose codes are hashes are compared by value; predicates are checked
at the first step that binds all they read. Nothing of this outlives the call: partial combinations are never state.

A predicate that raises on a partial combination does not stop the query there: the combination goes on, and if it
becomes whole the predicate is evaluated again, with the rule for errors (`expressions.conjunctions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.kernels.gather import gather_int32, gather_int64, tighten
from watersmeet.kernels.grouped_run import count_matches, fill_matches
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.expressions import all_true, maybe_true
from watersmeet.operators.keys import compare_keys
from watersmeet.operators.window_join.config import MeetConfig, Step
from watersmeet.operators.window_join.pane import Int32s, Int64s, Panes

#: Partial combinations in one piece. Memory is bounded by this times the number of inputs, whatever the number of
#: matches.
PIECE_ROWS = 1 << 18
#: New rows that begin to grow at the same time: what a piece is looked up with stays in the cache, and several cores
#: have enough pieces.
ORIGIN_ROWS = 1 << 17


@dataclass(frozen=True)
class Combinations:
    """Row numbers of the inputs bound so far, one array per input, all of one length.

    `latest` is the largest time of the rows so far and `end` the last instant at which all of them are valid; both only
    where some input carries ends. `keys` are the codes of the key classes they were probed with last: rows that met
    agree on them. `retest` are predicates that raised on some of them and have to be tested on whole combinations.
    """

    rows: dict[int, Int32s]
    times: dict[int, Int64s]
    latest: Int64s | None
    end: Int64s | None
    keys: tuple[tuple[int, ...], Int64s] | None = None
    retest: tuple[Expr, ...] = ()

    def __len__(self) -> int:
        return next(iter(self.rows.values())).size

    def take_true(self, keep: NDArray[np.bool_]) -> Combinations:
        return self if keep.all() else self.take(keep)

    def take(self, chosen: NDArray[np.bool_] | slice) -> Combinations:
        return Combinations(
            {i: rows[chosen] for i, rows in self.rows.items()},
            {i: times[chosen] for i, times in self.times.items()},
            None if self.latest is None else self.latest[chosen],
            None if self.end is None else self.end[chosen],
            None if self.keys is None else (self.keys[0], self.keys[1][chosen]),
            self.retest,
        )

    def repeated(self, parents: Int32s) -> Combinations:
        """The combinations with these numbers, which may come several times."""
        return Combinations(
            {i: gather_int32(rows, parents) for i, rows in self.rows.items()},
            {i: gather_int64(times, parents) for i, times in self.times.items()},
            None if self.latest is None else gather_int64(self.latest, parents),
            None if self.end is None else gather_int64(self.end, parents),
            None if self.keys is None else (self.keys[0], gather_int64(self.keys[1], parents)),
            self.retest,
        )


Recheck = Callable[[Combinations], NDArray[np.bool_]]


@dataclass(frozen=True)
class Probe:
    """The stretches of each pane's run that each combination meets."""

    first: list[Int64s]
    count: list[Int32s]
    total: int


#: Called with a target, how many combinations probed it, how many rows they met, and how many of those predicates were
#: evaluated on.
Count = Callable[[int, int, int, int], None]


def origin_pieces(config: MeetConfig, origin: int, panes: Panes) -> list[Combinations]:
    """The origin's new rows, a piece at a time."""
    start = _origin_rows(config, origin, config.orders[origin], panes)
    return [start.take(slice(at, at + ORIGIN_ROWS)) for at in range(0, len(start), ORIGIN_ROWS)]


def combinations(
    config: MeetConfig, origin: int, reach: dict[int, Panes], piece: Combinations, count: Count
) -> Iterator[Combinations]:
    """Every combination of some of the origin's rows with rows of the others that their panes in `reach` hold."""
    return _grow(config, reach, piece, config.orders[origin], count)


def column_of(config: MeetConfig, reach: dict[int, Panes], found: Combinations, column: Column) -> pa.Array:
    """The values of one column for each combination."""
    if column.source is None:
        raise InternalError(f'column "{column.name}" was never bound')
    number = config.aliases[column.source]
    return reach[number].column(column.name, found.rows[number])


def refined(
    config: MeetConfig,
    reach: dict[int, Panes],
    found: Combinations,
    compared: frozenset[int],
    predicates: tuple[Expr, ...],
    tested: Int64s,
) -> Combinations:
    """Drop whole combinations that only values can rule out: keys behind equal hashes, and predicates that no kernel
    checks.

    `compared` are the equality classes whose codes the kernel compared. The number of combinations that predicates are
    evaluated on is added to `tested`.
    """
    doubts: list[Recheck] = []
    for key_class, members in enumerate(config.classes.keys):
        exact = key_class in config.exact_classes
        if not (exact and key_class in compared):
            first, *others = members
            same = have_equal_codes if exact else have_equal_keys
            doubts.extend(partial(same, reach, key_class, first, other) for other in others)
    found = apply_rechecks(doubts, found)
    if predicates and len(found):
        tested += len(found)
        found = found.take_true(predicates_hold(config, reach, predicates, found))
    return found


def within_bounds(config: MeetConfig, reach: dict[int, Panes], found: Combinations) -> Combinations:
    """Whole combinations of streams, without those that break a bound between two times."""
    times = {i: reach[i].times(rows) for i, rows in found.rows.items()}
    keep = np.ones(len(found), np.bool_)
    for i, its in times.items():
        for j, others in times.items():
            if i != j and config.bounds.later_by_us[i][j] < FOREVER_US:
                keep &= others - its <= config.bounds.later_by_us[i][j]
    return found if np.all(keep) else found.take(keep)


def _origin_rows(config: MeetConfig, origin: int, steps: tuple[Step, ...], panes: Panes) -> Combinations:
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
        return Combinations({origin: rows}, {origin: times}, None, None, keys)
    end = gather_int64(pane.ends, rows) if pane.ends is not None else np.full(len(pane), FOREVER_US, np.int64)
    return Combinations({origin: rows}, {origin: times}, times, end, keys)


def _grow(
    config: MeetConfig, reach: dict[int, Panes], bound: Combinations, steps: tuple[Step, ...], count: Count
) -> Iterator[Combinations]:
    """Depth first over pieces, breadth first inside a piece."""
    if not len(bound):
        return
    if not steps:
        yield bound
        return
    step, rest = steps[0], steps[1:]
    bound = _keyed(reach, bound, step)
    probe = _probe(config, reach, bound, step)
    count(step.target, len(bound), probe.total, 0)
    if not probe.total:
        return
    for piece in _pieces(probe):
        grown = _bind(config, reach, bound, step, probe, piece, bool(rest))
        grown = apply_rechecks(_doubts(config, reach, step), grown)
        if step.checks or (grown.retest and not rest):
            count(step.target, 0, 0, len(grown))
            grown = (
                _tested_early(config, reach, grown, step.checks)
                if rest
                else _tested_whole(config, reach, grown, step.checks)
            )
        yield from _grow(config, reach, grown, rest, count)


def _probe(config: MeetConfig, reach: dict[int, Panes], bound: Combinations, step: Step) -> Probe:
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
    return Probe(first, count, total)


def _keyed(reach: dict[int, Panes], bound: Combinations, step: Step) -> Combinations:
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


def _time_bounds(config: MeetConfig, bound: Combinations, target: int) -> tuple[Int64s, Int64s]:
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


def _pieces(probe: Probe) -> Iterator[slice]:
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


def _bind(
    config: MeetConfig, reach: dict[int, Panes], bound: Combinations, step: Step, probe: Probe, piece: slice, more: bool
) -> Combinations:
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
    return _with_target(config, panes, here.repeated(parents), target, matches, more)


def _with_target(
    config: MeetConfig, panes: Panes, grown: Combinations, target: int, matches: Int32s, more: bool
) -> Combinations:
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


def _tested_early(
    config: MeetConfig, reach: dict[int, Panes], found: Combinations, predicates: tuple[Expr, ...]
) -> Combinations:
    """Drop partial combinations that fail a predicate. Those on which one raises stay, to be tested again when they are
    whole.
    """
    test = maybe_true(predicates, lambda column: column_of(config, reach, found, column), len(found))
    retest = tuple(dict.fromkeys((*found.retest, *test.raised)))
    return replace(found.take_true(test.keep), retest=retest)


def _tested_whole(
    config: MeetConfig, reach: dict[int, Panes], found: Combinations, predicates: tuple[Expr, ...]
) -> Combinations:
    """Keep the whole combinations that are results; raise if one would be, but for a predicate that raises on it."""
    predicates = tuple(dict.fromkeys((*predicates, *found.retest)))
    return found.take_true(predicates_hold(config, reach, predicates, found))


def apply_rechecks(doubts: list[Recheck], found: Combinations) -> Combinations:
    for doubt in doubts:
        if not len(found):
            break
        keep = doubt(found)
        if not np.all(keep):
            found = found.take(keep)
    return found


def _doubts(config: MeetConfig, reach: dict[int, Panes], step: Step) -> list[Recheck]:
    """Tests of a step's candidates that the kernel leaves open: validity, and keys behind equal codes. The cheapest
    comes first.
    """
    doubts: list[Recheck] = []
    if any(each.has_ends for each in config.inputs):
        doubts.append(_still_valid)
    composite = len(step.key_classes) > 1
    for key_class, provider in zip(step.key_classes, step.providers, strict=True):
        if key_class not in config.exact_classes:
            doubts.append(partial(have_equal_keys, reach, key_class, provider, step.target))
        elif composite:
            doubts.append(partial(have_equal_codes, reach, key_class, provider, step.target))
    return doubts


def _still_valid(found: Combinations) -> NDArray[np.bool_]:
    if found.latest is None or found.end is None:
        raise InternalError("combinations without the ends of their rows")
    return found.latest <= found.end


def have_equal_keys(
    reach: dict[int, Panes], key_class: int, here: int, there: int, found: Combinations
) -> NDArray[np.bool_]:
    return compare_keys(reach[here].keys(key_class, found.rows[here]), reach[there].keys(key_class, found.rows[there]))


def have_equal_codes(
    reach: dict[int, Panes], key_class: int, here: int, there: int, found: Combinations
) -> NDArray[np.bool_]:
    return np.equal(reach[here].codes(key_class, found.rows[here]), reach[there].codes(key_class, found.rows[there]))


def predicates_hold(
    config: MeetConfig, reach: dict[int, Panes], predicates: tuple[Expr, ...], found: Combinations
) -> NDArray[np.bool_]:
    return all_true(predicates, lambda column: column_of(config, reach, found, column), len(found))
