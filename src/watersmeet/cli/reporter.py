"""Reports of `watersmeet run` on stderr while a query runs, and its events; stdout is for rows.

A terminal shows a live view: a progress bar for finite input, the current figures for a run without an end. A pipe or a
log file gets a line now and then. With `--quiet` nothing is reported. Events go to stderr (`--verbose`) and, as JSON
lines, to a file (`--log`).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from watersmeet.cli.terminal import make_console
from watersmeet.errors import InputError, InternalError, WatersmeetError, escape_controls
from watersmeet.events import LOGGER, JsonLineFormatter, log_event
from watersmeet.metrics import BatchMetrics, RunProgress, describe_continuous_progress, describe_finite_progress
from watersmeet.units import format_bytes, format_count, format_duration, format_percent, format_rate, pluralize

#: A finite run that ends earlier prints no line.
FIRST_LINE_S = 1.0
LINE_INTERVAL_S = 10.0
#: Longest interval between two lines of a run without new rows. The interval doubles up to it.
MAX_IDLE_INTERVAL_S = 600.0
_TICK_S = 0.25
_BAR_WIDTH = 30

#: Activity of a run, or a function that describes it at the moment of the call.
Phase = str | Callable[[], str]


class RunReporter:
    """Progress of a run, and what it does now. This class keeps it to itself; its subclasses show it."""

    def __init__(self, title: str, *, follow: bool = False) -> None:
        self.title = escape_controls(title)
        self.follow = follow
        self.progress = RunProgress()
        self.started_s = time.monotonic()
        self._phase: Phase = "starting"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the report. Later output appears below it."""

    def say(self, sentence: str) -> None:
        """Print a sentence that stays."""

    def enter_phase(self, phase: Phase) -> None:
        """Set what the run does now: a participle, such as "reading a.csv"."""
        self._phase = phase

    def expect_rows(self, rows: int) -> None:
        """Set the number of rows of a finite input."""
        self.progress = replace(self.progress, total_rows=rows)

    def observe(self, metrics: BatchMetrics) -> None:
        """Add the figures of a batch."""
        self.progress = self.progress.after_batch(metrics)

    def describe_phase(self) -> str:
        return escape_controls(self._phase if isinstance(self._phase, str) else self._phase())

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s


def open_reporter(title: str, *, follow: bool, quiet: bool) -> RunReporter:
    """Return the reporter for the stderr of this process."""
    if quiet:
        return RunReporter(title, follow=follow)
    screen = make_console(stderr=True)
    return (TerminalReporter if screen.is_terminal else LineReporter)(screen, title, follow=follow)


class TerminalReporter(RunReporter):
    """Live view at the bottom of a terminal. It disappears when the run ends."""

    def __init__(self, screen: Console, title: str, *, follow: bool = False) -> None:
        super().__init__(title, follow=follow)
        self._screen = screen
        self._spinner = Spinner("dots")
        # Rows that go to the same terminal are printed above the view. Rows that go to a file must stay on stdout.
        self._live = Live(self, console=screen, transient=True, redirect_stdout=sys.stdout.isatty())

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def close(self) -> None:
        self._live.stop()

    def say(self, sentence: str) -> None:
        self._screen.print(escape_controls(sentence), markup=False, soft_wrap=True)

    def __rich__(self) -> Table:
        if self.progress.batches and self.follow:
            return _render_figures(self.title, self.progress)
        if self.progress.batches and self.progress.total_rows:
            return self._render_bar(self.progress)
        return _render_line(self._spinner, Text(self.title), Text(self.describe_phase()), self._render_elapsed())

    def _render_bar(self, progress: RunProgress) -> Table:
        share, left_s = progress.share_done or 0.0, progress.remaining_s
        return _render_line(
            self._spinner,
            Text(self.title),
            ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH),
            Text(format_percent(share)),
            Text(f"{format_count(progress.rows_in)} rows in"),
            Text(format_rate(progress.rates()[0])),
            Text(f"{format_count(progress.rows_out)} out"),
            Text(f"{format_duration(round(left_s))} left" if left_s and left_s >= 1 else ""),
        )

    def _render_elapsed(self) -> Text:
        return Text(format_duration(int(self.elapsed_s)), style="dim")


def _render_line(*parts: Text | Spinner | ProgressBar) -> Table:
    line = Table.grid(padding=(0, 2))
    for _ in parts:
        line.add_column(no_wrap=True)
    line.add_row(*parts)
    return line


def _render_figures(title: str, progress: RunProgress) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, value, remark in list_figures(title, progress, time.time()):
        table.add_row(Text(name), Text(value, style="bold"), Text(remark))
    return table


