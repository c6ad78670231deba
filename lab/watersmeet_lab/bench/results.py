"""Benchmark results as values: every system on one workload, its environment, and differences between two runs."""

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
    """Measurements of one system on one workload. A measurement that is not available is None.

    Latency runs from the start of a batch until its rows are written. `peak_bytes` is the peak memory of its processes.
    """

    name: str
    rows_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_bytes: int | None = None
    state_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.rows_per_s > 0:
            raise WatersmeetError(f"{self.name} processed no rows, so there is nothing to compare")


@dataclass(frozen=True, slots=True)
class PeerComparison:
    """Results of all systems on one workload, after checking that their rows are the same.

    `skipped` gives the reason for each missing system; `note` is a remark for the reader.

    >>> speeds = {"watersmeet-spark": 800.0, "spark-rocksdb": 50.0, "spark-hdfs": 100.0}
    >>> systems = tuple(SystemResult(name, rows_per_s) for name, rows_per_s in speeds.items())
    >>> PeerComparison("two-way", 1000, 40, 0, systems).ratio
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
        """Our result: on Spark if we ran there, else embedded."""
        return next(system for name in OURS for system in self.systems if system.name == name)

    @property
    def ratio(self) -> dict[str, float]:
        """Ratio of our speed (on Spark if we ran there, else embedded) to the best speed of each peer."""
        best = {peer: [s.rows_per_s for s in self.systems if s.name.partition("-")[0] == peer] for peer in PEER_SYSTEMS}
        return {peer: self.ours.rows_per_s / max(speeds) for peer, speeds in best.items() if speeds}

    def __str__(self) -> str:
        lines = [
            f"{self.workload}: {self.rows_in:,} rows in, {self.rows_out:,} out, identical in all systems",
            f"  {_HEADER}",
        ]
        lines += [f"  {_format_system(each)}" for each in self.systems]
        lines += [f"  {peer} skipped: {reason}" for peer, reason in self.skipped.items()]
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
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> PeerComparison:
        systems = tuple(SystemResult(**system) for system in saved["systems"])
        return cls(
            saved["workload"],
            saved["rows_in"],
            saved["rows_out"],
            saved["seed"],
            systems,
            skipped=saved.get("skipped", {}),
            note=saved.get("note", saved.get("said", "")),  # older files have the key "said"
        )


def save_comparison(comparison: PeerComparison, folder: Path) -> Path:
    """Write one file per workload, with the machine, the versions and the commit."""
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
    """Return a saved comparison."""
    text = read_text_file(path, "benchmark file")
    try:
        return PeerComparison.from_dict(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'"{path}" is not a saved benchmark: {error}', hint="watersmeet bench NAME --save FOLDER writes one"
        ) from None


def list_differences(before: PeerComparison, after: PeerComparison) -> Iterator[str]:
    """Yield how each system, and our ratio to each peer, changed between two runs of one workload."""
    if (before.workload, before.rows_in, before.seed) != (after.workload, after.rows_in, after.seed):
        raise InputError(f"{before.workload} and {after.workload} are not the same workload with the same rows")
    previous = {system.name: system for system in before.systems}
    for system in after.systems:
        if system.name in previous:
            change = system.rows_per_s / previous[system.name].rows_per_s
            yield (
                f"{system.name:<20} {previous[system.name].rows_per_s:>12,.0f} → {system.rows_per_s:>12,.0f} rows "
                f"per s   {change:5.2f} times"
            )
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
    """Return the cores, memory, architecture and operating system of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "architecture": platform.machine(),
        "system": platform.system(),
    }


def list_versions() -> dict[str, str]:
    """Return the versions of Python, Flink and the installed packages."""
    found = {"python": platform.python_version(), "apache-flink": FLINK_VERSION}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def current_commit() -> str | None:
    """Return the commit of the sources that ran, with a plus sign if they have local changes."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
