"""Metrics of a run: of one batch, of all batches so far, and of every row of a stream.

`BatchMetrics` is the same for both hosts: the live view, the dashboard and logs read nothing else. `RunProgress` adds
up batches: totals, recent rates, and the share of a finite input that is done. `Ledger` counts the fate of every row.

A notebook shows a progress bar, which disappears when the run ends. IPython is never imported by us: a process that
runs in a notebook has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.render import html_table
from watersmeet.units import format_bytes, format_count, format_duration, format_percent, format_rate, pluralize

#: Rates are averages over the batches of this many seconds.
RECENT_S = 3.0
_MAX_RECENT_BATCHES = 200


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """Metrics of one batch: rows by stream, duration, state size and watermark.

    `ended_s` is the wall clock at the end of the batch and `took_s` its duration. `operators_s` are CPU seconds by
    operator, named as in the cost model (`ingest a`, `store a`, `probe a`, `emit`, and `batches` for the rest).
    `newest_us` is the largest event time seen so far. `verdict` says whether the run keeps up, once that is known.
    `unreadable` and `empty` are messages of Spark's sources that are no rows: skipped or diverted ones, and those
    without a value.
    """

    batch: int
    ended_s: float
    took_s: float
    rows_in: Mapping[str, int]
    rows_out: int
    state_rows: int
    state_bytes: int
    late: Mapping[str, int] = field(default_factory=dict)
    shed: Mapping[str, int] = field(default_factory=dict)
    watermark_us: int | None = None
    newest_us: int | None = None
    operators_s: Mapping[str, float] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    verdict: str | None = None
    unreadable: Mapping[str, int] = field(default_factory=dict)
    empty: Mapping[str, int] = field(default_factory=dict)

    @property
    def watermark_lag_s(self) -> float | None:
        """Distance of the watermark from the newest event time: how late a row may still arrive."""
        if self.watermark_us is None or self.newest_us is None:
            return None
        return (self.newest_us - self.watermark_us) / 1e6

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as JSON values."""
        return {
            "batch": self.batch,
            "ended_s": self.ended_s,
            "took_s": self.took_s,
            "rows_in": dict(self.rows_in),
            "rows_out": self.rows_out,
            "late": dict(self.late),
            "shed": dict(self.shed),
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "watermark_us": self.watermark_us,
            "newest_us": self.newest_us,
            "watermark_lag_s": self.watermark_lag_s,
            "operators_s": dict(self.operators_s),
            **({} if self.verdict is None else {"verdict": self.verdict}),
        }


#: Called after every batch.
Observer = Callable[[BatchMetrics], None]


def ignore_metrics(metrics: BatchMetrics) -> None:
    """Observe nothing."""


@dataclass
class Ledger:
    """Fate of every row of a stream: `arrived = kept + shed + late`. A late row never counts as shed."""

    arrived: int = 0
    kept: int = 0
    shed: int = 0
    late: int = 0

    def add(self, other: Ledger) -> None:
        self.arrived += other.arrived
        self.kept += other.kept
        self.shed += other.shed
        self.late += other.late


def render_ledger_html(ledger: Mapping[str, Ledger]) -> str:
    """Render the ledger of each stream as a table for a notebook."""
    rows = [(name, *(format_count(count) for count in asdict(entry).values())) for name, entry in ledger.items()]
    return html_table(("stream", "arrived", "kept", "shed", "late"), rows, "ledger")


