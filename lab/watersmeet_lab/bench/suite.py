"""Benchmarks by name.

Each benchmark yields its findings from one run. A comparison fails if the systems return different rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError, listing
from watersmeet_lab.bench import early_aggregation as early
from watersmeet_lab.bench import regret_measurement
from watersmeet_lab.bench.aggregation_comparison import compare_aggregation_with_duckdb
from watersmeet_lab.bench.aggregation_workloads import AGGREGATION_WORKLOADS, AggregationWorkload
from watersmeet_lab.bench.catalogue import CATALOGUE, DUCKDB_ONLY
from watersmeet_lab.bench.counting_cost import measure_counting_share
from watersmeet_lab.bench.duckdb_comparison import compare_with_duckdb
from watersmeet_lab.bench.foresight.generated import list_generated_cases
from watersmeet_lab.bench.foresight.measurement import ComparedQuery, measure_case
from watersmeet_lab.bench.foresight.real_data import describe_missing_data, list_real_cases
from watersmeet_lab.bench.foresight.report import format_summary, summarize_forecasts
from watersmeet_lab.bench.growth import batch_count, measure_growth
from watersmeet_lab.bench.join_workloads import CommonKeyStreams, JoinWorkload
from watersmeet_lab.bench.plan_adaptation import measure_adaptation
from watersmeet_lab.bench.planning_time import MAX_PLANNING_S, measure_planning_s
from watersmeet_lab.bench.regret_measurement import list_best_plans, measure_regret
from watersmeet_lab.bench.regret_workloads import REGRET_WORKLOADS
from watersmeet_lab.bench.results import PeerComparison
from watersmeet_lab.papers.kang import limited_strategies
from watersmeet_lab.workloads import golab_streams


@dataclass(frozen=True, slots=True)
class BenchmarkFinding:
    """One line of a benchmark's report, and the same numbers as plain values."""

    text: str
    values: dict[str, Any]
    comparison: PeerComparison | None = None  # set if peers ran too


def run_table_8() -> Iterator[BenchmarkFinding]:
    """Run Table 8 of Golab and Özsu: tuples per second by algorithm, in the best and the worst order.

    The text shows our rates next to the paper's.
    """
    best, worst = (
        golab_streams.table_8_plans(golab_streams.BEST_ORDER),
        golab_streams.table_8_plans(golab_streams.WORST_ORDER),
    )
    for label, (paper_best, paper_worst) in golab_streams.TABLE_8.items():
        golab_streams.run_join(golab_streams.TABLE_5, best[label], 10_000)
        ours = [
            max(golab_streams.run_join(golab_streams.TABLE_5, plan, rows).rows_per_s for _ in range(3))
            for plan, rows in ((best[label], 300_000), (worst[label], 100_000))
        ]
        text = (
            f"{label:<18} best {ours[0]:>11,.0f}/s (paper {paper_best:>6,}; {ours[0] / paper_best:6,.0f} times)"
            f"   worst {ours[1]:>11,.0f}/s (paper {paper_worst:>5,})   best/worst {ours[0] / ours[1]:4.1f}"
        )
        yield BenchmarkFinding(
            text, {"workload": "table-8", "row": label, "best_rows_per_s": ours[0], "worst_rows_per_s": ours[1]}
        )


def run_counters() -> Iterator[BenchmarkFinding]:
    """Measure the cost of exact counters in the nested loops."""
    share = measure_counting_share()
    yield BenchmarkFinding(
        f"counters take {share:.1%} of the eager hash join's time", {"workload": "counters", "share": share}
    )


def run_regret() -> Iterator[BenchmarkFinding]:
    """Measure how far the chosen plan is from the best one on 32 workloads, and plot build/regret.svg."""
    found = []
    for workload in REGRET_WORKLOADS:
        found.append(measure_regret(workload))
        yield BenchmarkFinding(regret_measurement.format_regret(found[-1]), regret_measurement.regret_values(found[-1]))
    yield BenchmarkFinding(
        regret_measurement.format_verdict(found), {"workload": "all", **regret_measurement.summarize_regrets(found)}
    )
    path = regret_measurement.plot_regrets(found, Path("build/regret.svg"))
    yield BenchmarkFinding(f"plot of measured against predicted plan times: {path}", {"plot": str(path)})


#: Length of the streams on which every algorithm is timed: some take a hundred times as long as the best one.
ALGORITHM_SCALE = 0.5


