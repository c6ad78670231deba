"""The engine of nested-loop joins: it flattens panes into arrays, builds indexes, and runs the loop kernel in stages.

A `LoopPlan` fixes the order of the loops per origin, the index of each window and the two intervals. Hash buckets are
ranges in arrival order. Trees are node arenas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.windows import FOREVER_US, MAX_TIME_US
from watersmeet.kernels import btree, ttree
from watersmeet.kernels.loop_state import (
    AT_LEAST,
    AT_MOST,
    BTREE,
    EQUAL,
    HASH,
    LESS,
    LOWEST,
    MORE,
    TTREE,
    UNEQUAL,
    LoopArrivals,
    LoopCounters,
    LoopIndexes,
    LoopProgress,
    LoopSteps,
    LoopWindows,
    Rows,
    fill_tree,
)
from watersmeet.kernels.loop_state import LoopCursors as LoopState
from watersmeet.kernels.tree_nodes import HEADER
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.matches import PartialMatches, recheck_matches
from watersmeet.operators.window_join.pane import Int64s, Pane, Panes
from watersmeet.operators.window_join.tactics.loop_stages import StagedPredicates, StageRunner
from watersmeet.operators.window_join.tactics.tactic import Reach, Search, refuse, resolve_aliases
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
        config: JoinConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane], tally: WorkCounters
    ) -> Iterator[tuple[Reach, PartialMatches]]:
        reach = {i: Panes((*panes, new[i]) if i in new and len(new[i]) else panes) for i, panes in enumerate(old)}
        if not all(len(panes) for panes in reach.values()):
            return
        windows, arrivals = _flatten_windows(config, reach, new), _merge_arrivals(config, reach, new)
        counters = LoopCounters(*(np.zeros((len(old), len(old)), np.int64) for _ in range(2)))
        predicates = StagedPredicates(config, loops.orders, reach, tally)
        stages: list[StageRunner] = []
        matches: Iterator[Rows] | None = None
        for levels in predicates.stage_levels:
            progress = _start_progress(config, reach, new, windows, arrivals, loops)
            indexes, steps = build_indexes(config, loops, levels, _flatten_steps(config, loops), windows, progress)
            stage = StageRunner(
                levels, windows, arrivals, steps, indexes, progress, _allocate_loops(windows, indexes), counters
            )
            stages.append(stage)
            found = stage.run(matches, loops.evaluate_us, loops.expire_us)
            matches = predicates.filter_matches(found, levels[-1]) if levels[-1] < len(old) - 1 else found
        compared = frozenset(range(len(config.classes.keys)))
        before = stages[0].progress.tail.copy()
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
        _count_work(tally, loops, counters, predicates.dropped, stages[0].progress, before)

    return search


def _flatten_windows(config: JoinConfig, reach: Reach, new: dict[int, Pane]) -> LoopWindows:
    count = len(config.inputs)
    offsets = np.cumsum([0, *(len(reach[i]) for i in range(count))]).astype(np.int64)
    columns = len(config.classes.keys) + sum(len(each.ranges) for each in config.inputs)
    column_at = np.full((count, max(1, columns)), -1, np.int64)
    values: list[Int64s] = []
    at = 0
    for each in config.inputs:
        for column, parts in _value_columns(each, reach[each.number].panes):
            column_at[each.number, column] = at
            values += parts
            at += len(reach[each.number])
    return LoopWindows(
        offsets=offsets,
        times=np.concatenate([_loop_times(each, pane) for each in config.inputs for pane in reach[each.number].panes]),
        ends=np.concatenate([_loop_ends(each, pane) for each in config.inputs for pane in reach[each.number].panes]),
        ranks=_rank_arrivals(config, reach, new, offsets),
        values=np.concatenate(values) if values else np.zeros(1, np.int64),
        column_at=column_at,
        later_by=np.array(config.bounds.later_by_us, np.int64),
        keep=np.array([each.retention_us for each in config.inputs], np.int64),
    )


def _loop_times(source: JoinInput, pane: Pane) -> Int64s:
    """Return the row times. Rows of a relation are earlier than all others, so they are never the latest of a match."""
    return pane.times if source.is_stream else np.full(len(pane), -MAX_TIME_US, np.int64)


def _loop_ends(source: JoinInput, pane: Pane) -> Int64s:
    """Return the last instant of each row's validity; the lowest time for rows whose NULL fails a comparison."""
    ends = np.full(len(pane), FOREVER_US, np.int64) if pane.ends is None else pane.ends
    for _, expr in source.ranges:
        ends = np.where(pane.range_codes(expr)[1], ends, LOWEST)
    return ends


