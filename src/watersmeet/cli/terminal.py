"""Tables on a terminal. What comes out of data is text, never markup and never a control sequence."""

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

_WIDEST_CELL = 60
_WIDTH_WITHOUT_TERMINAL = 160


def make_console(*, stderr: bool = False) -> Console:
    """Where to print: as wide as the terminal, or wide enough when there is none."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def render_rows(rows: pa.Table, limit: int) -> Table:
    """The first `limit` rows, one line each."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for field in rows.schema:
        shown.add_column(
            Text(escape_control_characters(field.name)),
            justify="right" if _is_number(field.type) else "left",
            no_wrap=True,
        )
    for row in zip(*(column.to_pylist() for column in rows.slice(0, limit).columns), strict=True):
        shown.add_row(*(Text(format_cell(value)) for value in row))
    return shown


def describe_row_count(rows: pa.Table, limit: int) -> str:
    """
    >>> counted(pa.table({"a": range(30)}), 20)
    '30 rows, the first 20 shown'
    """
    return pluralize(rows.num_rows, "row") + (f", the first {limit:,} shown" if rows.num_rows > limit else "")


def pluralize(count: int, noun: str) -> str:
    """
    >>> several(1, "row"), several(2000, "row"), several(2, "batch")
    ('1 row', '2,000 rows', '2 batches')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def describe_late_rows(rows: pa.Table) -> list[str]:
    """A sentence for every stream some of whose rows came too late to be joined."""
    return _describe_ledger(rows, "late", "came late and were left out")


def describe_shed_rows(rows: pa.Table) -> list[str]:
    """A sentence for every stream some of whose rows were dropped to keep up."""
    return _describe_ledger(rows, "shed", "were shed to keep up")


def _describe_ledger(rows: pa.Table, fate: str, words: str) -> list[str]:
    about = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
    return [
        f"{entry[fate]:,} of {entry['arrived']:,} rows of {escape_control_characters(name)} {words}"
        for name, entry in about.get("ledger", {}).items()
        if entry[fate]
    ]


def format_cell(value: Any) -> str:
    """A value on one line.

    >>> import datetime as dt
    >>> cell(dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)), cell(None), cell("a\\x1b[31m")
    ('2013-01-01 10:15:00+00:00', 'NULL', 'a\\\\x1b[31m')
    """
    if value is None:
        return "NULL"
    words = escape_control_characters(str(value))
    return words if len(words) <= _WIDEST_CELL else words[: _WIDEST_CELL - 1] + "…"


def escape_control_characters(text: str) -> str:
    """The text with every character that could steer a terminal spelled out."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "backslashreplace").decode() for sign in text
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


#: Rates are those of the last so many seconds.
_RECENT_S = 3.0


@dataclass
class LiveView:
    """What is shown: the latest batch, recent rates and totals."""

    what: str
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
        """Name, value and what there is to add to it."""
        yield self.what, "", f"batch {self.recent[-1].batch}" if self.recent else "waiting for rows"
        if not self.recent:
            return
        last = self.recent[-1]
        yield (
            "rows in",
            f"{self._rate(sum(sum(each.rows_in.values()) for each in self._lately())):,.0f}/s",
            f"{self.rows_in:,} in all",
        )
        yield (
            "rows out",
            f"{self._rate(sum(each.rows_out for each in self._lately())):,.0f}/s",
            f"{self.rows_out:,} in all",
        )
        yield "latency", f"{last.took_s:.3f} s", "of the last batch"
        yield "state", f"{last.state_rows:,} rows", f"{last.state_bytes / 1e6:,.1f} MB"
        lag = last.watermark_lag_s
        reached = "none yet" if last.watermark_us is None else _format_instant(last.watermark_us)
        yield "watermark", reached, "" if lag is None else f"{lag:,.3f} s behind the newest row"
        yield "late rows", f"{self.late:,}", ""
        yield "shed rows", f"{self.shed:,}", ""

    def _lately(self) -> list[BatchMetrics]:
        return [each for each in self.recent if each.ended_s > self.recent[-1].ended_s - _RECENT_S]

    def _rate(self, rows: int) -> float:
        lately = self._lately()
        return rows / max(lately[-1].ended_s - lately[0].ended_s + lately[0].took_s, 1e-9)


@contextmanager
def show_live(screen: Console, view: LiveView) -> Iterator[Observer]:
    """Shows the view while the block runs, on a terminal; elsewhere nothing is shown. It appears after a second: short
    runs need none.
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
    """
    >>> _clock(1_000_000)
    '1970-01-01 00:00:01'
    """
    return str(np.datetime64(instant_us, "us").astype("datetime64[s]")).replace("T", " ")
