"""The engine of nested-loop joins: it keeps rows and indexes between batches, and runs the loop kernel in stages.

A `LoopPlan` fixes the order of the loops per origin, the index of each window and the two intervals. Rows and indexes
are derived from the panes (`live_rows`, `live_indexes`). A batch appends its rows and lets them arrive. The engine
derives everything again after a restart, after a change of the plan, and when a batch runs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from watersmeet.algebra.plan import Index, Plan
from watersmeet.kernels.loop_state import (
    AT_LEAST,
    AT_MOST,
    CLOCK,
    EQUAL,
    LESS,
    LEVEL,
    MORE,
    NEXT_EVALUATION,
    NEXT_EXPIRATION,
    UNEQUAL,
    LoopArrivals,
    LoopCounters,
    LoopProgress,
    LoopSteps,
    LoopWindows,
    Rows,
)
from watersmeet.kernels.loop_state import LoopCursors as LoopState
from watersmeet.operators.window_join.config import JoinConfig, expire_before_us, find_last_instant_us
from watersmeet.operators.window_join.matches import PartialMatches, recheck_matches
from watersmeet.operators.window_join.pane import Int64s, Pane, Panes
from watersmeet.operators.window_join.tactics.live_indexes import LiveIndexes, allocate_indexes
from watersmeet.operators.window_join.tactics.live_rows import LiveHandle, LiveRows, derive_rows, find_live_engine
from watersmeet.operators.window_join.tactics.loop_stages import StagedPredicates, StageRunner, list_stage_levels
from watersmeet.operators.window_join.tactics.tactic import DerivedState, Reach, Search, refuse, resolve_aliases
from watersmeet.operators.window_join.work_counters import WorkCounters

OP_CODES = {"=": EQUAL, "<>": UNEQUAL, "<": LESS, "<=": AT_MOST, ">": MORE, ">=": AT_LEAST}


@dataclass(frozen=True, slots=True)
class LoopCondition:
    """A comparison between the row of a loop and the row of an outer loop."""

    op: int
    column: int
    bound: int  # number of the outer loop
    bound_column: int


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A compiled plan of nested loops: the order of all inputs per origin, the index per window, and the intervals."""

    orders: tuple[tuple[int, ...], ...]  # () for relations, which are never origins
    indexes: tuple[Index, ...]
    evaluate_us: int
    expire_us: int

    def conditions(self, config: JoinConfig, origin: int, level: int) -> list[LoopCondition]:
        """Return all conditions that a loop can check; one that the window's index can answer comes first."""
        order = self.orders[origin]
        target, outer = order[level], list(order[:level])
        found = [
            LoopCondition(EQUAL, c, outer.index(provider), c)
            for c, provider in config.classes.find_connections(target, outer)
        ]
        for theta in config.thetas:
            seen = theta.orient_to(target)
            if seen is not None and seen[2] in outer:
                op, column, other, other_column = seen
                found.append(LoopCondition(OP_CODES[op], column, outer.index(other), other_column))
        return sorted(found, key=lambda each: (each.op != EQUAL, each.op == UNEQUAL))

    def probed_column(self, config: JoinConfig, origin: int, level: int) -> int | None:
        """Return the column whose index answers a loop, or None if the loop scans the whole window."""
        order = self.orders[origin]
        kind = self.indexes[order[level]].kind
        if order[level] == origin or kind == "list":
            return None
        conditions = self.conditions(config, origin, level)
        if not conditions or conditions[0].op == UNEQUAL or (kind == "hash" and conditions[0].op != EQUAL):
            return None
        return conditions[0].column


