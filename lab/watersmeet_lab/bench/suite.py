"""The benchmarks by name: each prints what it measures, in one run, and refuses figures whose rows differ."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError, listing
from watersmeet_lab.bench import early_aggregation as early
from watersmeet_lab.bench import regret_measurement
from watersmeet_lab.bench.catalogue import CATALOGUE, DUCKDB_ONLY
from watersmeet_lab.bench.counting_cost import measure_counting_share
from watersmeet_lab.bench.duckdb_comparison import compare_with_duckdb
from watersmeet_lab.bench.growth import batch_count, measure_growth
from watersmeet_lab.bench.join_workloads import CommonKeyStreams, JoinWorkload
from watersmeet_lab.bench.plan_adaptation import measure_adaptation
from watersmeet_lab.bench.planning_time import MAX_PLANNING_S, measure_planning_s
from watersmeet_lab.bench.regret_measurement import measure_regret
from watersmeet_lab.bench.regret_workloads import REGRET_WORKLOADS
from watersmeet_lab.bench.results import PeerComparison
from watersmeet_lab.papers.kang import limited_strategies
from watersmeet_lab.workloads import golab_streams


@dataclass(frozen=True, slots=True)
class BenchmarkFinding:
    """A line of a benchmark's report, and the same as plain values."""

    text: str
    values: dict[str, Any]
    comparison: PeerComparison | None = None  # where peers ran as well


def run_table_8() -> Iterator[BenchmarkFinding]:
    """The first paper's Table 8: tuples per second by algorithm, best and worst order, ours beside the paper's."""
    best, worst = (
        golab_streams.table_8_plans(golab_streams.BEST_ORDER),
        golab_streams.table_8_plans(golab_streams.WORST_ORDER),
    )
    for label, (paper_best, paper_worst) in golab_streams.TABLE_8.items():
        golab_streams.run_join(golab_streams.TABLE_5, best[label], 10_000)
        ours = [max(golab_streams.run_join(golab_streams.TABLE_5, plan, rows).rows_per_s for _ in range(3)) for plan, rows in
                ((best[label], 300_000), (worst[label], 100_000))]  # fmt: skip
        text = (
            f"{label:<18} best {ours[0]:>11,.0f} per s (paper {paper_best:>6,}; {ours[0] / paper_best:6,.0f} times)"
            f"   worst {ours[1]:>11,.0f} per s (paper {paper_worst:>5,})   best/worst {ours[0] / ours[1]:4.1f}"
        )
        yield BenchmarkFinding(
            text, {"workload": "table-8", "row": label, "best_rows_per_s": ours[0], "worst_rows_per_s": ours[1]}
        )


def run_counters() -> Iterator[BenchmarkFinding]:
    """What exact counters cost the nested loops."""
    share = measure_counting_share()
    yield BenchmarkFinding(
        f"counting takes {share:.1%} of the eager hash join's time", {"workload": "counters", "share": share}
    )


def run_regret() -> Iterator[BenchmarkFinding]:
    """How far the chosen plan is from the best of its space, on 32 workloads; also drawn, in build/regret.svg."""
    found = []
    for workload in REGRET_WORKLOADS:
        found.append(measure_regret(workload))
        yield BenchmarkFinding(regret_measurement.format_regret(found[-1]), regret_measurement.regret_values(found[-1]))
    yield BenchmarkFinding(
        regret_measurement.format_verdict(found), {"workload": "all", **regret_measurement.summarize_regrets(found)}
    )
    path = regret_measurement.plot_regrets(found, Path("build/regret.svg"))
    yield BenchmarkFinding(f"measured against predicted times of all plans: {path}", {"plot": str(path)})


def run_planning() -> Iterator[BenchmarkFinding]:
    """What finding a plan takes, for two to twelve streams."""
    for streams, bar_s in MAX_PLANNING_S.items():
        seconds = measure_planning_s(streams)
        text = f"{streams:>2} streams planned in {seconds * 1e3:7.1f} ms (bar {bar_s * 1e3:,.0f} ms)"
        yield BenchmarkFinding(text, {"workload": "planning", "streams": streams, "seconds": seconds})


def run_early_aggregation() -> Iterator[BenchmarkFinding]:
    """The fourth paper's default setting, and one in which each plan is the best: all plans, the pick, and time against
    matches per row.
    """
    for setting in (early.PAPER_SETTING, *early.CLEAR_SETTINGS):
        found = early.rank_placements(setting)
        times = "  ".join(f"{name} {seconds * 1e3:8.1f} ms" for name, seconds in found.seconds.items())
        text = (
            f"{setting.name:<8} {times}   best {found.best} by {found.margin - 1:.0%}, picked {found.chosen}, "
            f"best early {found.gain:.1f} times the late plan"
        )
        values = {
            "workload": "early-aggregation",
            "setting": setting.name,
            "seconds": found.seconds,
            "picked": found.chosen,
        }
        yield BenchmarkFinding(text, {**values, "best": found.best, "margin": found.margin, "gain": found.gain})
    first = None
    for matches in (300, 1000, 3000):
        per_row = early.measure_seconds_per_row(matches)
        first = first or per_row
        text = f"{matches:>5} matches per row  {per_row * 1e9:7.1f} ns per row  {per_row / first:5.2f} times the fewest matches'"
        yield BenchmarkFinding(text, {"workload": "early-aggregation", "matches": matches, "seconds_per_row": per_row})