def _value_columns(source: JoinInput, panes: tuple[Pane, ...]) -> Iterator[tuple[int, list[Int64s]]]:
    for column, _ in source.keys:
        yield column, [pane.codes[column] for pane in panes]
    for column, expr in source.ranges:
        yield column, [pane.range_codes(expr)[0] for pane in panes]


def _merge_arrivals(config: JoinConfig, reach: Reach, new: dict[int, Pane]) -> LoopArrivals:
    """Return the new rows of all inputs by time, and by input number for equal times."""
    times = [new[i].times for i in config.stream_inputs]
    inputs = np.repeat(np.array(config.stream_inputs, np.int64), [each.size for each in times])
    rows = [np.arange(len(reach[i]) - len(new[i]), len(reach[i])) for i in config.stream_inputs]
    order = np.argsort(np.concatenate(times), kind="stable")
    return LoopArrivals(np.ascontiguousarray(inputs[order]), np.concatenate(rows).astype(np.int64)[order])


def _rank_arrivals(config: JoinConfig, reach: Reach, new: dict[int, Pane], offsets: Int64s) -> Int64s:
    ranks = np.full(int(offsets[-1]), -1, np.int64)
    arrivals = _merge_arrivals(config, reach, new)
    ranks[offsets[arrivals.input] + arrivals.row] = np.arange(arrivals.input.size)
    return ranks


def _start_progress(
    config: JoinConfig,
    reach: Reach,
    new: dict[int, Pane],
    windows: LoopWindows,
    arrivals: LoopArrivals,
    loops: LoopPlan,
) -> LoopProgress:
    old = np.array([len(reach[i]) - (len(new[i]) if i in new else 0) for i in range(len(config.inputs))], np.int64)
    first = int(windows.times[windows.offsets[arrivals.input[0]] + arrivals.row[0]]) if arrivals.input.size else 0
    clock = np.array(
        [0, _next_multiple(first, loops.evaluate_us), _next_multiple(first, loops.expire_us), 0, -1, 0, 0, 0], np.int64
    )
    return LoopProgress(np.zeros(old.size, np.int64), old.copy(), old.copy(), clock)


