"""One case: the forecast of `explain`, runs of the same query over the same rows, and the time of other plans."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.planner.explain import Explanation
from watersmeet.planner.ranges import CPU, FIGURES, ROWS_OUT, Range
from watersmeet.sources.declarations import Sources, Stream
from watersmeet.sources.times import extract_event_times_us

#: Other plans that are run, at most: the cheapest by prediction, one per algorithm and set of structures.
OTHER_PLANS = 4
#: A plan that is predicted to cost more than this many times the chosen one is not run.
MAX_TIMES = 8.0
#: Runs of the same case. The first two give the noise floor, the median is the truth.
RUNS = 3


class ComparedQuery(Protocol):
    """A query with a name, over streams that `sources` declares."""

    @property
    def name(self) -> str: ...

    @property
    def query(self) -> str: ...

    @property
    def sources(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run: CPU seconds to start it and to process its rows, its results, and the state before its end."""

    start_s: float
    cpu_s: float
    wall_s: float
    results: int
    state_rows: float
    state_bytes: float


@dataclass(frozen=True, slots=True)
class ForecastError:
    """A predicted and a measured figure, both for the whole run, and the predicted range."""

    predicted: float
    measured: float
    low: float
    high: float

    @property
    def factor(self) -> float:
        """Larger of the two figures divided by the smaller one. Both zero: 1."""
        if self.predicted == self.measured:
            return 1.0
        if not self.predicted or not self.measured:
            return math.inf
        return max(self.predicted / self.measured, self.measured / self.predicted)

    @property
    def is_in_range(self) -> bool:
        """Whether the range contains the measured figure; rounding errors do not count."""
        return self.low * (1 - 1e-9) <= self.measured <= self.high * (1 + 1e-9)

    @property
    def width(self) -> float:
        """Upper end of the range divided by its lower end."""
        if not self.high:
            return 1.0
        return self.high / self.low if self.low else math.inf


@dataclass(frozen=True, slots=True)
class ForecastFinding:
    """Errors of one forecast by figure, the noise between two runs, planning times, and regret."""

    name: str
    errors: Mapping[str, ForecastError]
    noise: float
    planning_s: float
    rehearsal_s: float
    run_s: float
    start_s: float
    regret: float | None
    best_plan: str
    chosen_plan: str

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        figures = {
            name: {
                "predicted": each.predicted,
                "measured": each.measured,
                "factor": each.factor if math.isfinite(each.factor) else None,
                "low": each.low,
                "high": each.high,
                "in_range": each.is_in_range,
            }
            for name, each in self.errors.items()
        }
        return {
            "workload": "foresight",
            "case": self.name,
            **figures,
            "noise": self.noise,
            "planning_s": self.planning_s,
            "rehearsal_s": self.rehearsal_s,
            "run_s": self.run_s,
            "start_s": self.start_s,
            "regret": self.regret,
            "best_plan": self.best_plan,
            "chosen_plan": self.chosen_plan,
        }

    def __str__(self) -> str:
        parts = [
            f"{_SHORT[name]} {each.predicted / each.measured:6.2f}{' ' if each.is_in_range else '!'}"
            if each.measured
            else f"{_SHORT[name]} {each.predicted:,.0f} for 0"
            for name, each in self.errors.items()
        ]
        regret = "" if self.regret is None else f"  regret {self.regret:4.2f}"
        return (
            f"{self.name:<44} {'  '.join(parts)}  noise {self.noise:4.2f}  run {self.run_s:5.2f} s"
            f"  rehearsal {self.rehearsal_s * 1e3:4.0f} ms  planning {self.planning_s * 1e3:4.0f} ms{regret}"
        )


_SHORT = {"cpu_per_s": "CPU", "rows_out_per_s": "rows out", "state_rows": "state", "state_bytes": "bytes"}


