"""A run on the terminal while it goes on: rows in and out per second, latency, state, watermark, late and shed rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from watersmeet.metrics.batch import BatchFigures, Observer

#: Rates are those of the last so many seconds.
_RECENT_S = 3.0


@dataclass
class View:
    """What is shown: the latest batch, recent rates and totals."""

    what: str
    recent: deque[BatchFigures] = field(default_factory=lambda: deque(maxlen=200))
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    shed: int = 0

    def add(self, figures: BatchFigures) -> None:
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
        reached = "none yet" if last.watermark_us is None else _clock(last.watermark_us)
        yield "watermark", reached, "" if lag is None else f"{lag:,.3f} s behind the newest row"
        yield "late rows", f"{self.late:,}", ""
        yield "shed rows", f"{self.shed:,}", ""

    def _lately(self) -> list[BatchFigures]:
        return [each for each in self.recent if each.ended_s > self.recent[-1].ended_s - _RECENT_S]

    def _rate(self, rows: int) -> float:
        lately = self._lately()
        return rows / max(lately[-1].ended_s - lately[0].ended_s + lately[0].took_s, 1e-9)


@contextmanager
def live_view(screen: Console, view: View) -> Iterator[Observer]:
    """Shows the view while the block runs, on a terminal; elsewhere nothing is shown. It appears after a second: short
    runs need none.
    """
    started = time.monotonic()
    live = Live(view, console=screen, auto_refresh=False, transient=True)
    shown = False

    def observe(figures: BatchFigures) -> None:
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


def _clock(instant_us: int) -> str:
    """
    >>> _clock(1_000_000)
    '1970-01-01 00:00:01'
    """
    return str(np.datetime64(instant_us, "us").astype("datetime64[s]")).replace("T", " ")
