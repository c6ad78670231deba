"""Measure every plan of a workload's plan space, and report the regret of the chosen plan.

CPU time is the best of several repeats, and all plans must return the same rows. The report is a table, a summary and a
plot.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import WatersmeetError
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.search import enumerate_plans
from watersmeet.planner.workload import ArrivalPattern
from watersmeet.runtime.embedded import run as embedded
from watersmeet.runtime.planning import explain_sample, read_planning_sample
from watersmeet.sources.declarations import bind_query
from watersmeet_lab.bench.expected_rows import have_same_rows
from watersmeet_lab.bench.regret_workloads import RegretWorkload

#: Plans that are predicted to take longer are counted but not run. The workloads are sized so that there are none.
MAX_PREDICTED_S = 60.0

#: A plan that takes this many times the best time is not repeated.
SLOW_FACTOR = 3.0

#: Number of fastest plans that are measured again, in turns with the chosen plan. Regret is a ratio of two of these
#: times, so noise must not decide it.
FINALISTS = 6
#: Limits that the suite must meet.
MAX_MEDIAN_REGRET, MAX_WORST_REGRET, MIN_MEDIAN_CORRELATION = 1.05, 1.3, 0.9


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A plan with its predicted and its measured CPU time for the whole workload."""

    plan: Plan
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class RegretMeasurement:
    """Measurements of one workload: the chosen plan, and every plan measured.

    `excluded_plans` counts plans that were not run because their predicted time is too long.
    """

    workload: str
    stream_count: int
    chosen: TimedPlan
    timed_plans: tuple[TimedPlan, ...]
    excluded_plans: int

    @property
    def best(self) -> TimedPlan:
        return min(self.timed_plans, key=lambda each: each.measured_s)

    @property
    def regret(self) -> float:
        """Measured time of the chosen plan divided by that of the best one."""
        return self.chosen.measured_s / self.best.measured_s

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured times."""
        return rank_correlation(
            [each.predicted_s for each in self.timed_plans], [each.measured_s for each in self.timed_plans]
        )


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Return Pearson's correlation of the ranks; equal values share their mean rank.

    >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    first, second = _centered_ranks(np.asarray(left, np.float64)), _centered_ranks(np.asarray(right, np.float64))
    norm = float(np.sqrt(np.square(first).sum() * np.square(second).sum()))
    return round(float((first * second).sum()) / norm, 12) if norm else 1.0


def _centered_ranks(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, side="right") - 1) / 2
    return np.asarray(ranks - ranks.mean(), np.float64)


def explain_workload(
    workload: RegretWorkload, tables: dict[str, pa.Table], seconds: float
) -> tuple[BoundQuery, Explanation]:
    """Explain the workload with its rows as the sample and its batches as the arrival pattern."""
    sources = {alias: wm.stream(table, time="ts", unit="us") for alias, table in tables.items()}
    bound = bind_query(workload.query, sources)
    arrivals = ArrivalPattern(seconds / workload.batches, seconds, is_assumed=False)
    return bound, explain_sample(bound, read_planning_sample(bound, sources), {}, arrivals=arrivals)


#: Returns the plans of a space, given a query, what `explain` says of it, and a profile.
PlanSpace = Callable[[BoundQuery, Explanation, Profile], Iterable[Plan]]


def draw_plans(bound: BoundQuery, explanation: Explanation, profile: Profile, *, most: int = 200) -> list[Plan]:
    """Return all plans of a query, or a random choice of `most` plans: any order, any index."""
    return enumerate_plans(bound, explanation.config, explanation.workload, profile, most)


def list_best_plans(bound: BoundQuery, explanation: Explanation, profile: Profile) -> list[Plan]:
    """Return the plan of every algorithm that its cost model calls cheapest."""
    best: dict[str, Plan] = {}
    for plan in (explanation.plan, *(each.plan for each in explanation.others)):
        best.setdefault(plan.algorithm, plan)
    return list(best.values())


def measure_regret(
    workload: RegretWorkload,
    *,
    plan_space: PlanSpace = draw_plans,
    repeats: int = 3,
    scale: float = 1.0,
    profile: Profile | None = None,
) -> RegretMeasurement:
    """Measure the chosen plan and the plans of the space.

    The fastest plans are measured again, in turns, to keep noise out of the ratio.
    """
    rounds, seconds = workload.rounds(scale), workload.seconds * scale
    tables = {alias: pa.concat_tables([each[alias] for each in rounds]) for alias in workload.aliases}
    bound, explanation = explain_workload(workload, tables, seconds)
    profile = profile or explanation.profile
    plans = dict.fromkeys((explanation.plan, *plan_space(bound, explanation, profile)))
    predicted = {
        plan: cost_plan(explanation.config, explanation.workload, profile, plan).cost.cpu_per_s * seconds
        for plan in plans
    }
    candidates = [plan for plan in plans if predicted[plan] <= MAX_PREDICTED_S or plan == explanation.plan]
    expected = _run_plan(workload, tables, rounds, explanation.plan)[0]
    gc.freeze()  # later collections skip all objects that exist now
    spent: dict[Plan, float] = {}
    for plan in candidates:
        rows, spent[plan] = _run_plan(workload, tables, rounds, plan)
        if not have_same_rows(rows, expected):
            raise WatersmeetError(f"{workload.name}: {plan} and {explanation.plan} return different rows")
    for _ in range(repeats - 1):
        limit = SLOW_FACTOR * min(spent.values())
        for plan in [each for each in candidates if spent[each] <= limit or each == explanation.plan]:
            spent[plan] = min(spent[plan], _run_plan(workload, tables, rounds, plan)[1])
    finalists = sorted(candidates, key=lambda plan: spent[plan])[:FINALISTS]
    for _ in range(2 * repeats):
        for plan in dict.fromkeys((explanation.plan, *finalists)):
            spent[plan] = min(spent[plan], _run_plan(workload, tables, rounds, plan)[1])
    timed = {plan: TimedPlan(plan, predicted[plan], spent[plan]) for plan in candidates}
    return RegretMeasurement(
        workload.name,
        len(workload.streams),
        timed[explanation.plan],
        tuple(timed.values()),
        len(plans) - len(candidates),
    )


def _run_plan(
    workload: RegretWorkload, tables: dict[str, pa.Table], rounds: list[dict[str, pa.Table]], plan: Plan
) -> tuple[pa.Table, float]:
    run = embedded.start_run(
        workload.query, {alias: wm.stream(table, time="ts", unit="us") for alias, table in tables.items()}, plan
    )
    gc.collect()
    start = time.process_time()
    results = [batch for each in rounds[:-1] for batch in run.advance(each)]
    results += run.advance(rounds[-1], last=True)
    seconds = time.process_time() - start
    return pa.Table.from_batches(results, run.config.result), seconds


def format_regret(found: RegretMeasurement) -> str:
    excluded = f", {found.excluded_plans} excluded as too slow" if found.excluded_plans else ""
    return (
        f"{found.workload:<26} regret {found.regret:5.2f}  correlation {found.correlation:5.2f}  chosen "
        f"{found.chosen.plan.algorithm:<11} {found.chosen.measured_s * 1e3:7.1f} ms  best "
        f"{found.best.plan.algorithm:<11} {found.best.measured_s * 1e3:7.1f} ms  {len(found.timed_plans)} "
        f"plans{excluded}"
    )


def summarize_regrets(found: Sequence[RegretMeasurement]) -> dict[str, float]:
    return {
        "median_regret": statistics.median(each.regret for each in found),
        "worst_regret": max(each.regret for each in found),
        "median_correlation": statistics.median(each.correlation for each in found),
    }


def format_verdict(found: Sequence[RegretMeasurement]) -> str:
    values = summarize_regrets(found)
    return (
        f"{len(found)} workloads: regret median {values['median_regret']:.2f} (limit {MAX_MEDIAN_REGRET:.2f}), worst "
        f"{values['worst_regret']:.2f} (limit {MAX_WORST_REGRET:.2f}), rank correlation median "
        f"{values['median_correlation']:.2f} (at least {MIN_MEDIAN_CORRELATION:.2f})"
    )


def regret_values(found: RegretMeasurement) -> dict[str, object]:
    return {
        "workload": found.workload,
        "streams": found.stream_count,
        "plans": len(found.timed_plans),
        "left_out": found.excluded_plans,
        "regret": found.regret,
        "correlation": found.correlation,
        "chosen": found.chosen.plan.to_dict(),
        "chosen_s": found.chosen.measured_s,
        "best": found.best.plan.to_dict(),
        "best_s": found.best.measured_s,
    }


def format_algorithms(found: RegretMeasurement) -> str:
    """Format the CPU time of every algorithm on a workload, fastest first, as multiples of the fastest."""
    ranked = sorted(found.timed_plans, key=lambda each: each.measured_s)
    times = ", ".join(f"{each.plan.algorithm} {each.measured_s / found.best.measured_s:.3g}" for each in ranked)
    return (
        f"{found.workload:<26} regret {found.regret:5.2f}  chosen {found.chosen.plan.algorithm}, fastest "
        f"{found.best.measured_s * 1e3:.1f} ms; CPU as multiples: {times}"
    )


def plot_regrets(found: Sequence[RegretMeasurement], path: Path) -> Path:
    """Plot measured against predicted time of every plan, one panel per workload, with the chosen plan marked."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise WatersmeetError(
            "the plot needs matplotlib", hint="install the packages in requirements-dev.txt"
        ) from error
    columns = min(6, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(3 * columns, 2.6 * rows), layout="constrained")
    for number, each in enumerate(found):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.loglog(
            [t.predicted_s for t in each.timed_plans],
            [t.measured_s for t in each.timed_plans],
            ".",
            color="#4878a8",
            markersize=3,
        )
        axes.loglog(
            [each.chosen.predicted_s], [each.chosen.measured_s], "o", color="#c44e52", markersize=6, fillstyle="none"
        )
        ends = [min(t.predicted_s for t in each.timed_plans), max(t.predicted_s for t in each.timed_plans)]
        axes.loglog(ends, ends, "-", color="#999999", linewidth=0.7)
        axes.set_title(f"{each.workload}\nregret {each.regret:.2f}, ρ {each.correlation:.2f}", fontsize=8)
        axes.tick_params(labelsize=6)
    figure.supxlabel("predicted, s of CPU")
    figure.supylabel("measured, s of CPU")
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasSVG(figure)
    figure.savefig(path, format="svg")
    return path
