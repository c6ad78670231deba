"""Measurement for calibration: CPU time of a call, weights fitted to such times, and the two streams of every load.

Weights are fitted by least squares of the relative errors, with no weight below zero. The CPU time of a call is the
minimum of a few repeats, because every disturbance makes a measurement longer. Every load joins two streams `a` and `b`
on a key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.errors import InternalError
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join.admission import ReleasedRows, build_pane
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import Pane
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

Floats = NDArray[np.float64]


def fit_weights(
    quantities: Sequence[Sequence[float]], seconds: Sequence[float], known_s: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Fit weights w, none negative, for which `known_s + quantities · w` is closest to the measured seconds.

    Errors are relative to each point's seconds. So small loads count as much as large ones, and points whose time is
    mostly known count little. A point too short for the clock is left out.

    >>> fit_weights([[1000, 10], [2000, 10], [4000, 20]], [0.6, 1.1, 2.2])
    (0.0005, 0.01)

    """
    measured = np.asarray(seconds, np.float64)
    table = np.asarray(quantities, np.float64)
    if table.ndim != 2 or len(table) != measured.size:
        raise InternalError(f"{measured.size} times do not belong to quantities of shape {table.shape}")
    known = np.zeros(measured.size) if known_s is None else np.asarray(known_s, np.float64)
    timed = measured > 0
    table, known, measured = table[timed], known[timed], measured[timed]
    # scale columns to the same size, or the solver ignores small ones
    largest = np.maximum(np.abs(table).max(axis=0, initial=0.0), 1.0)
    weights = _not_negative(table / largest / measured[:, None], (measured - known) / measured) / largest
    return tuple(float(f"{weight:.6g}") for weight in weights)


def _not_negative(table: Floats, target: Floats) -> Floats:
    """Return the best solution that uses some of the columns, all with positive weights; exact for few columns."""
    count = table.shape[1]
    best, least = np.zeros(count), float(np.square(target).sum())
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = table[:, chosen]
            found = np.linalg.lstsq(part, target, rcond=None)[0]
            error = float(np.square(part @ found - target).sum())
            if np.all(found >= 0) and error < least:
                best, least = np.zeros(count), error
                best[list(chosen)] = found
    return best


T = TypeVar("T")

_REPEAT_S = 0.003
_MAX_RUNS = 200
_SMALL_WORDS = 32


@dataclass(frozen=True, slots=True)
class TimedResult(Generic[T]):
    """Result of a call, and the least CPU time it took."""

    result: T
    seconds: float


def measure_cpu(call: Callable[[], T], repeats: int) -> TimedResult[T]:
    """Run the call once to warm up and then `repeats` times; repeat a short call as often as fits into milliseconds.

    Every run gets its small arrays at different addresses. With an unlucky placement loops can take half as long again,
    and without new addresses all runs of one process would share the placement.
    """
    result = call()
    least, total, runs = float("inf"), 0.0, 0
    # held until the end, so that no run gets the addresses of the one before
    elsewhere: list[list[NDArray[np.int64]]] = []
    while runs < repeats or (total < repeats * _REPEAT_S and runs < _MAX_RUNS):
        elsewhere.append([np.empty(words, np.int64) for words in range(1, _SMALL_WORDS)])
        start = time.process_time()
        result = call()
        seconds = time.process_time() - start
        least, total, runs = min(least, seconds), total + seconds, runs + 1
    return TimedResult(result, least)


Int64s = NDArray[np.int64]

A, B = 0, 1  # numbers of the two inputs
FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])

_HOUR_US = 3_600_000_000
_LARGEST_KEY = 1 << 40


def build_join_config(
    plan: Plan, *, window_a_us: int = _HOUR_US, window_b_us: int = _HOUR_US, where: str = ""
) -> JoinConfig:
    """Build the join of `a` and `b` on their keys. Windows default to an hour, longer than any load."""
    text = (
        "SELECT a.k AS k, a.ts AS a_ts, a.id AS a_id, b.ts AS b_ts, b.id AS b_id "
        f"FROM a [RANGE {window_a_us} MICROSECONDS], b [RANGE {window_b_us} MICROSECONDS] WHERE a.k = b.k{where}"
    )
    return compile_join_config(bind(parse(text), {name: StreamSchema(name, FIELDS, "ts") for name in ("a", "b")}), plan)


def build_table(times: Int64s, keys: Int64s) -> pa.Table:
    """Build a table of rows with these times and keys."""
    return pa.table({"ts": pa.array(times), "k": pa.array(keys), "id": pa.array(np.arange(times.size))})


def build_input_batch(times: Int64s, keys: Int64s) -> InputBatch:
    """Build an input batch of rows with these times and keys."""
    return InputBatch(build_table(times, keys), times)


def build_window_pane(config: JoinConfig, number: int, times: Int64s, keys: Int64s) -> Pane:
    """Build a pane of an input's rows, as stored in its window."""
    return build_pane(config.inputs[number], ReleasedRows(build_table(times, keys), times, None))


def draw_even_keys(rng: np.random.Generator, rows: int) -> Int64s:
    """Draw keys that hardly ever repeat and never match an odd key."""
    return 2 * rng.integers(0, _LARGEST_KEY, rows)


def draw_odd_keys(rng: np.random.Generator, rows: int) -> Int64s:
    """Draw keys that hardly ever repeat and never match an even key."""
    return draw_even_keys(rng, rows) + 1
