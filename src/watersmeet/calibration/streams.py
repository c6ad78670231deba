"""Two streams that join on a key: what every load of the calibration is made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.operators.window_join.admission import InputBatch, ReleasedRows, build_pane
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import Pane
from watersmeet.operators.window_join.tactics.registry import settled_config
from watersmeet.sql import bind, parse

Int64s = NDArray[np.int64]

A, B = 0, 1  # numbers of the two inputs
FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])

_HOUR_US = 3_600_000_000
_LARGEST_KEY = 1 << 40


def joined(plan: Plan, *, window_a_us: int = _HOUR_US, window_b_us: int = _HOUR_US, where: str = "") -> JoinConfig:
    """The meet of `a` and `b` on their keys. Windows are an hour unless given, which no load is long enough to see the
    end of.
    """
    text = (
        "SELECT a.k AS k, a.ts AS a_ts, a.id AS a_id, b.ts AS b_ts, b.id AS b_id "
        f"FROM a [RANGE {window_a_us} MICROSECONDS], b [RANGE {window_b_us} MICROSECONDS] WHERE a.k = b.k{where}"
    )
    return settled_config(bind(parse(text), {name: StreamSchema(name, FIELDS, "ts") for name in ("a", "b")}), plan)


def table_of(times: Int64s, keys: Int64s) -> pa.Table:
    return pa.table({"ts": times, "k": keys, "id": np.arange(times.size)})


def delta_of(times: Int64s, keys: Int64s) -> InputBatch:
    return InputBatch(table_of(times, keys), times)


def pane(config: JoinConfig, number: int, times: Int64s, keys: Int64s) -> Pane:
    """Rows of an input as they stand in its window."""
    return build_pane(config.inputs[number], ReleasedRows(table_of(times, keys), times, None))


def even_keys(rng: np.random.Generator, rows: int) -> Int64s:
    """Keys that hardly ever repeat and never meet an odd one."""
    return 2 * rng.integers(0, _LARGEST_KEY, rows)


def odd_keys(rng: np.random.Generator, rows: int) -> Int64s:
    return even_keys(rng, rows) + 1
