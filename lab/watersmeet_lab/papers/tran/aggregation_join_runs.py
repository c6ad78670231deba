"""Runs of aggregation joins under each plan: CPU seconds per second of event time, with full windows.

The generator is the paper's: join, grouping and aggregated attributes are uniform, and the join selectivity is one over
the number of join values. Windows hold the given rows, by time. Aggregation sets are updated row by row and emitted
once a second.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.planner.models.tran import AggregationJoin, all_plans, plan_name
from watersmeet_lab.papers.effort import Effort

_SECOND_US = 1_000_000

Tables = Mapping[str, pa.Table]


def measure_plans(effort: Effort, join: AggregationJoin, seconds: int = 1) -> dict[str, float]:
    """Measure CPU seconds per second of every plan; the plans run in turns, and each keeps its best time."""
    names = [f"s{number}" for number in range(1, len(join.inputs) + 1)]
    fill, rest = _generate_arrivals(join, names, seconds)
    plans = {plan_name(early, len(names)): [names[at] for at in sorted(early)] for early in all_plans(len(names))}
    best = dict.fromkeys(plans, float("inf"))
    for _ in range(1 if effort.quick else 2):
        for label, early in plans.items():
            best[label] = min(
                best[label], _time_plan(aggregation_query(join, names), names, early, fill, rest) / seconds
            )
    return best


def aggregation_query(join: AggregationJoin, names: list[str]) -> str:
    """Group by the grouping attribute of every input that has one, and sum an attribute of the first.

    Windows are one microsecond shorter than the time in which their rows arrive, so that they hold no extra row.
    """
    sources = ", ".join(
        f"{name} [RANGE {_window_us(each.window_rows, each.rows_per_s)} MICROSECONDS]"
        for name, each in zip(names, join.inputs, strict=True)
    )
    keys = (
        ", ".join(f"{name}.g" for name, each in zip(names, join.inputs, strict=True) if each.groups > 1)
        or f"{names[0]}.g"
    )
    key_columns = ", ".join(f"{key} AS g{at}" for at, key in enumerate(keys.split(", ")))
    equal = " AND ".join(f"{names[0]}.j = {name}.j" for name in names[1:])
    return (
        f"SELECT {key_columns}, SUM({names[0]}.v) AS total FROM {sources} WHERE {equal} GROUP BY {keys} EVERY 1 SECOND"
    )


def _window_us(rows: float, rows_per_s: float) -> int:
    return round(rows / rows_per_s * _SECOND_US) - 1


def _generate_arrivals(join: AggregationJoin, names: list[str], seconds: int) -> tuple[Tables, Tables]:
    """Return the rows that fill the windows up to a whole second, and those of the seconds after it."""
    rng = np.random.default_rng(0)
    filled_s = 1 + int(max(each.window_rows / each.rows_per_s for each in join.inputs))
    fill, rest = {}, {}
    for name, each in zip(names, join.inputs, strict=True):
        count = round(each.rows_per_s * (filled_s + seconds))
        times = np.floor(np.arange(count) * (_SECOND_US / each.rows_per_s)).astype(np.int64)
        table = pa.table(
            {
                "ts": times,
                "j": pa.array(rng.integers(0, round(1 / each.selectivity), count)),
                "g": pa.array(rng.integers(0, round(each.groups), count)),
                "v": pa.array(rng.integers(0, 1000, count)),
            }
        )
        fill[name], rest[name] = (
            table.filter(times < filled_s * _SECOND_US),
            table.filter(times >= filled_s * _SECOND_US),
        )
    return fill, rest


def _time_plan(text: str, names: list[str], early: list[str], fill: Tables, rest: Tables) -> float:
    """Fill the windows with everything aggregated early, which is fast, then switch to the plan and time it."""
    sources = {name: wm.stream(table, time="ts", unit="us") for name, table in fill.items()}
    run = wm.run(text, sources, plan=wm.plan(early=names))
    run.advance(fill)
    run.replan(wm.plan(early=early))
    gc.collect()
    start = time.process_time()
    run.advance(rest, last=True)
    return time.process_time() - start
