"""Verdict on a running query: it follows the newest batches, and every change of it is an event.

A host passes the metrics of each batch and gets them back with the verdict. The last report is kept in the checkpoint,
where `watersmeet explain --checkpoint DIR` reads it while the query runs and after it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from watersmeet.calibration.spark_runs import SparkRun, add_run, is_learning
from watersmeet.errors import InputError, WatersmeetError
from watersmeet.events import LOGGER, log_event
from watersmeet.files import read_text_file, write_atomically
from watersmeet.metrics import BatchMetrics
from watersmeet.planner.explain import Explanation
from watersmeet.planner.live_forecast import NO_FORECAST, FirstForecast, LiveBatch, LiveForecast
from watersmeet.planner.live_report import LiveReport, Verdict

#: The report in the checkpoint is at most this old.
SAVE_INTERVAL_S = 1.0
#: Largest report that is read.
_MAX_REPORT_BYTES = 1 << 20


@dataclass
class LiveWatch:
    """Watches the batches of one run. One thread observes them while others read the report.

    `predict` makes the first forecast when the first batch is observed. `trigger_s` is the trigger interval, if there
    is one. `checkpoint` is the directory in which the last report is kept.
    """

    predict: Callable[[], FirstForecast]
    trigger_s: float | None = None
    checkpoint: Path | None = None
    _forecast: LiveForecast | None = None
    _before: BatchMetrics | None = None
    _saved_s: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, metrics: BatchMetrics) -> BatchMetrics:
        """Judge a run after a batch; return the batch's metrics with the verdict."""
        forecast = self._forecast or LiveForecast(self.predict())
        batch, self._before = measure_batch(metrics, self._before, self.trigger_s), metrics
        following = forecast if batch is None else forecast.after(batch)
        with self._lock:
            self._forecast = following
        has_changed = following.verdict is not forecast.verdict
        if has_changed:
            log_verdict(forecast.verdict, following.report())
        if has_changed or metrics.ended_s >= self._saved_s + SAVE_INTERVAL_S:
            self._saved_s = metrics.ended_s
            self.save()
        return replace(metrics, verdict=str(following.verdict))

    @property
    def report(self) -> LiveReport | None:
        """Report after the last batch; None before the first."""
        with self._lock:
            return None if self._forecast is None else self._forecast.report()

    def save(self) -> None:
        """Keep the report in the checkpoint, if there is one."""
        report = self.report
        if self.checkpoint is not None and report is not None and report.batch >= 0:
            write_atomically(report_path(self.checkpoint), json.dumps(report.to_dict()).encode())

    def learn(self) -> None:
        """Add the run to the record of this machine, from which later forecasts of micro-batches learn."""
        mean = None if self._forecast is None else self._forecast.mean_batch
        if mean is not None and self._forecast is not None and is_learning():
            add_run(SparkRun(self._forecast.first.cores, *mean))


def forecast_run(explain: Callable[[], Explanation]) -> FirstForecast:
    """Return the forecast of a run before its start. A query that cannot be explained has none."""
    try:
        return FirstForecast.of(explain())
    except WatersmeetError as error:  # the run itself reports what is wrong with a query
        LOGGER.debug("no forecast from before the start: %s", error)
        return NO_FORECAST


def measure_batch(metrics: BatchMetrics, before: BatchMetrics | None, trigger_s: float | None) -> LiveBatch | None:
    """Return the measurements that a forecast needs; None if the interval in which the rows arrived is unknown.

    The interval is `trigger_s`, or else the time by which the batch advances the largest event time.
    """
    interval_s = trigger_s
    if interval_s is None:
        if before is None or before.newest_us is None or metrics.newest_us is None:
            return None
        interval_s = (metrics.newest_us - before.newest_us) / 1e6
    return LiveBatch(
        metrics.batch,
        metrics.took_s,
        interval_s,
        metrics.rows_in,
        metrics.rows_out,
        metrics.state_rows,
        metrics.state_bytes,
    )


def log_verdict(before: Verdict, report: LiveReport) -> None:
    """Log a verdict that has changed: as a warning if the query no longer certainly keeps up."""
    is_good = report.verdict is Verdict.KEEPS_UP
    log_event(
        logging.INFO if is_good else logging.WARNING,
        "verdict_changed",
        f"batch {report.batch}: {report.sentence}",
        before=str(before),
        **report.to_dict(),
    )


def report_path(checkpoint: Path) -> Path:
    """Return the file of a checkpoint that holds the last report."""
    return checkpoint / "watersmeet" / "live.json"


def read_report(checkpoint: Path) -> LiveReport:
    """Return the last report of the job with this checkpoint."""
    place = report_path(checkpoint)
    if not place.is_file():
        raise InputError(
            f'"{checkpoint}" has no report of a running job', hint="name the checkpoint of a job that has run a batch"
        )
    try:
        return LiveReport.from_dict(json.loads(read_text_file(place, "the report", max_bytes=_MAX_REPORT_BYTES)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f'the report "{place}" is damaged: {error}', hint="the next batch of the job replaces it"
        ) from error
