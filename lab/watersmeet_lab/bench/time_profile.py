"""Profile the time of a workload: embedded by kernel and operator, on Spark by phase of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import watersmeet as wm
from watersmeet.errors import InputError, listing
from watersmeet.kernels.compile import time_kernels
from watersmeet.runtime.embedded.run import collect_with_metrics
from watersmeet_lab.bench.catalogue import CATALOGUE, DUCKDB_ONLY
from watersmeet_lab.bench.duckdb_comparison import WARM_UP_ROWS, collect_with_watersmeet
from watersmeet_lab.bench.join_workloads import JoinWorkload, first_rows


@dataclass(frozen=True, slots=True)
class TimeProfile:
    """Seconds by part.

    `parts_s` holds several breakdowns of the same run. Do not add them together: kernels run inside operators.
    Operators are CPU seconds, so they may exceed the total.
    """

    workload: str
    engine: str
    whole_s: float
    parts_s: Mapping[str, Mapping[str, float]]

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.workload} {self.engine}: {self.whole_s:.3f} s"]
        for title, parts in self.parts_s.items():
            lines.append(f"  {title}")
            lines += [
                f"    {name:<38} {seconds:8.3f} s  {seconds / self.whole_s:6.1%}" for name, seconds in parts.items()
            ]
        return "\n".join(lines)


def profile_workload(name: str, scale: float) -> Iterator[TimeProfile]:
    """Profile a workload embedded, and on Spark unless it is for the embedded engine only."""
    known = CATALOGUE | DUCKDB_ONLY
    if name not in known:
        raise InputError(f'there is no workload "{name}" to profile', hint=f"workloads: {listing(list(known))}")
    workload = known[name](scale)
    yield profile_embedded(workload)
    if name in CATALOGUE:
        yield _profile_on_spark(workload)


def profile_embedded(workload: JoinWorkload) -> TimeProfile:
    """Profile one run over the finite tables. Planning and kernel compilation are excluded."""
    tables = workload.tables()
    collect_with_watersmeet(workload, first_rows(tables, WARM_UP_ROWS))
    run = wm.run(
        workload.join.to_watersmeet_sql(),
        {name: wm.stream(table, time="ts", unit="us") for name, table in tables.items()},
    )
    operators: dict[str, float] = {}
    start = time.perf_counter()
    with time_kernels() as kernels:
        collect_with_metrics(
            run,
            lambda metrics: operators.update({n: operators.get(n, 0.0) + s for n, s in metrics.operators_s.items()}),
        )
    whole_s = time.perf_counter() - start
    by_kernel = {f"{name} ({kernels.calls[name]:,} calls)": seconds for name, seconds in kernels.seconds.items()}
    by_kernel["outside kernels"] = whole_s - sum(kernels.seconds.values())
    return TimeProfile(
        workload.name,
        "embedded",
        whole_s,
        {"operators": _sort_descending(operators), "kernels": _sort_descending(by_kernel)},
    )


def _profile_on_spark(workload: JoinWorkload) -> TimeProfile:
    from watersmeet_lab.bench.spark.peer_comparison import run_watersmeet_on_spark
    from watersmeet_lab.bench.spark.streaming_run import benchmark_session, mean_phase_seconds, phase_seconds_by_batch

    ran = run_watersmeet_on_spark(benchmark_session(), workload)
    tables = {"mean batch": mean_phase_seconds(ran)}
    tables |= {
        f"batch {number}, summed over cores": spent for number, spent in enumerate(phase_seconds_by_batch(ran), start=1)
    }
    return TimeProfile(workload.name, "on Spark", tables["mean batch"]["whole trigger"], tables)


def _sort_descending(parts: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(parts.items(), key=lambda part: -part[1]))