def run_algorithms() -> Iterator[BenchmarkFinding]:
    """Measure the CPU time of every algorithm with its best plan on 32 workloads, and the regret of the choice."""
    found = []
    for workload in REGRET_WORKLOADS:
        found.append(measure_regret(workload, plan_space=list_best_plans, repeats=2, scale=ALGORITHM_SCALE))
        by_algorithm = {each.plan.algorithm: each.measured_s for each in found[-1].timed_plans}
        values = {**regret_measurement.regret_values(found[-1]), "cpu_s": by_algorithm}
        yield BenchmarkFinding(regret_measurement.format_algorithms(found[-1]), values)
    yield BenchmarkFinding(
        regret_measurement.format_verdict(found), {"workload": "all", **regret_measurement.summarize_regrets(found)}
    )


def run_planning() -> Iterator[BenchmarkFinding]:
    """Measure planning time for two to twelve streams."""
    for streams, limit_s in MAX_PLANNING_S.items():
        seconds = measure_planning_s(streams)
        text = f"{streams:>2} streams planned in {seconds * 1e3:7.1f} ms (limit {limit_s * 1e3:,.0f} ms)"
        yield BenchmarkFinding(text, {"workload": "planning", "streams": streams, "seconds": seconds})


def run_early_aggregation() -> Iterator[BenchmarkFinding]:
    """Time all placements of early aggregation, then measure the time per row as matches per row grow.

    The settings are the default of Tran and Lee, and, for each plan, a setting in which it is the best.
    """
    for setting in (early.PAPER_SETTING, *early.CLEAR_SETTINGS):
        found = early.rank_placements(setting)
        times = "  ".join(f"{name} {seconds * 1e3:8.1f} ms" for name, seconds in found.seconds.items())
        text = (
            f"{setting.name:<8} {times}   best {found.best} by {found.margin - 1:.0%}, chosen {found.chosen}, "
            f"best early plan {found.gain:.1f} times as fast as the late plan"
        )
        values = {
            "workload": "early-aggregation",
            "setting": setting.name,
            "seconds": found.seconds,
            "picked": found.chosen,
        }
        yield BenchmarkFinding(text, {**values, "best": found.best, "margin": found.margin, "gain": found.gain})
    smallest = None
    for matches in (300, 1000, 3000):
        per_row = early.measure_seconds_per_row(matches)
        smallest = smallest or per_row
        text = (
            f"{matches:>5} matches per row  {per_row * 1e9:7.1f} ns per row  {per_row / smallest:5.2f} times the "
            "smallest case"
        )
        yield BenchmarkFinding(text, {"workload": "early-aggregation", "matches": matches, "seconds_per_row": per_row})


def run_allocation() -> Iterator[BenchmarkFinding]:
    """Compare predicted and measured output rates of every strategy in Figures 5 to 7 of Kang et al.."""
    for bar in limited_strategies.measure_strategies():
        text = (
            f"figure {bar.figure}  {bar.strategy:<12} predicted {bar.predicted_per_s:6.1f}/s   measured "
            f"{bar.measured_per_s:6.1f}"
        )
        yield BenchmarkFinding(text, {"workload": "allocation", **asdict(bar)})


def run_adaptive() -> Iterator[BenchmarkFinding]:
    """Measure CPU per batch after a rate jumps fifty-fold in the middle of a run.

    Compare with a run that has the right plan from the start, and with one that keeps the wrong plan.
    """
    found = measure_adaptation()
    text = (
        f"adaptive: {found.adaptive_s * 1e3:.2f} ms per batch after the jump, {found.ratio:.2f} times the right plan's"
        f" {found.right_s * 1e3:.2f} ms; the plan from before the jump takes {found.wrong_s * 1e3:.2f} ms\n"
        + "\n".join(f"  {decision}" for decision in found.decisions)
        + f"\n  on steady streams, the plan changed {found.steady_changes} times after the windows had filled"
    )
    values = {
        "adaptive_s": found.adaptive_s,
        "right_s": found.right_s,
        "wrong_s": found.wrong_s,
        "steady_changes": found.steady_changes,
    }
    yield BenchmarkFinding(
        text, {"workload": "adaptive", **values, "decisions": [decision.to_dict() for decision in found.decisions]}
    )


BENCHMARKS: dict[str, Callable[[], Iterator[BenchmarkFinding]]] = {
    "table-8": run_table_8,
    "counters": run_counters,
    "regret": run_regret,
    "algorithms": run_algorithms,
    "planning": run_planning,
    "early-aggregation": run_early_aggregation,
    "allocation": run_allocation,
    "adaptive": run_adaptive,
}


#: Names of groups of benchmarks.
ALL, PEERS = "all", "peers"


