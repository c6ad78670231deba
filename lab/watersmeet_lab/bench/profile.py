"""Where our time goes on a workload: by kernel and by operator embedded, by phase of a batch on Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import watersmeet as wm
from watersmeet.errors import InputError, listing
from watersmeet.kernels.compile import kernel_times
from watersmeet.runtime.embedded.metrics import collect_with_metrics
from watersmeet_lab.bench.catalogue import CATALOGUE, FINITE
from watersmeet_lab.bench.embedded import WARM_UP_ROWS, collect_ours
from watersmeet_lab.bench.workloads import Workload, opening


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds by part. Parts of one table need not add up to the whole: operators are seconds of CPU, kernels are
    inside operators.
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


def profiled(name: str, scale: float) -> Iterator[Profile]:
    """Embedded, and on Spark unless the workload is one of the engine alone."""
    known = CATALOGUE | FINITE
    if name not in known:
        raise InputError(f'there is no workload "{name}" to profile', hint=f"workloads: {listing(list(known))}")
    workload = known[name](scale)
    yield embedded_profile(workload)
    if name in CATALOGUE:
        yield _on_spark(workload)


def embedded_profile(workload: Workload) -> Profile:
    """One run over the finite tables. Planning and the first build of kernels are not in it."""
    tables = workload.tables()
    collect_ours(workload, opening(tables, WARM_UP_ROWS))
    run = wm.run(workload.join.ours(), {name: wm.stream(table, time="ts", unit="us") for name, table in tables.items()})
    operators: dict[str, float] = {}
    start = time.perf_counter()
    with kernel_times() as kernels:
        collect_with_metrics(
            run,
            lambda figures: operators.update({n: operators.get(n, 0.0) + s for n, s in figures.operators_s.items()}),
        )
    whole_s = time.perf_counter() - start
    by_kernel = {f"{name} ({kernels.calls[name]:,} calls)": seconds for name, seconds in kernels.seconds.items()}
    by_kernel["outside kernels"] = whole_s - sum(kernels.seconds.values())
    return Profile(
        workload.name, "embedded", whole_s, {"operators": _descending(operators), "kernels": _descending(by_kernel)}
    )


def _on_spark(workload: Workload) -> Profile:
    from watersmeet_lab.bench.spark.beside import ours_on_spark
    from watersmeet_lab.bench.spark.profile import by_batch, phases
    from watersmeet_lab.bench.spark.session import session

    ran = ours_on_spark(session(), workload)
    tables = {"a batch, on average": phases(ran)}
    tables |= {f"batch {number}, summed over cores": spent for number, spent in enumerate(by_batch(ran), start=1)}
    return Profile(workload.name, "on Spark", tables["a batch, on average"]["whole trigger"], tables)


def _descending(parts: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(parts.items(), key=lambda part: -part[1]))
