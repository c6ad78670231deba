"""Measures every plan of a workload's space: CPU time, the best of repeats, and the same rows from all."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
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
from watersmeet_lab.bench.expected_rows import have_same_rows
from watersmeet_lab.bench.regret_workloads import RegretWorkload

#: A plan that is predicted to take longer is left out, and counted. Workloads are sized so that there is none.
MAX_PREDICTED_S = 60.0

#: A run that has taken this many times the best one's time is not repeated.
SLOW_FACTOR = 3.0

#: So many of the fastest plans, and the chosen one, are measured again in turns: regret is a ratio of two of them.
FINALISTS = 6


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A plan, its predicted and its measured CPU time for the whole workload."""

    plan: Plan
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class Regret:
    """One workload: what was chosen, every plan measured, and how many were left out as hopeless."""

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
        """Spearman's: of the ranks of predicted and measured times."""
        return rank_correlation(
            [each.predicted_s for each in self.timed_plans], [each.measured_s for each in self.timed_plans]
        )


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's correlation of the ranks; equal values share the mean of theirs.

    >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    first, second = _ranks(np.asarray(left, np.float64)), _ranks(np.asarray(right, np.float64))
    spread = float(np.sqrt(np.square(first).sum() * np.square(second).sum()))
    return round(float((first * second).sum()) / spread, 12) if spread else 1.0


def _ranks(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, side="right") - 1) / 2
    return np.asarray(ranks - ranks.mean(), np.float64)


def explain_workload(
    workload: RegretWorkload, tables: dict[str, pa.Table], seconds: float
) -> tuple[BoundQuery, Explanation]:
    """What the optimizer says of the workload, having seen its rows and knowing how they come."""
    sources = {alias: wm.stream(table, time="ts", unit="us") for alias, table in tables.items()}
    bound = embedded.bind_query(workload.query, sources)
    arriving = ArrivalPattern(seconds / workload.batches, seconds, is_assumed=False)
    return bound, explain_sample(bound, read_planning_sample(bound, sources), {}, arriving=arriving)


def measure_regret(
    workload: RegretWorkload, *, most: int = 200, repeats: int = 3, scale: float = 1.0, profile: Profile | None = None
) -> Regret:
    """The chosen plan beside the plans of the space. The fastest are measured again, in turns, so that luck decides
    nothing.
    """
    rounds, seconds = workload.rounds(scale), workload.seconds * scale
    tables = {alias: pa.concat_tables([each[alias] for each in rounds]) for alias in workload.aliases}
    bound, about = explain_workload(workload, tables, seconds)
    profile = profile or about.profile
    plans = dict.fromkeys((about.plan, *enumerate_plans(bound, about.config, about.workload, profile, most)))
    predicted = {
        plan: cost_plan(about.config, about.workload, profile, plan).cost.cpu_per_s * seconds for plan in plans
    }
    kept = [plan for plan in plans if predicted[plan] <= MAX_PREDICTED_S or plan == about.plan]
    wanted = _run_plan(workload, tables, rounds, about.plan)[0]
    gc.freeze()  # what is there by now stays: collecting before every run looks at the run's own garbage alone
    spent: dict[Plan, float] = {}
    for plan in kept:
        rows, spent[plan] = _run_plan(workload, tables, rounds, plan)
        if not have_same_rows(rows, wanted):
            raise WatersmeetError(f"{workload.name}: {plan} gives other rows than {about.plan}")
    for _ in range(repeats - 1):
        limit = SLOW_FACTOR * min(spent.values())
        for plan in [each for each in kept if spent[each] <= limit or each == about.plan]:
            spent[plan] = min(spent[plan], _run_plan(workload, tables, rounds, plan)[1])
    finalists = sorted(kept, key=lambda plan: spent[plan])[:FINALISTS]
    for _ in range(2 * repeats):
        for plan in dict.fromkeys((about.plan, *finalists)):
            spent[plan] = min(spent[plan], _run_plan(workload, tables, rounds, plan)[1])
    timed = {plan: TimedPlan(plan, predicted[plan], spent[plan]) for plan in kept}
    return Regret(
        workload.name, len(workload.streams), timed[about.plan], tuple(timed.values()), len(plans) - len(kept)
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


#: What the suite is to show.
MAX_MEDIAN_REGRET, MAX_WORST_REGRET, MIN_MEDIAN_CORRELATION = 1.10, 1.5, 0.9


def format_regret(found: Regret) -> str:
    left_out = f", {found.excluded_plans} left out as hopeless" if found.excluded_plans else ""
    return (
        f"{found.workload:<26} regret {found.regret:5.2f}  correlation {found.correlation:5.2f}  chosen {found.chosen.plan.algorithm:<11}"
        f" {found.chosen.measured_s * 1e3:7.1f} ms  best {found.best.plan.algorithm:<11} {found.best.measured_s * 1e3:7.1f} ms"
        f"  {len(found.timed_plans)} plans{left_out}"
    )


def summarize_regrets(found: Sequence[Regret]) -> dict[str, float]:
    return {
        "median_regret": statistics.median(each.regret for each in found),
        "worst_regret": max(each.regret for each in found),
        "median_correlation": statistics.median(each.correlation for each in found),
    }


def format_verdict(found: Sequence[Regret]) -> str:
    values = summarize_regrets(found)
    return (
        f"{len(found)} workloads: regret median {values['median_regret']:.2f} (bar {MAX_MEDIAN_REGRET:.2f}), worst {values['worst_regret']:.2f}"
        f" (bar {MAX_WORST_REGRET:.2f}), rank correlation median {values['median_correlation']:.2f} (bar {MIN_MEDIAN_CORRELATION:.2f})"
    )


def regret_values(found: Regret) -> dict[str, object]:
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


def plot_regrets(found: Sequence[Regret], path: Path) -> Path:
    """Measured against predicted time of every plan, a panel for each workload; the chosen plan is marked."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise WatersmeetError("the plot needs matplotlib", hint="install what requirements-dev.txt names") from error
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