def order_origin_first(config: JoinConfig, plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the orders with the origin outermost.

    The others follow in the order pinned for the origin, in the global order, or in the configured order.
    """
    orders: list[tuple[int, ...]] = []
    for each in config.inputs:
        if not each.is_stream:
            orders.append(())
            continue
        pinned = plan.order(each.alias)
        others = tuple(step.target for step in config.orders[each.number])
        if pinned is not None:
            others = tuple(i for i in resolve_aliases(config, plan, pinned) if i != each.number)
        orders.append(_check_order(config, plan, each.number, (each.number, *others)))
    return tuple(orders)


def order_origin_anywhere(config: JoinConfig, plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the pinned orders with the origin at its place in the plan, or outermost if the plan omits it."""
    orders = []
    for each, default in zip(config.inputs, order_origin_first(config, plan), strict=True):
        pinned = plan.order(each.alias) if each.is_stream else None
        chosen = resolve_aliases(config, plan, pinned) if pinned is not None else default
        orders.append(
            _check_order(config, plan, each.number, chosen) if each.is_stream and each.number in chosen else default
        )
    return tuple(orders)


def _check_order(config: JoinConfig, plan: Plan, origin: int, order: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(order) != list(range(len(config.inputs))):
        names = ", ".join(each.alias for each in config.inputs)
        raise refuse(plan, f'the order for origin "{config.inputs[origin].alias}" must name each source once: {names}')
    return order


def choose_indexes(config: JoinConfig, plan: Plan, default: Index) -> tuple[Index, ...]:
    resolve_aliases(config, plan, tuple(alias for alias, _ in plan.indexes))
    return tuple(plan.index(each.alias) or default for each in config.inputs)


def build_search(loops: LoopPlan) -> Search:
    """Return the search that runs a loop plan."""

    def search(
        config: JoinConfig,
        old: list[tuple[Pane, ...]],
        new: dict[int, Pane],
        tally: WorkCounters,
        derived: DerivedState,
    ) -> Iterator[tuple[Reach, PartialMatches]]:
        reach = {i: Panes((*panes, new[i]) if i in new and len(new[i]) else panes) for i, panes in enumerate(old)}
        engine = _resume_engine(config, loops, old, new, derived.take())
        arrivals = engine.start_batch(old, new)
        counters = LoopCounters(*(np.zeros((len(old), len(old)), np.int64) for _ in range(2)))
        predicates = StagedPredicates(config, loops.orders, reach, engine.rows.locate(reach), tally)
        # Without rows in every window there is no match: rows only arrive and expire.
        matches: Iterator[Rows] | None = None if all(len(panes) for panes in reach.values()) else iter(())
        for stage in engine.stages:
            runner = StageRunner(
                stage.levels,
                engine.windows,
                arrivals,
                stage.steps,
                stage.indexes.arrays,
                stage.progress,
                stage.nest,
                counters,
            )
            found = runner.run(matches, loops.evaluate_us, loops.expire_us)
            matches = predicates.filter_matches(found, stage.levels[-1]) if stage is not engine.stages[-1] else found
        compared = frozenset(range(len(config.classes.keys)))
        for rows in matches or ():
            for origin, origin_matches in predicates.split_by_origin(rows, len(old) - 1):
                yield (
                    reach,
                    recheck_matches(
                        config,
                        reach,
                        origin_matches,
                        compared,
                        predicates.final_predicates(origin),
                        tally.tested[origin : origin + 1],
                    ),
                )
        _count_work(tally, loops, counters, predicates.dropped)
        tally.inserts += np.bincount(arrivals.input, minlength=len(old))
        tally.expirations += engine.count_expired()
        derived.value = engine.finish_batch(derived.horizon_us)

    return search


@dataclass
class StageState:
    """Consecutive loop levels with their indexes and their progress, kept between batches."""

    levels: range
    steps: LoopSteps
    indexes: LiveIndexes
    progress: LoopProgress
    nest: LoopState

    def drop_front(self, dropped: Int64s) -> None:
        """Renumber the rows of windows that dropped rows from their front."""
        self.indexes.drop_front(dropped)
        self.progress.oldest[:] -= dropped
        self.progress.tail[:] -= dropped

    def start_batch(self, rows: LiveRows, first_us: int, loops: LoopPlan, *, steps_back: bool) -> None:
        """Set the clock to the first arrival. If time steps back, expired rows that it can match return."""
        progress = self.progress
        progress.evaluated[:] = progress.tail
        progress.clock[:] = 0
        progress.clock[LEVEL] = -1
        progress.clock[NEXT_EVALUATION] = find_last_instant_us(first_us, loops.evaluate_us) + loops.evaluate_us
        # The last instant may lie between two batches: the first arrival then expires rows as of it.
        progress.clock[NEXT_EXPIRATION] = find_last_instant_us(first_us, loops.expire_us)
        for window in rows.config.stream_inputs if steps_back else ():
            first, oldest = int(rows.first[window]), int(progress.oldest[window])
            kept = first + rows.count_expired(window, first, oldest, first_us)
            self.indexes.take_back(window, kept, oldest)
            progress.oldest[window] = kept
        self.indexes.make_room(progress.oldest, progress.tail)


@dataclass
class LoopEngine:
    """Rows, indexes and progress of nested loops. `version` changes whenever a batch starts.

    `expired` is the number of rows of each window that have expired, since the engine was built. `ranked` are the
    places of the rows that arrived in the last batch.
    """

    loops: LoopPlan
    rows: LiveRows
    windows: LoopWindows
    stages: list[StageState]
    expired: Int64s
    ranked: Int64s
    version: int = 0

    def start_batch(self, old: list[tuple[Pane, ...]], new: dict[int, Pane]) -> LoopArrivals:
        """Append the new rows, and let all stages wait for the first of them. Return them in order of arrival."""
        self.version += 1
        rows, config = self.rows, self.rows.config
        self.windows.ranks[self.ranked] = -1
        dropped = rows.move_to_front(new)
        for stage in self.stages:
            stage.drop_front(dropped)
        for each in config.inputs:
            if each.row_limit is not None:
                rows.refresh_ends(each.number, old[each.number])
        arrivals = _merge_arrivals(config, rows.tail, new)
        first_us = min(int(pane.times[0]) for pane in new.values() if len(pane))
        steps_back = first_us < rows.latest_us
        for i, pane in new.items():
            rows.append(i, pane)
        self.ranked = rows.offsets[arrivals.input] + arrivals.row
        self.windows.ranks[self.ranked] = np.arange(arrivals.input.size)
        for stage in self.stages:
            stage.start_batch(rows, first_us, self.loops, steps_back=steps_back)
        return arrivals

    def finish_batch(self, horizon_us: int) -> LiveHandle:
        """Release rows that no later row can match, and return the engine as the derived data of the next state."""
        self.rows.release_rows(horizon_us, np.min([stage.progress.oldest for stage in self.stages], axis=0))
        return LiveHandle(self, self.version)

    def count_expired(self) -> Int64s:
        """Return how many rows have expired since the last call. A row that returned counts once."""
        now: Int64s = np.maximum(self.rows.base + self.stages[0].progress.oldest, self.expired)
        count, self.expired = now - self.expired, now
        return count


def _resume_engine(
    config: JoinConfig, loops: LoopPlan, old: list[tuple[Pane, ...]], new: dict[int, Pane], derived: object
) -> LoopEngine:
    """Return the engine of the batch before, or a new one if that ran another plan or belongs to another state."""
    engine = find_live_engine(derived, LoopEngine, old, new)
    if engine is not None and engine.loops == loops:
        return engine
    rows = derive_rows(config, old, new)
    windows = LoopWindows(
        offsets=rows.offsets,
        times=rows.times,
        ends=rows.ends,
        ranks=np.full(int(rows.offsets[-1]), -1, np.int64),
        values=rows.values,
        column_at=rows.column_at,
        later_by=np.array(config.bounds.later_by_us, np.int64),
        keep=np.array([each.retention_us for each in config.inputs], np.int64),
    )
    levels = list_stage_levels(config, loops.orders)
    stages = [_build_stage(config, loops, each, rows) for each in levels]
    # Rows that earlier engines have expired are stored until their pane is evicted; they have been counted.
    before_us = expire_before_us(loops.evaluate_us, loops.expire_us, rows.latest_us)
    expired = [
        rows.count_expired(i, 0, int(rows.tail[i]), before_us) if each.is_stream else 0
        for i, each in enumerate(config.inputs)
    ]
    return LoopEngine(loops, rows, windows, stages, np.array(expired, np.int64), np.empty(0, np.int64))


def _build_stage(config: JoinConfig, loops: LoopPlan, levels: range, rows: LiveRows) -> StageState:
    probed = _list_probed_columns(config, loops, levels)
    indexes = allocate_indexes(rows, probed, loops.indexes)
    oldest, tail = np.zeros(len(config.inputs), np.int64), rows.tail.copy()
    indexes.fill(oldest, tail)
    progress = LoopProgress(oldest, tail.copy(), tail, np.zeros(CLOCK, np.int64))
    steps = _set_access(config, loops, levels, _flatten_steps(config, loops), probed)
    return StageState(levels, steps, indexes, progress, _allocate_loops(rows, indexes))


def _merge_arrivals(config: JoinConfig, before: Int64s, new: dict[int, Pane]) -> LoopArrivals:
    """Return the new rows of all inputs by time, and by input number for equal times."""
    times = [new[i].times for i in config.stream_inputs]
    inputs = np.repeat(np.array(config.stream_inputs, np.int64), [each.size for each in times])
    rows = [np.arange(before[i], before[i] + len(new[i])) for i in config.stream_inputs]
    order = np.argsort(np.concatenate(times), kind="stable")
    return LoopArrivals(np.ascontiguousarray(inputs[order]), np.concatenate(rows).astype(np.int64)[order])


def _allocate_loops(rows: LiveRows, indexes: LiveIndexes) -> LoopState:
    """Return closed loops, with room for the largest answer of a tree."""
    count = rows.tail.size
    most = int(np.diff(rows.offsets).max()) if indexes.arrays.nodes.size else 0
    chosen, cursor, stop, kind, key = (np.zeros(count, np.int64) for _ in range(5))
    bounds, candidates = np.zeros((count, 5), np.int64), np.zeros((count, max(1, most)), np.int64)
    return LoopState(chosen, cursor, stop, kind, key, bounds, candidates)


def _flatten_steps(config: JoinConfig, loops: LoopPlan) -> LoopSteps:
    count = len(config.inputs)
    order, access = np.zeros((count, count), np.int64), np.full((count, count), -1, np.int64)
    spans = np.zeros((count, count, 2), np.int64)
    flat: list[LoopCondition] = []
    for origin, loop_order in enumerate(loops.orders):
        for level, target in enumerate(loop_order):
            order[origin, level] = target
            found = loops.conditions(config, origin, level)
            spans[origin, level] = len(flat), len(flat) + len(found)
            flat += found
    fields = [[getattr(each, name) for each in flat] for name in ("op", "column", "bound", "bound_column")]
    return LoopSteps(order, access, spans, *(np.array(values, np.int64) for values in fields))


def _count_work(tally: WorkCounters, loops: LoopPlan, counters: LoopCounters, dropped: Int64s) -> None:
    """Add the work of the loops to the counters.

    A loop is opened once for every row that passes the outer loop and the predicates tested between the two.
    """
    tally.comparisons += counters.comparisons
    tally.touched += counters.touched
    passed_rows = counters.touched - dropped
    for origin, order in enumerate(loops.orders):
        for outer, inner in pairwise(order):
            tally.probes[origin, inner] += passed_rows[origin, outer]


def _list_probed_columns(config: JoinConfig, loops: LoopPlan, levels: range) -> tuple[tuple[int, int], ...]:
    """Return (window, column) of every index that a loop at these levels probes."""
    found = set()
    for origin, order in enumerate(loops.orders):
        for level in levels if order else ():
            column = loops.probed_column(config, origin, level)
            if column is not None:
                found.add((order[level], column))
    return tuple(sorted(found))


def _set_access(
    config: JoinConfig, loops: LoopPlan, levels: range, steps: LoopSteps, probed: tuple[tuple[int, int], ...]
) -> LoopSteps:
    for origin, order in enumerate(loops.orders):
        for level in levels if order else ():
            column = loops.probed_column(config, origin, level)
            if column is not None:
                steps.access[origin, level] = probed.index((order[level], column))
    return steps
