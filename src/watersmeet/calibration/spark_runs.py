"""Record of streaming queries on Spark: the time of their batches, predicted and measured, on this machine.

Each query that ends adds one entry: the mean time of its last batches, and the parts that the costs of the profile
predict for them. Two factors, one for the driver and one for the tasks, are fitted to the newest entries. They scale
later forecasts of micro-batches. `explain` prints them, and `WATERSMEET_LEARNING=off` switches them off. The file is
bounded and lies next to the profile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from watersmeet.calibration.profiles import profile_path
from watersmeet.errors import InputError
from watersmeet.files import read_text_file, write_atomically
from watersmeet.planner.spark_forecast import NO_CORRECTION, SparkCorrection

#: Entries that the file holds.
MAX_RUNS = 50
#: Weight of the expectation that a factor is 1, relative to one entry.
_PRIOR = 0.05
#: Entries that are off by more than this share count less, so that one slow run does not decide.
_OUTLIER = 0.3
#: Bounds of a factor: a record beyond them says that something else is wrong.
_LEAST, _MOST = 0.1, 20.0


@dataclass(frozen=True, slots=True)
class SparkRun:
    """Mean batch of a query: seconds that the profile predicts for the driver and for the tasks, and its real time."""

    cores: int
    driver_s: float
    tasks_s: float
    measured_s: float


def is_learning() -> bool:
    """Return whether runs are recorded and correct later forecasts."""
    return os.environ.get("WATERSMEET_LEARNING", "on") != "off"


def runs_path() -> Path:
    """Return the file of the record, next to the profile of this machine."""
    return profile_path().with_name("spark-runs.json")


def load_runs() -> tuple[SparkRun, ...]:
    """Return the recorded runs, oldest first. A damaged record counts as empty: the next run replaces it."""
    try:
        return tuple(SparkRun(**each) for each in json.loads(read_text_file(runs_path(), "the record of runs")))
    except (InputError, ValueError, TypeError):
        return ()


def add_run(run: SparkRun) -> None:
    """Add a run to the record, and drop the oldest beyond its bound."""
    write_atomically(runs_path(), json.dumps([asdict(each) for each in (*load_runs(), run)[-MAX_RUNS:]]).encode())


def load_correction(cores: int) -> SparkCorrection:
    """Return the correction that the runs on so many cores lead to; none while nothing is learned."""
    return fit_correction([each for each in load_runs() if each.cores == cores]) if is_learning() else NO_CORRECTION


def fit_correction(runs: Sequence[SparkRun]) -> SparkCorrection:
    """Fit the factors of driver and tasks to relative errors, by least squares in which outliers count less.

    >>> fit_correction([SparkRun(2, 0.5, 0.1, 1.1), SparkRun(2, 0.5, 2.0, 3.1), SparkRun(2, 0.5, 4.0, 5.1)])
    SparkCorrection(driver=1.97, tasks=1.04, runs=3)
    """
    if not runs:
        return NO_CORRECTION
    measured = np.array([each.measured_s for each in runs])
    parts = np.array([[each.driver_s, each.tasks_s] for each in runs]) / measured[:, None]
    weights, factors = np.ones(len(runs)), np.ones(2)
    for _ in range(10):
        weighted = parts * weights[:, None]
        factors = np.linalg.solve(
            weighted.T @ parts + _PRIOR * np.diag([0.1, 1.0]),
            weighted.T @ np.ones(len(runs)) + _PRIOR * np.array([0.1, 1.0]),
        )
        errors = np.abs(parts @ factors - 1)
        weights = np.minimum(1.0, _OUTLIER / np.maximum(errors, 1e-9))
    driver, tasks = (float(f"{min(max(each, _LEAST), _MOST):.3g}") for each in factors)
    return SparkCorrection(driver, tasks, len(runs))
