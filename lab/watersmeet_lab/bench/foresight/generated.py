"""Generated workloads for forecasts: 22 shapes of queries, each with independent keys and with keys in bursts.

Keys in bursts: a burst has a key, an instant and a length. Rows of all streams belong to the same bursts, so a key
occurs in all streams within seconds, as replies follow messages. A quarter of the shapes join by ranges of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import watersmeet as wm
from watersmeet.sources.declarations import Sources

#: Values of column x are integers below this number.
VALUES = 10_000
#: Mean number of rows of all streams in a burst, and the mean seconds from its start to a row of it.
BURST_ROWS, BURST_S = 40, 2.0

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GeneratedStream:
    """A stream: its rows, its distinct keys, and the exponent of their skew (0: none)."""

    rows: int
    distinct: int = 2_000
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class ForecastCase:
    """A query over streams that are generated for every run.

    `batch_rows` is the number of rows in a batch of each stream; None: a table, which is one batch.
    """

    name: str
    query: str
    streams: tuple[GeneratedStream, ...]
    seconds: float = 600.0
    batch_rows: int | None = None
    has_text_keys: bool = False
    joins_ranges: bool = False
    is_bursty: bool = False

    def sources(self) -> Sources:
        """Return the streams `a`, `b`, … of the query."""
        bursts = _draw_bursts(self) if self.is_bursty else None
        return {
            alias: wm.stream(self._batches(_draw_table(self, number, bursts)), time="ts", unit="us")
            for number, alias in enumerate("abcd"[: len(self.streams)])
        }

    def _batches(self, table: pa.Table) -> pa.Table | list[pa.RecordBatch]:
        return table if self.batch_rows is None else table.to_batches(max_chunksize=self.batch_rows)

    def scale(self, factor: float) -> ForecastCase:
        """Return the case with a multiple of its rows at the same rates."""
        streams = tuple(replace(each, rows=max(100, round(each.rows * factor))) for each in self.streams)
        return replace(self, streams=streams, seconds=self.seconds * factor)

    def with_bursts(self) -> ForecastCase:
        """Return the case with keys in bursts."""
        return replace(self, name=f"{self.name}, bursts", is_bursty=True)


def _draw_bursts(case: ForecastCase) -> tuple[Int64s, Int64s]:
    """Return the key and the start of each burst."""
    rng = np.random.default_rng([5, *case.name.encode()])
    number = max(1, sum(each.rows for each in case.streams) // BURST_ROWS)
    keys = _draw_keys(rng, case.streams[0], number)
    return keys, rng.integers(0, int(case.seconds * 1e6), number)


def _draw_table(case: ForecastCase, number: int, bursts: tuple[Int64s, Int64s] | None) -> pa.Table:
    flow = case.streams[number]
    rng = np.random.default_rng([number, *case.name.encode()])
    if bursts is None:
        times, keys = rng.integers(0, int(case.seconds * 1e6), flow.rows), _draw_keys(rng, flow, flow.rows)
    else:
        # A few large bursts and many small ones.
        of_burst = (rng.power(0.8, flow.rows) * bursts[0].size).astype(np.int64)
        keys = bursts[0][of_burst]
        times = bursts[1][of_burst] + (rng.exponential(BURST_S, flow.rows) * 1e6).astype(np.int64)
    order = np.argsort(times, kind="stable")
    times, keys = times[order], keys[order]
    start = rng.integers(0, VALUES, flow.rows)
    text = pa.array([f"customer-{key:06d}" for key in range(int(keys.max()) + 1)]).take(keys)
    columns = {
        "ts": pa.array(times),
        "k": text if case.has_text_keys else pa.array(keys),
        "j": pa.array(_draw_keys(rng, flow, flow.rows)),
        "x": pa.array(start),
        "y": pa.array(start + rng.integers(0, 20, flow.rows)),
        "v": pa.array(rng.random(flow.rows)),
        "id": pa.array(np.arange(flow.rows)),
    }
    return pa.table(columns)


def _draw_keys(rng: np.random.Generator, flow: GeneratedStream, rows: int) -> Int64s:
    if not flow.skew:
        return rng.integers(0, flow.distinct, rows)
    weights = np.arange(1, flow.distinct + 1, dtype=np.float64) ** -flow.skew
    return np.asarray(rng.choice(flow.distinct, rows, p=weights / weights.sum()), np.int64)


def _even(rows: int, streams: int = 2, distinct: int = 2_000, skew: float = 0.0) -> tuple[GeneratedStream, ...]:
    return (GeneratedStream(rows, distinct, skew),) * streams


_PAIR = "SELECT a.id AS a, b.id AS b FROM"
_THREE = "SELECT a.id AS a, b.id AS b, c.id AS c FROM"
_ONE_MINUTE = f"{_PAIR} a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE"
_TEN_SECONDS = f"{_PAIR} a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE"

_SHAPES = (
    ForecastCase("two streams", f"{_ONE_MINUTE} a.k = b.k", _even(200_000)),
    ForecastCase("text keys", f"{_ONE_MINUTE} a.k = b.k", _even(100_000), has_text_keys=True),
    ForecastCase("skewed keys", f"{_TEN_SECONDS} a.k = b.k", _even(80_000, distinct=20_000, skew=1.0)),
    ForecastCase("rare keys", f"{_ONE_MINUTE} a.k = b.k", _even(300_000, distinct=1_000_000)),
    ForecastCase(
        "unequal rates",
        f"{_PAIR} a [RANGE 10 SECONDS], b [RANGE 2 MINUTES] WHERE a.k = b.k",
        (GeneratedStream(400_000), GeneratedStream(4_000)),
    ),
    ForecastCase("selections", f"{_ONE_MINUTE} a.k = b.k AND a.x < 1000 AND b.v < 0.7", _even(200_000)),
    ForecastCase("rows windows", f"{_PAIR} a [ROWS 5000], b [ROWS 5000] WHERE a.k = b.k", _even(100_000)),
    ForecastCase(
        "partitioned rows",
        f"{_PAIR} a [PARTITION BY k ROWS 3], b [PARTITION BY k ROWS 3] WHERE a.k = b.k",
        _even(60_000, distinct=500),
    ),
    ForecastCase(
        "pair windows",
        f"{_THREE} a, b, c WINDOW (a, b) = 20 SECONDS AND WINDOW (b, c) = 10 SECONDS WHERE a.k = b.k AND b.k = c.k",
        _even(60_000, 3),
    ),
    ForecastCase(
        "directed pair",
        f"{_PAIR} a, b DWINDOW (a, b) = 30 SECONDS WHERE a.k = b.k",
        _even(150_000),
    ),
    ForecastCase(
        "three streams",
        f"{_THREE} a [RANGE 20 SECONDS], b [RANGE 20 SECONDS], c [RANGE 20 SECONDS] WHERE a.k = b.k AND b.k = c.k",
        _even(80_000, 3),
    ),
    ForecastCase(
        "chain",
        f"{_THREE} a [RANGE 20 SECONDS], b [RANGE 20 SECONDS], c [RANGE 20 SECONDS] WHERE a.k = b.k AND b.j = c.j",
        _even(60_000, 3),
    ),
    ForecastCase(
        "self join",
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 30 SECONDS] AS a, a [RANGE 30 SECONDS] AS b"
        " WHERE a.k = b.k AND a.id < b.id",
        _even(150_000, 1),
    ),
    ForecastCase("band", f"{_TEN_SECONDS} a.x BETWEEN b.x - 2 AND b.x + 2", _even(80_000), joins_ranges=True),
    ForecastCase(
        "equality and band",
        f"{_ONE_MINUTE} a.k = b.k AND ABS(a.x - b.x) <= 500",
        _even(80_000, distinct=100),
        joins_ranges=True,
    ),
    ForecastCase("two inequalities", f"{_TEN_SECONDS} a.x < b.x AND a.y > b.y", _even(60_000), joins_ranges=True),
    ForecastCase("overlap", f"{_TEN_SECONDS} a.x <= b.y AND b.x <= a.y", _even(80_000), joins_ranges=True),
    ForecastCase(
        "equality and order",
        f"{_TEN_SECONDS} a.k = b.k AND a.x > b.x + 5000",
        _even(80_000, distinct=200),
        joins_ranges=True,
    ),
    ForecastCase("tiny batches", f"{_ONE_MINUTE} a.k = b.k", _even(40_000), batch_rows=200),
    ForecastCase("large batches", f"{_ONE_MINUTE} a.k = b.k", _even(300_000), batch_rows=50_000),
    ForecastCase(
        "groups of one stream",
        "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a [RANGE 1 MINUTE] GROUP BY k EVERY 10 SECONDS",
        _even(200_000, 1, 500),
    ),
    ForecastCase(
        "groups of a join",
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 20 SECONDS], b [RANGE 20 SECONDS]"
        " WHERE a.k = b.k GROUP BY a.k EVERY 5 SECONDS",
        _even(80_000, 2, 500),
    ),
)


def list_generated_cases(scale: float) -> Iterator[ForecastCase]:
    """Yield every shape with independent keys and with keys in bursts."""
    for shape in _SHAPES:
        yield shape.scale(scale)
        yield shape.scale(scale).with_bursts()