def run_allocation() -> Iterator[BenchmarkFinding]:
    """The third paper's Figures 5 to 7: rows out per second of every strategy, predicted and measured."""
    for bar in limited_strategies.measure_strategies():
        text = f"figure {bar.figure}  {bar.strategy:<12} predicted {bar.predicted_per_s:6.1f} per s   measured {bar.measured_per_s:6.1f}"
        yield BenchmarkFinding(text, {"workload": "allocation", **asdict(bar)})


def run_adaptive() -> Iterator[BenchmarkFinding]:
    """A rate that jumps fifty-fold mid-run: CPU per batch afterwards, beside the right plan from the start and the
    wrong one kept.
    """
    found = measure_adaptation()
    text = (
        f"adaptive: {found.adaptive_s * 1e3:.2f} ms per batch after the jump, {found.ratio:.2f} times the right plan's"
        f" {found.right_s * 1e3:.2f} ms; the plan before the jump takes {found.wrong_s * 1e3:.2f} ms\n"
        + "\n".join(f"  {decision}" for decision in found.decisions)
        + f"\n  on steady streams the plan changed {found.steady_changes} times once windows were full"
    )
    values = {
        "adaptive_s": found.adaptive_s,
        "right_s": found.right_s,
        "wrong_s": found.wrong_s,
        "steady_changes": found.steady_changes,
    }
    yield BenchmarkFinding(
        text, {"workload": "adaptive", **values, "decisions": [each.to_dict() for each in found.decisions]}
    )


BENCHMARKS: dict[str, Callable[[], Iterator[BenchmarkFinding]]] = {
    "table-8": run_table_8,
    "counters": run_counters,
    "regret": run_regret,
    "planning": run_planning,
    "early-aggregation": run_early_aggregation,
    "allocation": run_allocation,
    "adaptive": run_adaptive,
}


#: Names for several benchmarks at once.
ALL, PEERS = "all", "peers"


def run_benchmarks(
    name: str, scale: float = 1.0, done: Container[str] = (), without: Sequence[str] = ()
) -> Iterator[BenchmarkFinding]:
    """The findings of one benchmark, of those beside peers, or of all, but for those that are `done`.

    `scale` shortens the streams of those beside peers, for a quick look; peers named in `without` are left out.
    """
    beside_peers: dict[str, Callable[[], Iterator[BenchmarkFinding]]] = {
        **{each: partial(_run_against_duckdb, workload, scale) for each, workload in DUCKDB_ONLY.items()},
        **{each: partial(_run_against_peers, workload, scale, without) for each, workload in CATALOGUE.items()},
        "aggregation-join": partial(_run_aggregation_join, scale),
    }
    known = (
        BENCHMARKS
        | {"growth": partial(_run_growth, scale), "overload": partial(_run_overload_benchmark, scale)}
        | beside_peers
    )
    groups = {ALL: known, PEERS: beside_peers}
    if name not in known and name not in groups:
        raise InputError(f'there is no benchmark "{name}"', hint=f"benchmarks: {listing([*known, *groups])}")
    for chosen in groups.get(name, [name]):
        if chosen not in done:
            yield from known[chosen]()


def _run_growth(scale: float) -> Iterator[BenchmarkFinding]:
    """Our time per row as windows, streams and matches grow."""

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
    """The embedded engine beside DuckDB, in one process."""
    found = compare_with_duckdb(workload(scale))
    yield BenchmarkFinding(str(found), found.to_dict(), found)


def _run_against_peers(
    workload: Callable[[float], JoinWorkload], scale: float, without: Sequence[str]
) -> Iterator[BenchmarkFinding]:
    """Ours on Spark and embedded beside all peers."""
    from watersmeet_lab.bench.spark.peer_comparison import compare_with_peers

    asked = workload(scale)
    found = compare_with_peers(
        replace(
            asked, excluded_peers={**asked.excluded_peers, **dict.fromkeys(without, "it was not asked in this run")}
        )
    )
    yield BenchmarkFinding(str(found), found.to_dict(), found.comparison)


def _run_aggregation_join(scale: float) -> Iterator[BenchmarkFinding]:
    """Counts per group over a join, beside Spark's own join and windowed count."""
    from watersmeet_lab.bench.spark.count_join import CountJoinWorkload, compare_counts_with_spark

    found = compare_counts_with_spark(CountJoinWorkload(batches=max(3, round(CountJoinWorkload().batches * scale))))
    yield BenchmarkFinding(str(found), found.to_dict(), found.comparison)


def _run_overload_benchmark(scale: float) -> Iterator[BenchmarkFinding]:
    """A query on Spark flooded with twice what it can take: batch times, what is kept, and what the model says could
    be.
    """
    from watersmeet_lab.bench.spark.overload import OverloadWorkload, run_overload

    found = run_overload(OverloadWorkload(batches=max(8, round(OverloadWorkload().batches * scale))))
    yield BenchmarkFinding(str(found), found.to_dict())