def measure_case(case: ComparedQuery, *, with_regret: bool = True) -> ForecastFinding:
    """Explain a query, run it, and compare. The first run of a new query also loads kernels, so it is not counted."""
    sources = case.sources()
    span_s = _find_span_s(sources)
    run_query(case.query, sources)
    started = time.perf_counter()
    about = wm.explain(case.query, sources)
    took_s = time.perf_counter() - started
    runs = [run_query(case.query, sources) for _ in range(RUNS)]
    median = sorted(runs, key=lambda each: each.cpu_s)[RUNS // 2]
    rehearsal_s = about.rehearsal.took_s if about.rehearsal is not None else 0.0
    noise = max(runs[0].cpu_s, runs[1].cpu_s) / min(runs[0].cpu_s, runs[1].cpu_s)
    regret, best = _measure_regret(case, sources, about) if with_regret else (None, about.plan)
    return ForecastFinding(
        case.name,
        _compare(about, median, span_s),
        noise,
        took_s - rehearsal_s,
        rehearsal_s,
        median.cpu_s,
        median.start_s,
        regret,
        describe_plan(best),
        describe_plan(about.plan),
    )


def run_query(query: str, sources: Sources, plan: Plan | None = None) -> MeasuredRun:
    """Run a query to its end, and hold its results until then, as a caller does."""
    gc.collect()
    walls, started = time.perf_counter(), time.process_time()
    run = wm.run(query, sources, plan=plan)
    ready, results, held = time.process_time(), list[pa.RecordBatch](), list[tuple[int, int]]()
    for batches in run.batches():
        results += batches
        held.append((run.state_rows, run.state_bytes))
    ended = time.process_time()
    steady = held[:-1][len(held) // 2 :] or held[:-1]  # the last one is after the end of the input
    return MeasuredRun(
        ready - started,
        ended - ready,
        time.perf_counter() - walls,
        sum(each.num_rows for each in results),
        statistics.mean(rows for rows, _ in steady) if steady else 0.0,
        statistics.mean(size for _, size in steady) if steady else 0.0,
    )


def _compare(about: Explanation, measured: MeasuredRun, span_s: float) -> dict[str, ForecastError]:
    truths = (measured.cpu_s, float(measured.results), measured.state_rows, measured.state_bytes)
    found: dict[str, ForecastError] = {}
    for name, truth in zip(FIGURES, truths, strict=True):
        per_s = span_s if name in (CPU, ROWS_OUT) else 1.0
        around = about.ranges.get(name, Range(0.0, math.inf))
        found[name] = ForecastError(
            getattr(about.chosen.cost, name) * per_s, truth, around.low * per_s, around.high * per_s
        )
    return found


def _measure_regret(case: ComparedQuery, sources: Sources, about: Explanation) -> tuple[float, Plan]:
    """Run the chosen plan and others in turns; return the regret of the chosen one and the fastest plan."""
    plans = [about.plan]
    seen = {describe_plan(about.plan)}
    for each in about.others:
        name = describe_plan(each.plan)
        if len(plans) <= OTHER_PLANS and name not in seen and each.cost.cpu_per_s <= MAX_TIMES * _cpu(about):
            plans.append(each.plan)
            seen.add(name)
    spent = dict.fromkeys(range(len(plans)), math.inf)
    for _ in range(2):
        for number, plan in enumerate(plans):
            spent[number] = min(spent[number], run_query(case.query, sources, plan).cpu_s)
    best = min(spent, key=lambda number: spent[number])
    if best:  # once more, so that noise does not decide
        for number in (0, best, 0, best):
            spent[number] = min(spent[number], run_query(case.query, sources, plans[number]).cpu_s)
    return max(1.0, spent[0] / spent[best]), plans[best]


def _cpu(about: Explanation) -> float:
    return about.chosen.cost.cpu_per_s


def describe_plan(plan: Plan) -> str:
    """Describe the algorithm and the structures of a plan.

    >>> describe_plan(wm.plan("window-join", indexes={"a": "hash(5)"}))
    'window-join (a hash)'
    """
    knobs = ", ".join(f"{alias} {index.kind}" for alias, index in plan.indexes) or ", ".join(plan.early)
    return f"{plan.algorithm} ({knobs})" if knobs else plan.algorithm


def _find_span_s(sources: Sources) -> float:
    """Return the seconds from the first event to the last."""
    firsts, lasts = list[int](), list[int]()
    for name, source in sources.items():
        assert isinstance(source, Stream)
        times = [extract_event_times_us(name, table, source.time, source.unit) for table in source.batches()]
        filled = np.concatenate(times)
        firsts.append(int(filled.min()))
        lasts.append(int(filled.max()))
    return (max(lasts) - min(firsts)) / 1e6
