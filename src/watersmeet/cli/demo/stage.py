"""What the demo's steps share: where they print, the data, who runs queries, and how a run is shown while it goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from rich.console import Console

import watersmeet as wm
from watersmeet.cli.demo.check import count_rows
from watersmeet.cli.demo.engines import EMBEDDED, Engine
from watersmeet.cli.demo.flights import Tables, instants_us
from watersmeet.cli.terminal import several
from watersmeet.metrics.batch import BatchFigures, Observer
from watersmeet.planner.explain import Explanation


@dataclass
class Stage:
    """`plan` is what was chosen for the join, `rows` its answer once it has run; `agreed` turns False when a check
    fails.
    """

    screen: Console
    departures: Tables
    engine: Engine
    observe: Observer
    plan: Explanation | None = None
    rows: pa.Table | None = None
    agreed: bool = True
    began_s: float = field(default_factory=time.perf_counter)

    @property
    def arrived(self) -> int:
        return sum(table.num_rows for table in self.departures.values())

    @property
    def span_s(self) -> float:
        """Seconds of stream, from the first departure to the last."""
        times = [instants_us(table, "departed") for table in self.departures.values()]
        return float(max(at[-1] for at in times) - min(at[0] for at in times)) / 1e6

    def run(self, query: str, plan: wm.Plan, *names: str) -> tuple[pa.Table, list[BatchFigures]]:
        """The rows of a query over these airports, or all, every batch said as it ends where batches take long."""
        seen: list[BatchFigures] = []

        def observe(figures: BatchFigures) -> None:
            seen.append(figures)
            self.observe(figures)
            if self.engine is not EMBEDDED:
                self._say(figures)

        rows = self.engine.runs(query, self.engine.streams(self.departures_of(names)), plan, observe)
        return rows, seen

    def run_here(self, query: str, plan: wm.Plan, *names: str) -> pa.Table:
        """The same in this process, to compare with."""
        return EMBEDDED.runs(query, EMBEDDED.streams(self.departures_of(names)), plan, lambda figures: None)

    def departures_of(self, names: tuple[str, ...]) -> Tables:
        return {name: table for name, table in self.departures.items() if not names or name in names}

    def verdict(self, holds: bool, fine: str, wrong: str) -> None:  # a verdict is a truth value
        self.screen.print(f"[bold green]{fine}[/bold green]" if holds else f"[bold red]{wrong}[/bold red]")
        self.agreed &= holds

    def _say(self, figures: BatchFigures) -> None:
        until = "" if figures.newest_us is None else f" up to {str(np.datetime64(figures.newest_us, 'us'))[:10]}"
        self.screen.print(
            f"  micro-batch {figures.batch + 1}: {several(sum(figures.rows_in.values()), 'departure')}{until}, "
            f"{several(figures.rows_out, 'row')} out, {figures.took_s:.1f} s",
            style="dim",
        )


def same_rows(first: pa.Table, second: pa.Table) -> bool:
    return count_rows(first) == count_rows(second)
