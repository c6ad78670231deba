"""Output on a terminal: tables of rows, sentences about late and shed rows, and the live view of a run.

Names and values come from outside. They are printed as text, never as markup or as a control sequence.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.units import format_bytes, format_duration, format_rate

_MAX_CELL_WIDTH = 60
_WIDTH_WITHOUT_TERMINAL = 160

LATE_SENTENCE = "late rows dropped from"
SHED_SENTENCE = "rows shed to keep up from"


def make_console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or of a fixed width if the output is no terminal."""
    screen = Console(stderr=stderr, highlight=False)
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def render_rows(rows: pa.Table, limit: int) -> Table:
    """Render the first `limit` rows, one line each."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in rows.schema:
        table.add_column(
            Text(escape_controls(column.name)),
            justify="right" if _is_number(column.type) else "left",
            no_wrap=True,
        )
    for row in zip(*(column.to_pylist() for column in rows.slice(0, limit).columns), strict=True):
        table.add_row(*(Text(format_cell(value)) for value in row))
    return table


def describe_row_count(rows: pa.Table, limit: int) -> str:
    """Say how many rows there are, and how many of them are shown.

    >>> describe_row_count(pa.table({"a": range(30)}), 20)
    '30 rows, the first 20 shown'
    """
    return pluralize(rows.num_rows, "row") + (f", the first {limit:,} shown" if rows.num_rows > limit else "")


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or the plural.

    >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(2, "batch")
    ('1 row', '2,000 rows', '2 batches')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def describe_late_rows(rows: pa.Table) -> list[str]:
    """Return a sentence for every stream with late rows."""
    return _describe_ledger(rows, "late", LATE_SENTENCE)


def describe_shed_rows(rows: pa.Table) -> list[str]:
    """Return a sentence for every stream with shed rows."""
    return _describe_ledger(rows, "shed", SHED_SENTENCE)


def _describe_ledger(rows: pa.Table, entry_key: str, sentence: str) -> list[str]:
    about = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
    return [
        describe_dropped_rows(sentence, name, entry[entry_key], entry["arrived"])
        for name, entry in about.get("ledger", {}).items()
        if entry[entry_key]
    ]


def describe_dropped_rows(sentence: str, name: str, dropped: int, arrived: int) -> str:
    """Return the sentence with its counts.

    >>> describe_dropped_rows("late rows dropped from", "a", 3, 1000)
    '3 late rows dropped from a, of 1,000 that arrived'
    """
    return f"{dropped:,} {sentence} {escape_controls(name)}, of {arrived:,} that arrived"


def format_cell(value: Any) -> str:
    """Format a value on one line.

    >>> import datetime as dt
    >>> format_cell(dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)), format_cell(None), format_cell("a\\x1b[31m")
    ('2013-01-01 10:15:00+00:00', 'NULL', 'a\\\\x1b[31m')
    """
    if value is None:
        return "NULL"
    text = escape_controls(str(value))
    return text if len(text) <= _MAX_CELL_WIDTH else text[: _MAX_CELL_WIDTH - 1] + "…"


def escape_controls(text: str) -> str:
    """Return the text with every control character escaped, so that it cannot steer a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


#: Rates are averages over this many seconds.
_RECENT_S = 3.0


@dataclass
class LiveView:
    """Latest batch, recent rates and totals of a run."""

    title: str
    recent: deque[BatchMetrics] = field(default_factory=lambda: deque(maxlen=200))
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    shed: int = 0

    def add(self, figures: BatchMetrics) -> None:
        self.recent.append(figures)
        self.batches += 1
        self.rows_in += sum(figures.rows_in.values())
        self.rows_out += figures.rows_out
        self.late += sum(figures.late.values())
        self.shed += sum(figures.shed.values())

    def __rich__(self) -> Table:
        shown = Table.grid(padding=(0, 2))
        shown.add_column(style="dim")
        shown.add_column(justify="right")
        shown.add_column(style="dim")
        for name, value, more in self.lines():
            shown.add_row(name, Text(value, style="bold"), Text(more))
        return shown

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name, the value and a remark of every line."""
        yield self.title, "", f"batch {self.recent[-1].batch}" if self.recent else "waiting for rows"
        if not self.recent:
            return
        last = self.recent[-1]
        yield (
            "rows in",
            format_rate(self._rate(sum(sum(each.rows_in.values()) for each in self._recent_batches()))),
            f"{self.rows_in:,} in total",
        )
        yield (
            "rows out",
            format_rate(self._rate(sum(each.rows_out for each in self._recent_batches()))),
            f"{self.rows_out:,} in total",
        )
        yield "latency", format_duration(last.took_s), "of the last batch"
        yield "state", f"{last.state_rows:,} rows", format_bytes(last.state_bytes)
        lag = last.watermark_lag_s
        watermark = "none yet" if last.watermark_us is None else _format_instant(last.watermark_us)
        yield "watermark", watermark, "" if lag is None else f"{format_duration(lag)} behind the newest row"
        yield "late rows", f"{self.late:,}", ""
        yield "shed rows", f"{self.shed:,}", ""

    def _recent_batches(self) -> list[BatchMetrics]:
        return [each for each in self.recent if each.ended_s > self.recent[-1].ended_s - _RECENT_S]

    def _rate(self, rows: int) -> float:
        recent = self._recent_batches()
        return rows / max(recent[-1].ended_s - recent[0].ended_s + recent[0].took_s, 1e-9)


@contextmanager
def show_live(screen: Console, view: LiveView) -> Iterator[Observer]:
    """Show the view on a terminal while the block runs.

    The view appears after a second, because short runs need none. Without a terminal nothing is shown.
    """
    started = time.monotonic()
    live = Live(view, console=screen, auto_refresh=False, transient=True)
    shown = False

    def observe(figures: BatchMetrics) -> None:
        nonlocal shown
        view.add(figures)
        if not screen.is_terminal:
            return
        if not shown and time.monotonic() - started > 1:
            live.start()
            shown = True
        if shown:
            live.refresh()

    try:
        yield observe
    finally:
        if shown:
            live.stop()


def _format_instant(instant_us: int) -> str:
    """Format an instant to the second, in UTC.

    >>> _format_instant(1_000_000)
    '1970-01-01 00:00:01'
    """
    return str(np.datetime64(instant_us, "us").astype("datetime64[s]")).replace("T", " ")
