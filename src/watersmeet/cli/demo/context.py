"""Data, engine and results that the steps of the demo share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.syntax import Syntax

import watersmeet as wm
from watersmeet.cli.demo.engines import EMBEDDED, BatchSample, DemoEngine
from watersmeet.cli.demo.replay import Replay, write_aircraft_query
from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.planner.explain import Explanation
from watersmeet.units import format_duration, pluralize


@dataclass
class DemoContext:
    """Data, engine and results that the steps share.

    `explanation` has the plan of the join, `rows` its result. Both are None until their step has run.
    """

    screen: Console
    replay: Replay
    engine: DemoEngine
    observe: Observer = lambda figures: None
    paced: bool = True
    explanation: Explanation | None = None
    rows: pa.Table | None = None
    all_checks_passed: bool = True
    started_s: float = field(default_factory=time.perf_counter)

    @property
    def on_spark(self) -> bool:
        return self.engine is not EMBEDDED

    def run_join_observed(self) -> tuple[pa.Table, list[BatchSample]]:
        """Run the join at the pace of the replay; print each batch and pass it to the observer."""
        if self.explanation is None:
            raise ValueError("the join has not been planned")

        def observe(figures: BatchMetrics) -> None:
            self.observe(figures)
            self._print_batch(figures)

        pace_s = self.replay.batch_s if self.paced else None
        return self.run(write_aircraft_query(self.replay), self.explanation.plan, self.replay, (), observe, pace_s)

    def run(
        self,
        query: str,
        plan: wm.Plan,
        replay: Replay,
        names: tuple[str, ...] = (),
        observe: Observer = lambda figures: None,
        pace_s: float | None = None,
    ) -> tuple[pa.Table, list[BatchSample]]:
        """Run a query over the named airports, or all of them; return its rows and a sample of every batch."""
        samples: list[BatchSample] = []

        def sample(figures: BatchMetrics) -> None:
            samples.append(BatchSample(figures, self.engine.read_cpu_s()))
            observe(figures)

        with self.screen.status(f"running {self.engine.where}"):
            rows = self.engine.run(query, replay.declare_streams(names), plan, sample, pace_s)
        return rows, samples

    def run_embedded(
        self, query: str, plan: wm.Plan, names: tuple[str, ...] = (), replay: Replay | None = None
    ) -> pa.Table:
        """Run the query on the embedded engine, as a reference."""
        streams = (replay or self.replay).declare_streams(names)
        return EMBEDDED.run(query, streams, plan, lambda figures: None, None)

    def print_query(self, query: str) -> None:
        self.screen.print(Syntax(query, "sql", background_color="default"))

    def report_check(self, passed: bool, success: str, failure: str) -> None:
        """Print the outcome of a check and remember a failure."""
        self.screen.print(f"[bold green]{success}[/bold green]" if passed else f"[bold red]{failure}[/bold red]")
        self.all_checks_passed &= passed

    def _print_batch(self, figures: BatchMetrics) -> None:
        until = ""
        if figures.newest_us is not None:
            until = f" until {format_day(self.replay.to_departure_us(figures.newest_us))}"
        self.screen.print(
            f"  batch {figures.batch + 1}: {pluralize(sum(figures.rows_in.values()), 'flight')}{until}, "
            f"{pluralize(figures.rows_out, 'row')} out, {format_duration(figures.took_s)}",
            style="dim",
        )


def format_day(instant_us: int) -> str:
    return str(np.datetime64(instant_us, "us").astype("datetime64[D]"))
