"""What a benchmark found, as values: every system on one workload, where it ran, and how two such findings differ."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError, WatersmeetError
from watersmeet.files import read_text_file
from watersmeet_lab.bench.flink import FLINK_VERSION

OURS = ("watersmeet-spark", "watersmeet-embedded")
PEER_SYSTEMS = ("spark", "flink", "duckdb")
_PACKAGES = ("pyspark", "pyarrow", "numba", "numpy", "duckdb")


@dataclass(frozen=True, slots=True)
class SystemResult:
    """One system on one workload. Figures it cannot give are None.

    Latency is from a batch's start to its rows being written. `peak_bytes` is the most memory its processes held.
    """

    name: str
    rows_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_bytes: int | None = None
    state_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.rows_per_s > 0:
            raise WatersmeetError(f"{self.name} took no rows, so there is nothing to compare")


@dataclass(frozen=True, slots=True)
class PeerComparison:
    """All systems on one workload, after their rows were found to be the same; `skipped` says who is missing and why,
    `note` what else a reader has to know.

    >>> both = (SystemResult("watersmeet-spark", 800.0), SystemResult("spark-rocksdb", 50.0), SystemResult("spark-hdfs", 100.0))
    >>> PeerComparison("two-way", 1000, 40, 0, both).ratio
    {'spark': 8.0}
    """

    workload: str
    rows_in: int
    rows_out: int
    seed: int
    systems: tuple[SystemResult, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def ours(self) -> SystemResult:
        return next(system for name in OURS for system in self.systems if system.name == name)

    @property
    def ratio(self) -> dict[str, float]:
        """Ours over the best of each peer's settings: on Spark where we ran there, embedded otherwise."""
        best = {peer: [s.rows_per_s for s in self.systems if s.name.partition("-")[0] == peer] for peer in PEER_SYSTEMS}
        return {peer: self.ours.rows_per_s / max(speeds) for peer, speeds in best.items() if speeds}

    def __str__(self) -> str:
        lines = [f"{self.workload}: {self.rows_in:,} rows in, {self.rows_out:,} out, the same from all", f"  {_HEADER}"]
        lines += [f"  {_format_system(each)}" for each in self.systems]
        lines += [f"  {peer} is left out: {reason}" for peer, reason in self.skipped.items()]
        if self.ratio:
            lines.append(
                f"  {self.ours.name} is "
                + ", ".join(f"{ratio:.2f} times {peer}'s best" for peer, ratio in self.ratio.items())
            )
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])

    def to_dict(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "seed": self.seed,
            "systems": [asdict(system) for system in self.systems],
            "ratio": self.ratio,
            "skipped": dict(self.skipped),
            "said": self.note,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> PeerComparison:
        systems = tuple(SystemResult(**system) for system in saved["systems"])
        about = {"skipped": saved.get("skipped", {}), "said": saved.get("said", "")}
        return cls(saved["workload"], saved["rows_in"], saved["rows_out"], saved["seed"], systems, **about)


def save_comparison(comparison: PeerComparison, folder: Path) -> Path:
    """One file per workload, with the machine, the versions and the commit it was measured with."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{comparison.workload}.json"
    path.write_text(
        json.dumps(
            {
                **comparison.to_dict(),
                "machine": describe_machine(),
                "versions": list_versions(),
                "commit": current_commit(),
            },
            indent=2,
        )
        + "\n"
    )
    return path


def load_comparison(path: Path) -> PeerComparison:
    """Return a saved benchmark."""
    text = read_text_file(path, "benchmark file")
    try:
        return PeerComparison.from_dict(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'"{path}" is not a saved benchmark: {error}', hint="watersmeet bench NAME --save FOLDER writes one"
        ) from None


def list_differences(before: PeerComparison, after: PeerComparison) -> Iterator[str]:
    """How each system, and our ratio to each peer, moved between two runs of one workload."""
    if (before.workload, before.rows_in, before.seed) != (after.workload, after.rows_in, after.seed):
        raise InputError(f"{before.workload} and {after.workload} are not the same workload with the same rows")
    was = {system.name: system for system in before.systems}
    for system in after.systems:
        if system.name in was:
            change = system.rows_per_s / was[system.name].rows_per_s
            yield f"{system.name:<20} {was[system.name].rows_per_s:>12,.0f} → {system.rows_per_s:>12,.0f} rows per s   {change:5.2f} times"
        else:
            yield f"{system.name:<20} {'–':>12} → {system.rows_per_s:>12,.0f} rows per s"
    for peer, ratio in after.ratio.items():
        if peer in before.ratio:
            yield f"ours over {peer:<10} {before.ratio[peer]:>12.2f} → {ratio:>12.2f}"


_HEADER = f"{'':<26}{'rows per s':>12}{'p50 ms':>10}{'p99 ms':>10}{'peak MB':>10}{'state MB':>10}"


def _format_system(system: SystemResult) -> str:
    latency = "".join(
        f"{'–' if value is None else format(value, ',.0f'):>10}" for value in (system.p50_ms, system.p99_ms)
    )
    held = "".join(
        f"{'–' if value is None else format(value / 1e6, ',.0f'):>10}"
        for value in (system.peak_bytes, system.state_bytes)
    )
    return f"{system.name:<26}{system.rows_per_s:>12,.0f}{latency}{held}"


def describe_machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "architecture": platform.machine(),
        "system": platform.system(),
    }


def list_versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "apache-flink": FLINK_VERSION}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def current_commit() -> str | None:
    """The commit of the sources that ran, where they are in a repository; with a plus sign when they were changed
    since.
    """
    here = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return told.stdout.strip()