def _next_multiple(time_us: int, interval_us: int) -> int:
    return (time_us // interval_us + 1) * interval_us if interval_us else 0


def _allocate_loops(windows: LoopWindows, indexes: LoopIndexes) -> LoopState:
    """Return closed loops, with room for the largest answer of a tree."""
    count = windows.keep.size
    most = (
        max((int(windows.offsets[i + 1] - windows.offsets[i]) for i in range(count)), default=0)
        if indexes.nodes.size
        else 0
    )
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


def _count_work(
    tally: WorkCounters,
    loops: LoopPlan,
    counters: LoopCounters,
    dropped: Int64s,
    progress: LoopProgress,
    before: Int64s,
) -> None:
    """Add the work of a search to the counters.

    A loop is opened once for every row that passes the outer loop and the predicates tested between the two. Rows that
    entered since `before` count as inserted.
    """
    tally.comparisons += counters.comparisons
    tally.touched += counters.touched
    passed_rows = counters.touched - dropped
    for origin, order in enumerate(loops.orders):
        for outer, inner in pairwise(order):
            tally.probes[origin, inner] += passed_rows[origin, outer]
    tally.inserts += progress.tail - before
    tally.expirations += progress.oldest


INDEX_KINDS = {"hash": HASH, "btree": BTREE, "ttree": TTREE}


def build_indexes(
    config: JoinConfig, loops: LoopPlan, levels: range, steps: LoopSteps, windows: LoopWindows, progress: LoopProgress
) -> tuple[LoopIndexes, LoopSteps]:
    """Build every index that a loop at these levels probes, filled with the old rows; set the index of each step."""
    probed = _list_probed_columns(config, loops, levels)
    window_of = [window for window, _ in probed]
    sizes = [loops.indexes[window].size for window in window_of]
    kinds = [INDEX_KINDS[loops.indexes[window].kind] for window in window_of]
    rows = [int(windows.offsets[window + 1] - windows.offsets[window]) for window in window_of]
    buckets = [size if kind == HASH else 0 for size, kind in zip(sizes, kinds, strict=True)]
    placed = [count if kind == HASH else 0 for count, kind in zip(rows, kinds, strict=True)]
    nodes = [_tree_size(kind, count, size) for kind, count, size in zip(kinds, rows, sizes, strict=True)]
    indexes = LoopIndexes(
        of_window=np.searchsorted(window_of, np.arange(len(config.inputs) + 1)).astype(np.int64),
        column=np.array([column for _, column in probed], np.int64),
        kind=np.array(kinds, np.int64),
        size=np.array(sizes, np.int64),
        bucket_at=_offsets(buckets)[:-1],
        heads=np.zeros(sum(buckets), np.int64),
        tails=np.zeros(sum(buckets), np.int64),
        placed_at=_offsets(placed)[:-1],
        placed_row=np.empty(sum(placed), np.int64),
        placed_value=np.empty(sum(placed), np.int64),
        placed_bucket=np.empty(sum(placed), np.int64),
        nodes_at=_offsets(nodes),
        nodes=np.zeros(sum(nodes), np.int64),
        headers=np.zeros((len(probed), HEADER), np.int64),
    )
    for index in range(len(probed)):
        _fill(indexes, index, window_of[index], windows, progress)
    return indexes, _set_access(config, loops, levels, steps, probed)


def _list_probed_columns(config: JoinConfig, loops: LoopPlan, levels: range) -> list[tuple[int, int]]:
    """Return (window, column) of every index that a loop at these levels probes."""
    found = set()
    for origin, order in enumerate(loops.orders):
        for level in levels if order else ():
            column = loops.probed_column(config, origin, level)
            if column is not None:
                found.add((order[level], column))
    return sorted(found)


def _set_access(
    config: JoinConfig, loops: LoopPlan, levels: range, steps: LoopSteps, probed: list[tuple[int, int]]
) -> LoopSteps:
    for origin, order in enumerate(loops.orders):
        for level in levels if order else ():
            column = loops.probed_column(config, origin, level)
            if column is not None:
                steps.access[origin, level] = probed.index((order[level], column))
    return steps


def _offsets(sizes: list[int]) -> Int64s:
    return np.cumsum([0, *sizes]).astype(np.int64)


def _tree_size(kind: int, rows: int, size: int) -> int:
    if kind == HASH:
        return 0
    return int(btree.arena_words(rows, size) if kind == BTREE else ttree.arena_words(rows, size))


def _fill(indexes: LoopIndexes, index: int, window: int, windows: LoopWindows, progress: LoopProgress) -> None:
    start = windows.column_at[window, indexes.column[index]]
    values = windows.values[start : start + windows.offsets[window + 1] - windows.offsets[window]]
    old = int(progress.tail[window])
    if indexes.kind[index] == HASH:
        _fill_buckets(indexes, index, values, old)
    else:
        nodes = indexes.nodes[indexes.nodes_at[index] : indexes.nodes_at[index + 1]]
        fill_tree(int(indexes.kind[index]), nodes, indexes.headers[index], values[:old], int(indexes.size[index]))


def _fill_buckets(indexes: LoopIndexes, index: int, values: Int64s, old: int) -> None:
    """Give every row, old and new, its place in its bucket.

    The tail of a bucket is behind its old rows and moves as rows arrive.
    """
    size, first = int(indexes.size[index]), int(indexes.bucket_at[index])
    base = int(indexes.placed_at[index])
    bucket = values % size
    order = np.argsort(bucket, kind="stable")
    indexes.placed_row[base : base + values.size] = order
    indexes.placed_value[base : base + values.size] = values[order]
    indexes.placed_bucket[base : base + values.size] = first + bucket
    starts = base + np.searchsorted(bucket[order], np.arange(size))
    indexes.heads[first : first + size] = starts
    indexes.tails[first : first + size] = starts + np.bincount(bucket[:old], minlength=size)
