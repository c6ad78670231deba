"""Service time per tuple: CPU time of the streaming join for a batch of 1,000 tuples, divided by 1,000.

The operator runs as in a query: rows enter its windows and buffers, expired rows leave, and results are emitted with
one column. The time includes all of this work. Comparisons are counted, not estimated.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import BatchResult, join_batch
from watersmeet.operators.window_join.state import JoinState, empty_state
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.hammad.arrival_streams import ArrivalSequence

BLOCK = 1000
BUCKETS = 128

NLW, HW, MW, RIPPLE, XJOIN = "NLW-join", "HW-join", "MW-join", "ripple join", "XJoin"
_PLANS = {NLW: "nlw-join", HW: "hw-join", MW: "mw-join", RIPPLE: "ripple-join", XJOIN: "xjoin"}

FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


@dataclass(frozen=True, slots=True)
class StreamingJoin:
    """An algorithm as a user runs it: one or more queries over the same streams.

    A path join in both directions is two queries.
    """

    configs: tuple[JoinConfig, ...]


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Microseconds and comparisons per tuple, by block. `block_ends` counts the tuples up to the end of each block.

    `out_of_window_share` is the share of the rows read that are outside the window.
    """

    block_ends: tuple[float, ...]
    us_per_tuple: tuple[float, ...]
    comparisons: tuple[float, ...]
    out_of_window_share: float = 0.0

    @property
    def mean_us(self) -> float:
        return float(np.mean(self.us_per_tuple))

    @property
    def mean_comparisons(self) -> float:
        return float(np.mean(self.comparisons))


def list_joins(names: Sequence[str], window_us: int, streams: int, buckets: int = BUCKETS) -> dict[str, StreamingJoin]:
    """Return the algorithms by the paper's names, with one window for all pairs of streams."""
    aliases, found = list_aliases(streams), {}
    for name in names:
        indexes = tuple((alias, Index("hash", buckets)) for alias in aliases) if name in (HW, XJOIN) else ()
        config = compile_streams(streams, f"WINDOW = {window_us} MICROSECONDS", Plan(_PLANS[name], indexes=indexes))
        found[name] = StreamingJoin((config,))
    return found


def list_aliases(streams: int) -> list[str]:
    return [f"s{number}" for number in range(streams)]


def compile_streams(streams: int, windows: str, plan: Plan) -> JoinConfig:
    """Return the join of streams on a common attribute within these windows."""
    aliases = list_aliases(streams)
    where = " AND ".join(f"s0.k = {alias}.k" for alias in aliases[1:])
    text = f"SELECT s0.ts AS ts FROM {', '.join(aliases)} {windows} WHERE {where}"
    bound = bind(parse(text), {alias: StreamSchema(alias, FIELDS, "ts") for alias in aliases})
    return compile_join_config(bound, plan)


def measure_service_times(
    effort: Effort, arrivals: ArrivalSequence, chosen: Mapping[str, StreamingJoin], first: int = 0, block: int = BLOCK
) -> dict[str, ServiceTimes]:
    """Measure each algorithm over the blocks from `first` on, each block a batch; the algorithms run in turns.

    The whole stream is run several times, and the fastest run of a block counts.
    """
    starts = range(first, len(arrivals) - block + 1, block)
    spent = {name: np.full(len(starts), np.inf) for name in chosen}
    work: dict[str, list[tuple[float, float]]] = {}
    for _ in range(max(2, effort.repeats)):
        gc.collect()
        runs = {name: StreamRun(each) for name, each in chosen.items()}
        work = {name: [] for name in chosen}
        for start in range(0, first, block):
            for run in runs.values():
                run.advance(arrivals, start, min(start + block, first))
        for at, start in enumerate(starts):
            for name, run in runs.items():
                seconds, compared, touched = run.advance(arrivals, start, start + block)
                spent[name][at] = min(spent[name][at], seconds)
                work[name].append((compared / block, touched / block))
    block_ends = tuple(float(start + block) for start in starts)
    return {name: _to_service_times(block_ends, spent[name], work[name], block) for name in chosen}


def _to_service_times(
    block_ends: tuple[float, ...], seconds: np.ndarray, work: list[tuple[float, float]], block: int
) -> ServiceTimes:
    comparisons, touched = (tuple(column) for column in zip(*work, strict=True))
    share = 1 - sum(comparisons) / sum(touched) if sum(touched) else 0.0
    return ServiceTimes(block_ends, tuple((1e6 * seconds / block).tolist()), comparisons, share)


class StreamRun:
    """A running join: its state after the batches so far, and the results found."""

    def __init__(self, join: StreamingJoin) -> None:
        self.configs = join.configs
        self.states: list[JoinState] = [empty_state(each) for each in join.configs]
        self.watermark_us = -FOREVER_US
        self.results = 0

    def advance(self, arrivals: ArrivalSequence, start: int, stop: int) -> tuple[float, float, float]:
        """Join a block of tuples; return CPU seconds, rows compared and rows read."""
        batches = _split_streams(arrivals, start, stop)
        next_watermark_us = int(arrivals.times[stop - 1])
        began = time.process_time()
        stepped: list[BatchResult] = [
            join_batch(config, state, batches, self.watermark_us, next_watermark_us)
            for config, state in zip(self.configs, self.states, strict=True)
        ]
        seconds = time.process_time() - began
        self.states, self.watermark_us = [each.state for each in stepped], next_watermark_us
        self.results += sum(each.counters.results for each in stepped)
        tallies = [each.counters.tally for each in stepped]
        compared, touched = (sum(float(getattr(t, name).sum()) for t in tallies) for name in ("comparisons", "touched"))
        return seconds, compared, touched


def _split_streams(arrivals: ArrivalSequence, start: int, stop: int) -> dict[int, InputBatch]:
    times, codes = arrivals.times[start:stop], arrivals.codes[start:stop]
    batches = {}
    for stream in range(arrivals.stream_count):
        own = arrivals.stream_numbers[start:stop] == stream
        table = pa.table({"ts": times[own], "k": codes[own]}, schema=FIELDS)
        batches[stream] = InputBatch(table, times[own])
    return batches
