"""Weights that fit measured times best: least squares of the relative errors, no weight below zero."""

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
from watersmeet.operators.window_join.admission import InputBatch, ReleasedRows, build_pane
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import Pane
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.sql import bind, parse

Floats = NDArray[np.float64]


def fit_weights(
    quantities: Sequence[Sequence[float]], seconds: Sequence[float], known_s: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Weights w, none negative, for which `known_s + quantities · w` comes closest to the measured seconds.

    Errors are taken relative to each point's seconds, so that small loads count as much as large ones, and points of
    which little is left beside what is known count little. A point too short for the clock says nothing and is left
    out.

    >>> fit_weights([[1000, 10], [2000, 10], [4000, 20]], [0.6, 1.1, 2.2])
    (0.0005, 0.01)
    """
    measured = np.asarray(seconds, np.float64)
    table = np.asarray(quantities, np.float64)
    if table.ndim != 2 or len(table) != measured.size:
        raise InternalError(f"{measured.size} times do not belong to quantities of shape {table.shape}")
    known = np.zeros(measured.size) if known_s is None else np.asarray(known_s, np.float64)
    said = measured > 0
    table, known, measured = table[said], known[said], measured[said]
    largest = np.maximum(
        np.abs(table).max(axis=0, initial=0.0), 1.0
    )  # columns of one size, or the solver takes small ones for nothing
    weights = _not_negative(table / largest / measured[:, None], (measured - known) / measured) / largest
    return tuple(float(f"{weight:.6g}") for weight in weights)


def _not_negative(table: Floats, wanted: Floats) -> Floats:
    """The best of the solutions that use some of the columns, all with positive weights. Exact, and columns are few."""
    count = table.shape[1]
    best, least = np.zeros(count), float(np.square(wanted).sum())
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = table[:, chosen]
            found = np.linalg.lstsq(part, wanted, rcond=None)[0]
            error = float(np.square(part @ found - wanted).sum())
            if np.all(found >= 0) and error < least:
                best, least = np.zeros(count), error
                best[list(chosen)] = found
    return best


T = TypeVar("T")

_REPEAT_S = 0.003
_MOST_RUNS = 200
_SMALL_WORDS = 32


@dataclass(frozen=True, slots=True)
class TimedResult(Generic[T]):
    """What a call gave, and the least CPU time it took."""

    result: T
    seconds: float


def measure_cpu(call: Callable[[], T], repeats: int) -> TimedResult[T]:
    """Runs the call once to warm up and then `repeats` times; a short one as often as fits into a few milliseconds for
    each repeat.

    Every run finds its small arrays elsewhere in memory: where they lie side by side in a bad way, loops can take half
    as long again, and without new places all runs of one process would share the good or bad luck.
    """
    result = call()
    least, total, runs = float("inf"), 0.0, 0
    elsewhere: list[
        list[NDArray[np.int64]]
    ] = []  # held until the end, so that no run gets the places of the one before
    while runs < repeats or (total < repeats * _REPEAT_S and runs < _MOST_RUNS):
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
    """The meet of `a` and `b` on their keys. Windows are an hour unless given, which no load is long enough to see the
    end of.
    """
    text = (
        "SELECT a.k AS k, a.ts AS a_ts, a.id AS a_id, b.ts AS b_ts, b.id AS b_id "
        f"FROM a [RANGE {window_a_us} MICROSECONDS], b [RANGE {window_b_us} MICROSECONDS] WHERE a.k = b.k{where}"
    )
    return compile_join_config(bind(parse(text), {name: StreamSchema(name, FIELDS, "ts") for name in ("a", "b")}), plan)


def build_table(times: Int64s, keys: Int64s) -> pa.Table:
    return pa.table({"ts": times, "k": keys, "id": np.arange(times.size)})


def build_input_batch(times: Int64s, keys: Int64s) -> InputBatch:
    return InputBatch(build_table(times, keys), times)


def build_window_pane(config: JoinConfig, number: int, times: Int64s, keys: Int64s) -> Pane:
    """Rows of an input as they stand in its window."""
    return build_pane(config.inputs[number], ReleasedRows(build_table(times, keys), times, None))


def draw_even_keys(rng: np.random.Generator, rows: int) -> Int64s:
    """Keys that hardly ever repeat and never meet an odd one."""
    return 2 * rng.integers(0, _LARGEST_KEY, rows)


def draw_odd_keys(rng: np.random.Generator, rows: int) -> Int64s:
    return draw_even_keys(rng, rows) + 1
