"""Workload of Golab and Özsu: streams with given relative rates, and the rates of Table 8 by algorithm.

References: Golab, Özsu, sections 5.1 (Tables 5 to 7), 6.1 (the generator) and 6.2 (Table 8).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.parallel import on_cores
from watersmeet.operators.protocol import Clock, InputBatch, Operator, exhaust
from watersmeet.operators.window_join.operator import WindowJoinOperator
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.runtime.embedded import run as embedded


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """Rows per unit of time, window length in units of time, and distinct values of the join attribute."""

    rate: int
    window: int
    distinct: int


TABLE_5 = (StreamSpec(10, 100, 500), StreamSpec(1, 100, 50), StreamSpec(1, 200, 40), StreamSpec(3, 100, 5))
TABLE_6 = (StreamSpec(100, 100, 200), StreamSpec(1, 100, 200), StreamSpec(1, 100, 20), StreamSpec(3, 100, 2))
TABLE_7 = (StreamSpec(11, 100, 200), StreamSpec(10, 100, 100), StreamSpec(1, 100, 65), StreamSpec(1, 100, 20))

#: Tuples per second of the best and of the worst plan, as printed in the paper.
TABLE_8 = {
    "eager NLJ": (1614, 333),
    "lazy NLJ, τ = 5": (1446, 296),
    "lazy NLJ, τ = 10": (1332, 274),
    "eager hash": (11540, 2524),
    "lazy hash, τ = 5": (8420, 2041),
    "lazy hash, τ = 10": (7947, 1848),
}
BEST_ORDER, WORST_ORDER = ("s1", "s2", "s3", "s4"), ("s4", "s3", "s2", "s1")


def scale_streams(streams: tuple[StreamSpec, ...], factor: int) -> tuple[StreamSpec, ...]:
    """Multiply the rows in every window and the distinct values: each row matches as many others as before.

    >>> scale_streams((StreamSpec(1, 100, 50),), 20)
    (StreamSpec(rate=20, window=100, distinct=1000),)
    """
    return tuple(StreamSpec(stream.rate * factor, stream.window, stream.distinct * factor) for stream in streams)


def stream_names(streams: tuple[StreamSpec, ...]) -> list[str]:
    return [f"s{number}" for number in range(1, len(streams) + 1)]


def unit_us(streams: tuple[StreamSpec, ...]) -> int:
    """Return the microseconds of a unit of time: one row arrives per microsecond."""
    return sum(stream.rate for stream in streams)


def generate_arrivals(
    streams: tuple[StreamSpec, ...], rows: int, seed: int = 0, *, balanced: bool = False
) -> dict[str, pa.Table]:
    """Generate one row per tick from a random stream, with probability in proportion to its rate.

    Values are uniform in 1 … distinct. `balanced` draws each stream's values from shuffled decks of 1 … distinct. This
    is as uniform, but rare values keep their share in short runs too. In Table 6, a hundredth of one slow stream's rows
    cause most of the work, so plain draws need very long runs to average out.
    """
    rng = np.random.default_rng(seed)
    rates = np.array([stream.rate for stream in streams], np.float64)
    source = rng.choice(len(streams), rows, p=rates / rates.sum())
    tables = {}
    for number, (name, stream) in enumerate(zip(stream_names(streams), streams, strict=True)):
        ticks = np.flatnonzero(source == number)
        values = (
            _shuffled_decks(rng, stream.distinct, ticks.size)
            if balanced
            else rng.integers(1, stream.distinct + 1, ticks.size)
        )
        tables[name] = pa.table({"ts": pa.array(ticks), "attr": pa.array(values)})
    return tables


def _shuffled_decks(rng: np.random.Generator, distinct: int, rows: int) -> NDArray[np.int64]:
    decks = rng.permuted(np.tile(np.arange(1, distinct + 1), (rows // distinct + 1, 1)), axis=1)
    return np.asarray(decks.reshape(-1)[:rows], np.int64)


def join_query(streams: tuple[StreamSpec, ...]) -> str:
    unit = unit_us(streams)
    select = ", ".join(f"{name}.ts AS {name}" for name in stream_names(streams))
    sources = ", ".join(
        f"{name} [RANGE {s.window * unit} MICROSECONDS]" for name, s in zip(stream_names(streams), streams, strict=True)
    )
    equal = " AND ".join(f"s1.attr = {name}.attr" for name in stream_names(streams)[1:])
    return f"SELECT {select} FROM {sources} WHERE {equal}"


@dataclass(frozen=True, slots=True)
class GolabRunResult:
    """A run with full windows: rows per second, and the comparisons per unit of time."""

    rows_per_s: float
    cpu_s_per_row: float
    results: int
    comparisons_per_unit: float


def run_join(
    streams: tuple[StreamSpec, ...],
    plan: Plan,
    rows: int,
    *,
    seed: int = 0,
    balanced: bool = False,
    only_count: bool = False,
) -> GolabRunResult:
    """Fill the windows, then measure, as the paper does.

    With `only_count`, results are found but no columns are gathered.
    """
    unit = unit_us(streams)
    fill = max(stream.window for stream in streams) * unit
    if plan.evaluate_us:  # up to an evaluation, so that no row waits when the measurement starts
        fill = -(-fill // plan.evaluate_us) * plan.evaluate_us
    tables = generate_arrivals(streams, fill + rows, seed, balanced=balanced)
    sources = {name: wm.stream(table, time="ts", unit="us") for name, table in tables.items()}
    run = embedded.start_run(join_query(streams), sources, plan)
    if only_count:
        assert isinstance(run.operator, WindowJoinOperator)
        config = replace(run.operator.config, outputs=(), result=pa.schema([]))
        run.operator = replace(run.operator, config=config)
    filling = {name: table.filter(table["ts"].to_numpy() < fill) for name, table in tables.items()}
    measured_rows = {name: table.filter(table["ts"].to_numpy() >= fill) for name, table in tables.items()}
    # The watermark of a run is rounded to milliseconds, which are longer than these streams. So time is set here.
    state, _, _ = _join_until(run.operator, run.operator.empty(), filling, Clock(-FOREVER_US, fill, fill - 1))
    start, start_cpu = time.perf_counter(), time.process_time()
    _, results, tally = _join_until(run.operator, state, measured_rows, Clock(fill, FOREVER_US, fill + rows))
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
    return GolabRunResult(rows / seconds, cpu_s / rows, results, _total_comparisons(tally) / (rows / unit))


def _join_until(
    operator: Operator[Any], state: Any, tables: Mapping[str, pa.Table], clock: Clock
) -> tuple[Any, int, WorkCounters]:
    """Join one batch; return the next state, the number of results and the counters."""
    batches = {
        i: InputBatch(tables[operator.config.inputs[i].name], tables[operator.config.inputs[i].name]["ts"].to_numpy())
        for i in operator.config.stream_inputs
    }
    with on_cores(os.cpu_count() or 1):
        results, (following, counters) = exhaust(operator.advance(state, batches, clock))
    return following, sum(batch.num_rows for batch in results), counters.tally


def table_8_plans(order: tuple[str, ...], streams: tuple[StreamSpec, ...] = TABLE_5) -> dict[str, Plan]:
    """Return the plans of the six rows of Table 8, on the query of Table 5, with five buckets per window."""
    unit = unit_us(streams)
    buckets = dict.fromkeys(stream_names(streams), "hash(5)")
    plans = {
        "eager NLJ": wm.plan("eager-nlj", order=order),
        "eager hash": wm.plan("eager-hash", order=order, indexes=buckets),
    }
    for tau in (5, 10):
        interval = f"{tau * unit} microseconds"
        plans[f"lazy NLJ, τ = {tau}"] = wm.plan("lazy-nlj", order=order, evaluate=interval, expire=interval)
        others = {origin: [origin, *(name for name in order if name != origin)] for origin in order}
        plans[f"lazy hash, τ = {tau}"] = wm.plan(
            "lazy-hash", order=others, indexes=buckets, evaluate=interval, expire=interval
        )
    return {label: plans[label] for label in TABLE_8}


def _total_comparisons(tally: WorkCounters) -> int:
    return int(tally.comparisons.sum())
