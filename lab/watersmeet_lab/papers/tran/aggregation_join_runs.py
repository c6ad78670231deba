"""Runs of aggregation joins under each plan: CPU seconds per second of stream, windows full.

The paper's generator: join, grouping and aggregated attributes uniform, a join selectivity of one over the number of
join values. Windows hold the rows asked for, by time. Aggregation sets are kept row by row and shown once a second.
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
    """CPU seconds per second for every plan; the plans take turns, and the least of each counts."""
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
    """Groups by the grouping attribute of every input that has one, and sums an attribute of the first.

    Windows are a microsecond short of the time in which their rows arrive, so that they hold no row more.
    """
    sources = ", ".join(
        f"{name} [RANGE {_window_us(each.window_rows, each.rows_per_s)} MICROSECONDS]"
        for name, each in zip(names, join.inputs, strict=True)
    )
    keys = (
        ", ".join(f"{name}.g" for name, each in zip(names, join.inputs, strict=True) if each.groups > 1)
        or f"{names[0]}.g"
    )
    shown = ", ".join(f"{key} AS g{at}" for at, key in enumerate(keys.split(", ")))
    equal = " AND ".join(f"{names[0]}.j = {name}.j" for name in names[1:])
    return f"SELECT {shown}, SUM({names[0]}.v) AS total FROM {sources} WHERE {equal} GROUP BY {keys} EVERY 1 SECOND"


def _window_us(rows: float, rows_per_s: float) -> int:
    return round(rows / rows_per_s * _SECOND_US) - 1


def _generate_arrivals(join: AggregationJoin, names: list[str], seconds: int) -> tuple[Tables, Tables]:
    """The rows that fill the windows up to a whole second, and those of the seconds after it."""
    rng = np.random.default_rng(0)
    filled_s = 1 + int(max(each.window_rows / each.rows_per_s for each in join.inputs))
    fill, rest = {}, {}
    for name, each in zip(names, join.inputs, strict=True):
        count = round(each.rows_per_s * (filled_s + seconds))
        times = np.floor(np.arange(count) * (_SECOND_US / each.rows_per_s)).astype(np.int64)
        table = pa.table(
            {
                "ts": times,
                "j": rng.integers(0, round(1 / each.selectivity), count),
                "g": rng.integers(0, round(each.groups), count),
                "v": rng.integers(0, 1000, count),
            }
        )
        fill[name], rest[name] = (
            table.filter(times < filled_s * _SECOND_US),
            table.filter(times >= filled_s * _SECOND_US),
        )
    return fill, rest


def _time_plan(text: str, names: list[str], early: list[str], fill: Tables, rest: Tables) -> float:
    """Windows are filled with everything aggregated early, which is quick, and then the plan changes to the one that is
    measured.
    """
    sources = {name: wm.stream(table, time="ts", unit="us") for name, table in fill.items()}
    run = wm.run(text, sources, wm.plan(early=names))
    run.advance(fill)
    run.replan(wm.plan(early=early))
    gc.collect()
    start = time.process_time()
    run.advance(rest, last=True)
    return time.process_time() - start
