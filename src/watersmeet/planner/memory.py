"""Memory of a plan: rows in the windows, expired rows that are not evicted yet, stored results, and indexes.

The sizes of indexes are those of the kernels' arrays. Nested loops keep room for as many rows again. A hash index has
places for twice its rows and buckets, five words per bucket, and the bucket of each row. A tree has an arena of nodes,
large enough whatever the inserts and removes before. A grouped run has a directory, its keys, and the rows and times of
each group.

The third paper measured 5 % more memory for a hash index and 10 % more for a B+tree than for a T-tree. Here the order
depends on the buckets and on the size of the nodes.

References: Kang, Naughton, Viglas, section 4.1; Ayad, Naughton, eq. 11; Golab, Özsu, section 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from watersmeet.algebra.expressions import Expr, sources_of
from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.kernels import btree, ttree
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.join_predicates import split_comparison
from watersmeet.operators.window_join.state import EVICT_BELOW_SHARE, MERGE_ROWS
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.planner.plan_cost import MemoryPart
from watersmeet.planner.workload import InputEstimate, Workload

#: Bytes of a word: all arrays of indexes are int64, except the row numbers and slots of grouped runs.
WORD_BYTES = 8
#: Bytes of a hash bucket: five words of its range, and two places, each with a row and its value.
BUCKET_BYTES = 9 * WORD_BYTES
#: Bytes of a row in a hash index: its bucket, and two places.
HASHED_ROW_BYTES = 5 * WORD_BYTES
#: Room that nested loops keep for rows, by the rows of the window and of a batch.
ROOM_FACTOR = 2
#: Bytes of a row laid out for nested loops, besides its values: its time, its end and its place among the arrivals.
LAID_OUT_ROW_BYTES = 3 * WORD_BYTES
#: Bytes of a row in a grouped run: two slots of the directory and its number, all int32, and its time.
RUN_ROW_BYTES = 3 * 4 + WORD_BYTES
#: Bytes of a group in a grouped run: its key and its offset.
RUN_GROUP_BYTES = WORD_BYTES + 4

ROWS, EXPIRED_ROWS, STORED_RESULTS, INDEXES = "rows", "expired rows", "stored results", "indexes"


#: Estimates the bytes of the indexes of a plan, by source.
IndexModel = Callable[[JoinConfig, Workload, Plan], Iterator[MemoryPart]]


def estimate_window_memory(config: JoinConfig, workload: Workload, plan: Plan) -> Iterator[MemoryPart]:
    """Yield the bytes of the rows in the windows, and of the expired rows that wait with them."""
    for source, each in zip(config.inputs, workload.inputs, strict=True):
        width = each.row_bytes.value
        yield MemoryPart(ROWS, source.alias, each.held_rows.value * width)
        waiting = expired_rows(source, each, workload.arrivals.batch_s) + late_expirations(each, plan)
        if waiting:
            yield MemoryPart(EXPIRED_ROWS, source.alias, waiting * width)


def expired_rows(source: JoinInput, each: InputEstimate, batch_s: float) -> float:
    """Estimate the expired rows in stored panes, which are evicted as a whole.

    A pane of one batch is cut to its live rows if these are few. Panes are merged while they are small, so the oldest
    one covers up to half of the window, and half of it has expired on average.
    """
    if not each.kept_per_s.value or source.retention_us >= FOREVER_US:
        return 0.0
    window_s = each.held_rows.value / each.kept_per_s.value
    if window_s < EVICT_BELOW_SHARE * batch_s:
        return 0.0
    if window_s <= batch_s:
        return each.kept_per_s.value * (batch_s - window_s)
    return min(each.held_rows.value / 4, MERGE_ROWS / 2)


def late_expirations(each: InputEstimate, plan: Plan) -> float:
    """Estimate the rows that wait for the next evaluation or expiration of a lazy plan: half an interval on average."""
    return each.kept_per_s.value * (plan.evaluate_us + plan.expire_us) / 2e6


def run_indexes(config: JoinConfig, workload: Workload, plan: Plan) -> Iterator[MemoryPart]:
    """Yield the bytes of grouped runs: one per input and set of keys by which it is probed."""
    probed = _list_probed_keys(config, plan)
    for source in config.inputs:
        rows = workload.filled_rows(config, source.number)
        runs = len(probed[source.number])
        ends = WORD_BYTES if source.has_ends else 0
        distinct = max((each.value for each in workload.inputs[source.number].distinct.values()), default=1.0)
        size = rows * (RUN_ROW_BYTES + ends) + min(rows, distinct) * RUN_GROUP_BYTES
        if runs:
            yield MemoryPart(INDEXES, source.alias, runs * size)


def loop_indexes(config: JoinConfig, workload: Workload, plan: Plan) -> Iterator[MemoryPart]:
    """Yield the bytes of windows laid out for nested loops, and of their lists, hash indexes and trees."""
    default, probed_keys = find_tactic(plan).parts.default_index, _list_probed_keys(config, plan)
    for source in config.inputs:
        arriving = workload.inputs[source.number].kept_per_s.value * workload.arrivals.batch_s
        rows = ROOM_FACTOR * (workload.filled_rows(config, source.number) + arriving)
        ranges = _list_ranges(config, source.alias)
        index = plan.index(source.alias) or default(keyed=bool(source.keys))
        # One column answers a probe: a key, or in a tree a range.
        probed = len({keys[0] for keys in probed_keys[source.number] if keys})
        if not probed and ranges and index.kind in ("btree", "ttree"):
            probed = 1
        columns = len(source.keys) + len(ranges)
        size = rows * (LAID_OUT_ROW_BYTES + columns * WORD_BYTES) + probed * index_bytes(index, rows)
        yield MemoryPart(INDEXES, source.alias, size)


def buffer_indexes(config: JoinConfig, workload: Workload, plan: Plan) -> Iterator[MemoryPart]:
    """Yield the bytes of the buffers of a W-join: rows with their times and codes, in the buckets of a hash table."""
    for source in config.inputs:
        rows = workload.filled_rows(config, source.number)
        index = plan.index(source.alias) or Index("hash", 1)
        yield MemoryPart(INDEXES, source.alias, rows * 2 * WORD_BYTES + index_bytes(index, rows))


def index_bytes(index: Index, rows: float) -> float:
    """Return the bytes of an index of a window of this size.

    >>> index_bytes(Index("list"), 1000), index_bytes(Index("hash", 100), 1000)
    (0.0, 47200.0)
    >>> index_bytes(Index("btree", 100), 1000), index_bytes(Index("ttree", 100), 1000)
    (35256.0, 34440.0)
    """
    if index.kind == "list":
        return 0.0
    if index.kind == "hash":
        return float(index.size * BUCKET_BYTES + rows * HASHED_ROW_BYTES)
    arena_words = btree.arena_words if index.kind == "btree" else ttree.arena_words
    return float(arena_words(round(rows), index.size) * WORD_BYTES)


def _list_ranges(config: JoinConfig, alias: str) -> set[Expr]:
    """Return the expressions of a source that kernels compare with those of other sources."""
    sides = [split_comparison(predicate) for predicate in config.classes.residuals]
    return {side for found in sides if found is not None for side in found[1:] if sources_of(side) == {alias}}


def _list_probed_keys(config: JoinConfig, plan: Plan) -> list[set[tuple[int, ...]]]:
    """Return by input the sets of keys by which other inputs probe it, in the orders of the plan."""
    found: list[set[tuple[int, ...]]] = [set() for _ in config.inputs]
    for origin in config.stream_inputs:
        known = [origin]
        for number in _resolve_order(config, plan, origin):
            found[number].add(tuple(key_class for key_class, _ in config.classes.find_connections(number, known)))
            known.append(number)
    return found


def _resolve_order(config: JoinConfig, plan: Plan, origin: int) -> list[int]:
    pinned = plan.order(config.inputs[origin].alias)
    if pinned is None:
        return [step.target for step in config.orders[origin]]
    return [number for alias in pinned if (number := config.aliases[alias]) != origin]