@dataclass(slots=True)
class MessageLedger:
    """Messages of a stream that are no rows: those that could not be read, and those without a value."""

    unreadable: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Totals of all batches so far, and the recent ones. `total_rows` is the size of a finite input, if it is known.

    A new value replaces the old one after every batch, so other threads always read a consistent one.

    >>> figures = BatchMetrics(0, 10.0, 2.0, {"a": 300, "b": 100}, 40, state_rows=400, state_bytes=6_400)
    >>> progress = RunProgress(total_rows=1_000).after_batch(figures)
    >>> progress.share_done, progress.remaining_s
    (0.4, 3.0)
    """

    total_rows: int | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    shed: int = 0
    recent: tuple[BatchMetrics, ...] = ()

    def after_batch(self, metrics: BatchMetrics) -> RunProgress:
        """Return the progress with the figures of one more batch."""
        since_s = metrics.ended_s - RECENT_S
        recent = (*(each for each in self.recent[1 - _MAX_RECENT_BATCHES :] if each.ended_s > since_s), metrics)
        return replace(
            self,
            batches=self.batches + 1,
            rows_in=self.rows_in + sum(metrics.rows_in.values()),
            rows_out=self.rows_out + metrics.rows_out,
            late=self.late + sum(metrics.late.values()),
            shed=self.shed + sum(metrics.shed.values()),
            recent=recent,
        )

    @property
    def last(self) -> BatchMetrics | None:
        """Metrics of the last batch; None before the first."""
        return self.recent[-1] if self.recent else None

    @property
    def share_done(self) -> float | None:
        """Share of a finite input that is joined; None if its size is unknown."""
        return min(1.0, self.rows_in / self.total_rows) if self.total_rows else None

    @property
    def remaining_s(self) -> float | None:
        """Time that the rest of a finite input takes at the recent rate; None if it is unknown."""
        rate = self.rates()[0]
        return max(0, self.total_rows - self.rows_in) / rate if self.total_rows and rate else None

    def rates(self, now_s: float | None = None) -> tuple[float, float]:
        """Return rows in and rows out per second over the recent batches. They are 0 if the run is idle at `now_s`."""
        if not self.recent or (now_s is not None and self.recent[-1].ended_s < now_s - RECENT_S):
            return 0.0, 0.0
        first, last = self.recent[0], self.recent[-1]
        span_s = max(last.ended_s - first.ended_s + first.took_s, 1e-9)
        rows_in = sum(sum(each.rows_in.values()) for each in self.recent)
        return rows_in / span_s, sum(each.rows_out for each in self.recent) / span_s


def describe_finite_progress(progress: RunProgress) -> str:
    """Describe how much of a finite input is joined, on one line.

    >>> figures = BatchMetrics(0, 10.0, 2.0, {"a": 400}, 40, state_rows=400, state_bytes=6_400)
    >>> describe_finite_progress(RunProgress(total_rows=1_000).after_batch(figures))
    '400 of 1,000 rows (40.0 %), 200 rows/s, 40 rows out, 3 s left'
    """
    of_all = f" of {format_count(progress.total_rows)}" if progress.total_rows else ""
    share, left_s = progress.share_done, progress.remaining_s
    return (
        f"{format_count(progress.rows_in)}{of_all} rows"
        + ("" if share is None else f" ({format_percent(share)})")
        + f", {format_rate(progress.rates()[0])}, {pluralize(progress.rows_out, 'row')} out"
        + (f", {format_duration(round(left_s))} left" if left_s and left_s >= 1 else "")
    )


def describe_continuous_progress(progress: RunProgress, before: RunProgress, interval_s: float) -> str:
    """Describe a run without an end on one line. The rate is that of the rows since `before`.

    >>> figures = BatchMetrics(0, 10.0, 2.0, {"a": 400}, 40, 400, 6_400, watermark_us=5_000_000, newest_us=7_000_000)
    >>> describe_continuous_progress(RunProgress().after_batch(figures), RunProgress(), 4.0)
    '1 batch, 400 rows in (100 rows/s), 40 rows out, 0 late, 0 shed, state 400 rows (6.4 kB), lag 2 s'
    """
    figures = [
        pluralize(progress.batches, "batch"),
        f"{pluralize(progress.rows_in, 'row')} in "
        f"({format_rate((progress.rows_in - before.rows_in) / max(interval_s, 1e-9))})",
        f"{pluralize(progress.rows_out, 'row')} out",
        f"{progress.late:,} late",
        f"{progress.shed:,} shed",
    ]
    if progress.last is not None:
        last = progress.last
        figures.append(f"state {pluralize(last.state_rows, 'row')} ({format_bytes(last.state_bytes)})")
        if last.watermark_lag_s is not None:
            figures.append(f"lag {format_duration(last.watermark_lag_s)}")
    return ", ".join(figures)


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, where HTML can be displayed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def show_notebook_bar(total_rows: int | None) -> Iterator[Observer]:
    """Show a progress bar in the output of the current cell; the observer moves it after each batch."""
    progress = RunProgress(total_rows)
    handle = _display(progress)

    def observe(metrics: BatchMetrics) -> None:
        nonlocal progress
        progress = progress.after_batch(metrics)
        handle.update(_render(progress), raw=True)

    try:
        yield observe
    finally:
        handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _display(progress: RunProgress) -> Any:
    return sys.modules["IPython"].display.display(_render(progress), raw=True, display_id=True)


def _render(progress: RunProgress) -> dict[str, str]:
    """Return the bar as HTML and as text, for front ends that show either."""
    if progress.batches:
        words = describe_finite_progress(progress)
    else:
        words = "joining" if progress.total_rows is None else f"joining {progress.total_rows:,} rows"
    share = progress.share_done
    value = "" if share is None else f' value="{share:.4f}"'  # without a value the bar moves back and forth
    return {"text/html": f"<progress max=1{value}></progress> {escape(words)}", "text/plain": words}