def run_benchmarks(
    name: str, scale: float = 1.0, done: Container[str] = (), excluded_peers: Sequence[str] = ()
) -> Iterator[BenchmarkFinding]:
    """Run the benchmark or group of benchmarks with this name, except benchmarks in `done`.

    `scale` shortens the streams of the benchmarks against peers, for a quick look.
    """
    against_peers: dict[str, Callable[[], Iterator[BenchmarkFinding]]] = {
        **{each: partial(_run_against_duckdb, workload, scale) for each, workload in DUCKDB_ONLY.items()},
        **{each: partial(_run_against_peers, workload, scale, excluded_peers) for each, workload in CATALOGUE.items()},
        **{name: partial(_run_aggregation, each, scale) for name, each in AGGREGATION_WORKLOADS.items()},
        "aggregation-join": partial(_run_aggregation_join, scale),
    }
    known = (
        BENCHMARKS
        | {
            "growth": partial(_run_growth, scale),
            "overload": partial(_run_overload_benchmark, scale),
            "foresight": partial(_run_foresight, scale),
        }
        | against_peers
    )
    groups = {ALL: known, PEERS: against_peers}
    if name not in known and name not in groups:
        raise InputError(f'there is no benchmark "{name}"', hint=f"benchmarks: {listing([*known, *groups])}")
    for chosen in groups.get(name, [name]):
        if chosen not in done:
            yield from known[chosen]()


def _run_foresight(scale: float) -> Iterator[BenchmarkFinding]:
    """Compare forecasts with measurements, on generated and on real streams."""
    groups: dict[str, Iterator[ComparedQuery]] = {"generated": list_generated_cases(scale), "real": list_real_cases()}
    summaries: dict[str, Any] = {}
    for group, cases in groups.items():
        found = []
        for case in cases:
            found.append(measure_case(case))
            yield BenchmarkFinding(str(found[-1]), found[-1].to_dict())
        if found:
            summaries[group] = summarize_forecasts(found)
    notice = describe_missing_data()
    text = "\n".join(format_summary(group, summary) for group, summary in summaries.items())
    text = text if notice is None else f"{text}\n{notice}"
    yield BenchmarkFinding(text, {"workload": "foresight", "case": "all", "skipped": notice, **summaries})


def _run_growth(scale: float) -> Iterator[BenchmarkFinding]:
    """Measure time per row as windows, streams and matches grow."""

    def on_spark(workload: CommonKeyStreams) -> float:
        from watersmeet_lab.bench.spark.peer_comparison import run_watersmeet_on_spark
        from watersmeet_lab.bench.spark.streaming_run import benchmark_session

        return (
            1
            / run_watersmeet_on_spark(
                benchmark_session(), workload.workload("growth", batch_count(workload))
            ).rows_per_s
        )

    for point in measure_growth(scale, on_spark):
        yield BenchmarkFinding(str(point), point.to_dict())


def _run_against_duckdb(workload: Callable[[float], JoinWorkload], scale: float) -> Iterator[BenchmarkFinding]:
    """Compare the embedded engine with DuckDB in one process."""
    found = compare_with_duckdb(workload(scale))
    yield BenchmarkFinding(str(found), found.to_dict(), found)


def _run_against_peers(
    workload: Callable[[float], JoinWorkload], scale: float, excluded_peers: Sequence[str]
) -> Iterator[BenchmarkFinding]:
    """Compare Watersmeet on Spark and embedded with all peers."""
    from watersmeet_lab.bench.spark.peer_comparison import compare_with_peers

    scaled = workload(scale)
    excluded = {**scaled.excluded_peers, **dict.fromkeys(excluded_peers, "excluded by --without in this run")}
    found = compare_with_peers(replace(scaled, excluded_peers=excluded))
    yield BenchmarkFinding(str(found), found.to_dict(), found.comparison)


def _run_aggregation(workload: AggregationWorkload, scale: float) -> Iterator[BenchmarkFinding]:
    """Compare an aggregation over a join on the embedded engine with DuckDB."""
    found = compare_aggregation_with_duckdb(workload, scale)
    yield BenchmarkFinding(str(found), found.to_dict(), found.comparison)


def _run_aggregation_join(scale: float) -> Iterator[BenchmarkFinding]:
    """Compare counts per group over a join with Spark's own join and windowed count."""
    from watersmeet_lab.bench.spark.count_join import CountJoinWorkload, compare_counts_with_spark

    found = compare_counts_with_spark(CountJoinWorkload(batches=max(3, round(CountJoinWorkload().batches * scale))))
    yield BenchmarkFinding(str(found), found.to_dict(), found.comparison)


def _run_overload_benchmark(scale: float) -> Iterator[BenchmarkFinding]:
    """Feed a query on Spark twice the rows it can sustain.

    Report batch times, the share of results kept, and the share that the cost model considers possible.
    """
    from watersmeet_lab.bench.spark.overload import OverloadWorkload, run_overload

    found = run_overload(OverloadWorkload(batches=max(8, round(OverloadWorkload().batches * scale))))
    yield BenchmarkFinding(str(found), found.to_dict())