def list_figures(title: str, progress: RunProgress, now_s: float) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value and a remark of every line of the live view."""
    last = progress.last
    if last is None:
        return
    rows_in_per_s, rows_out_per_s = progress.rates(now_s)
    yield title, "", f"batch {last.batch}, {format_duration(max(0, int(now_s - last.ended_s)))} ago"
    yield "rows in", format_rate(rows_in_per_s), f"{progress.rows_in:,} in total"
    yield "rows out", format_rate(rows_out_per_s), f"{progress.rows_out:,} in total"
    yield "latency", format_duration(last.took_s), "of the last batch"
    yield "state", pluralize(last.state_rows, "row"), format_bytes(last.state_bytes)
    lag_s = last.watermark_lag_s
    watermark = "none yet" if last.watermark_us is None else _format_instant(last.watermark_us)
    yield "watermark", watermark, "" if lag_s is None else f"{format_duration(lag_s)} behind the newest row"
    yield "late rows", f"{progress.late:,}", ""
    yield "shed rows", f"{progress.shed:,}", ""


class LineReporter(RunReporter):
    """Lines in a pipe or a log file, printed by a thread, so that a long batch is reported as well.

    A finite run prints its first line after a second. A run without an end prints one after its first batch, and then
    fewer and fewer while no rows arrive.
    """

    def __init__(self, screen: Console, title: str, *, follow: bool = False) -> None:
        super().__init__(title, follow=follow)
        self._screen = screen
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_when_due, name="watersmeet: progress lines", daemon=True)
        self._shown = self.progress
        self._shown_s = self.started_s
        self._due_s = self.started_s + (LINE_INTERVAL_S if follow else FIRST_LINE_S)
        self._interval_s = LINE_INTERVAL_S
        self._printed = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        if self.progress is not self._shown and self.progress.batches and (self.follow or self._printed):
            self._print_line()

    def say(self, sentence: str) -> None:
        self._screen.print(escape_controls(sentence), markup=False, soft_wrap=True)

    def observe(self, metrics: BatchMetrics) -> None:
        super().observe(metrics)
        if self.follow:
            first = self.progress.batches == 1
            self._due_s = min(self._due_s, self._shown_s + (0 if first else LINE_INTERVAL_S))

    def _print_when_due(self) -> None:
        while not self._ended.wait(_TICK_S):
            if time.monotonic() >= self._due_s:
                is_idle = self.follow and self.progress is self._shown
                self._print_line()
                self._interval_s = min(2 * self._interval_s, MAX_IDLE_INTERVAL_S) if is_idle else LINE_INTERVAL_S
                self._due_s = self._shown_s + self._interval_s

    def _print_line(self) -> None:
        progress, now_s = self.progress, time.monotonic()
        self.say(f"{time.strftime('%H:%M:%S')}  {self._describe(progress, now_s - self._shown_s)}")
        self._shown, self._shown_s, self._printed = progress, now_s, True

    def _describe(self, progress: RunProgress, interval_s: float) -> str:
        if not progress.batches:
            return f"{self.describe_phase()}, {format_duration(int(self.elapsed_s))} so far"
        if self.follow:
            idle = ", no new rows" if progress is self._shown else ""
            return describe_continuous_progress(progress, self._shown, interval_s) + idle
        return describe_finite_progress(progress)


def _format_instant(instant_us: int) -> str:
    """Format an instant to the second, in UTC.

    >>> _format_instant(1_000_000)
    '1970-01-01 00:00:01'
    """
    return str(np.datetime64(instant_us, "us").astype("datetime64[s]")).replace("T", " ")


@contextmanager
def write_events(*, verbose: bool, log: Path | None) -> Iterator[None]:
    """Write the events of the block. A failure is an event as well."""
    handlers = [*([_StderrHandler()] if verbose else []), *([_open_log(log)] if log is not None else [])]
    level = LOGGER.level
    for handler in handlers:
        LOGGER.addHandler(handler)
    if handlers:
        LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    except (WatersmeetError, InternalError, OSError) as error:
        if log is not None:  # stderr gets the error itself
            log_event(logging.ERROR, "run_failed", str(error), error=type(error).__name__)
        raise
    finally:
        LOGGER.setLevel(level)
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()


class _StderrHandler(logging.Handler):
    """Prints the time and the sentence of an event. It looks up stderr every time, because a live view replaces it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(escape_controls(self.format(record)), err=True)


def _open_log(path: Path) -> logging.Handler:
    """Open a log file. Lines are appended, so that a resumed run continues its log."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f'log file "{path}" cannot be written: {error.strerror or error}',
            hint="name a file in an existing directory",
        ) from error
    handler.setFormatter(JsonLineFormatter())
    return handler
