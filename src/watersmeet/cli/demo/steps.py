"""The demo step by step. A step is a function of the stage; `STEPS` is the whole demo, in its order.

The engine is a function from a query and its streams to rows: which host it stands for is not the steps' business.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.syntax import Syntax

import watersmeet as wm
from watersmeet.cli.calibrate import duration
from watersmeet.cli.demo.check import CHECKED_HOURS, QUERY, checked
from watersmeet.cli.demo.flights import Tables, daily_streams, flights
from watersmeet.cli.show import rows_as_table
from watersmeet.cli.ui import shown_for, watched
from watersmeet.oracle import as_multiset, table_rows
from watersmeet.runtime.embedded import Sources
from watersmeet.runtime.figures import BatchFigures, Observer, observed

_SAMPLE_ROWS = 8
_WATCHED_BATCH_S = 0.08

#: Query, streams and a pinned plan (None: the cheapest) in, rows out; the observer sees every batch.
Engine = Callable[[str, Sources, wm.Plan | None, Observer], pa.Table]

BUSY = """\
SELECT e.dest, COUNT(*) AS pairs
FROM ewr [RANGE 30 MINUTES] AS e, lga [RANGE 30 MINUTES] AS l
WHERE e.dest = l.dest
GROUP BY e.dest EVERY 1 DAY"""


@dataclass
class Stage:
    """What the steps share: where they print, the data, who runs queries, and the rows of the join once it has run."""

    screen: Console
    departures: Tables
    engine: Engine
    where: str
    observe: Observer
    rows: pa.Table | None = None
    agreed: bool = True
    began_s: float = field(default_factory=time.perf_counter)

    @property
    def arrived(self) -> int:
        return sum(table.num_rows for table in self.departures.values())


def embedded_engine(query: str, streams: Sources, plan: wm.Plan | None, observe: Observer) -> pa.Table:
    """The host in this process."""
    return observed(wm.run(query, streams, plan), observe)


def show(
    screen: Console, engine: Engine = embedded_engine, where: str = "in this process", observe: Observer = lambda figures: None
) -> bool:
    """Runs the whole demo; False when an engine and the oracle disagree."""
    from watersmeet.kernels.compile import warm_up

    warm_up()  # what is timed below is the join, not the compiler
    stage = Stage(screen, flights(), engine, where, observe)
    for number, (title, step) in enumerate(STEPS, start=1):
        screen.rule(f"{number}. {title}", align="left")
        step(stage)
    return stage.agreed


def watched_show(screen: Console, port: int, engine: Engine = embedded_engine, where: str = "in this process") -> bool:
    """The demo beside its dashboard, slowed down to about half a minute so that there is something to watch."""
    tables = {name: wm.stream(table, time="departed") for name, table in flights().items()}
    with watched(shown_for("departures of three airports", wm.sql(QUERY), tables), port) as live:

        def observe(figures: BatchFigures) -> None:
            live.observe(figures)
            time.sleep(_WATCHED_BATCH_S)

        return show(screen, engine, where, observe)


def ask(stage: Stage) -> None:
    stage.screen.print(
        f"In 2013, {stage.arrived:,} flights left New York from Newark (ewr), Kennedy (jfk) and LaGuardia (lga). Each airport is a stream, "
        "each day a batch. Which places were reached from all three, within a quarter of an hour from one airport to the next?\n"
    )
    stage.screen.print(Syntax(QUERY, "sql", background_color="default"))


def plan(stage: Stage) -> None:
    """The windows that follow from those given, the plan that was chosen, and by how much the others lost."""
    names = {"e": "ewr", "j": "jfk", "l": "lga"}
    about = wm.explain(QUERY, {name: wm.stream(table, time="departed") for name, table in stage.departures.items()})
    facts = about.to_dict()
    stage.screen.print("Two pairs are given a window; the third follows from them, so nothing has to be kept for longer:")
    for pair in facts["pairs"]:
        stage.screen.print(f"  {names[pair['first']]} and {names[pair['second']]}: at most {pair['within_us'] // 60_000_000} minutes apart")
    verdict = "It keeps up" if about.feasible else "It would not keep up"
    stage.screen.print(
        f"Chosen out of {1 + len(about.others)} plans: [bold]{about.plan.algorithm}[/bold], predicted to need "
        f"{duration(facts['cost']['cpu_per_s'])} of CPU per second of stream and "
        f"{facts['cost']['state_rows']:,.0f} rows of state. {verdict}."
    )
    if about.others and facts["cost"]["cpu_per_s"]:
        times = about.others[0].cost.cpu_per_s / facts["cost"]["cpu_per_s"]
        stage.screen.print(f"The next best, {about.others[0].plan.algorithm}, would cost {times:.2g} times as much.")


def join(stage: Stage) -> None:
    started = time.perf_counter()
    stage.rows = stage.engine(QUERY, daily_streams(stage.departures), None, stage.observe)
    seconds = time.perf_counter() - started
    stage.screen.print(
        f"[bold]{stage.rows.num_rows:,}[/bold] such triples of flights, out of {stage.arrived:,} departures in {seconds:.2f} s: "
        f"[bold]{stage.arrived / seconds:,.0f} rows per second[/bold] {stage.where}. Some of them:\n"
    )
    stage.screen.print(rows_as_table(_sample(stage.rows), _SAMPLE_ROWS))


def check(stage: Stage) -> None:
    if stage.rows is None:
        return
    stage.screen.print(f"For the {CHECKED_HOURS} busiest hours: every combination of three flights, one by one, in plain Python.")
    verdict = checked(stage.rows, stage.departures)
    stage.screen.print(
        f"{verdict.since} to {verdict.until} UTC: {verdict.combinations:,} combinations, {verdict.rows:,} rows from the engine."
    )
    if verdict.holds:
        stage.screen.print("[bold green]The same rows, each exactly once.[/bold green]")
    else:
        stage.screen.print(f"[bold red]They differ: {verdict.lost:,} rows lost, {verdict.invented:,} invented.[/bold red]")
    stage.agreed &= verdict.holds


def aggregate(stage: Stage) -> None:
    """An aggregation over a join, by two plans: aggregating after the join, and one input before it. They must agree."""
    stage.screen.print("How many pairs of flights to one place left Newark and LaGuardia within half an hour, as of every midnight?\n")
    stage.screen.print(Syntax(BUSY, "sql", background_color="default"))
    two = {name: table for name, table in stage.departures.items() if name in ("ewr", "lga")}
    late = embedded_engine(BUSY, daily_streams(two), wm.plan(), stage.observe)
    early = embedded_engine(BUSY, daily_streams(two), wm.plan(early=["l"]), stage.observe)
    same = as_multiset(table_rows(late)) == as_multiset(table_rows(early))
    stage.screen.print(f"\n{late.num_rows:,} changes of a group over the year. The last:")
    stage.screen.print(rows_as_table(late.slice(max(0, late.num_rows - 3)), 3))
    if same:
        stage.screen.print("[bold green]Aggregating one stream before the join gives the same rows.[/bold green]")
    else:
        stage.screen.print("[bold red]Aggregating one stream before the join gives other rows.[/bold red]")
    stage.agreed &= same


def overload(stage: Stage) -> None:
    """Three quarters of the CPU the join needs: what is dropped, what is left, and whether the ledger closes."""
    if stage.rows is None:
        return
    whole = {name: wm.stream(table, time="departed") for name, table in stage.departures.items()}
    needed = wm.explain(QUERY, whole).chosen.cost.cpu_per_s
    about = wm.explain(QUERY, whole, budget=wm.Budget(processors=needed * 3 / 4))
    stage.screen.print(
        f"Say the machine had three quarters of the {duration(needed)} of CPU per second that the join needs. What would help:"
    )
    for sentence in about.remedies.sentences() if about.remedies is not None else ():
        stage.screen.print(f"  {sentence}", markup=False)
    kept = embedded_engine(QUERY, daily_streams(stage.departures), about.runnable(shed=True), stage.observe)
    ledger = json.loads((kept.schema.metadata or {}).get(b"watersmeet", b"{}")).get("ledger", {})
    for name, entry in ledger.items():
        stage.screen.print(
            f"  {name}: {entry['arrived']:,} arrived = {entry['kept']:,} kept + {entry['shed']:,} shed + {entry['late']:,} late"
        )
    closes = all(each["arrived"] == each["kept"] + each["shed"] + each["late"] for each in ledger.values())
    subset = not as_multiset(table_rows(kept)) - as_multiset(table_rows(stage.rows))
    left = kept.num_rows / max(1, stage.rows.num_rows)
    stage.screen.print(f"{kept.num_rows:,} rows are left, {left:.0%} of the answer.")
    if closes and subset:
        stage.screen.print("[bold green]All of them are in the full answer, and the ledger closes to the row.[/bold green]")
    else:
        stage.screen.print("[bold red]They are not all in the full answer, or the ledger does not close.[/bold red]")
    stage.agreed &= closes and subset


def look_further(stage: Stage) -> None:
    seconds = time.perf_counter() - stage.began_s
    stage.screen.print(
        f"All of this took {seconds:.0f} s. Your own streams: docs/tutorial.md. The dashboard: watersmeet demo --ui, or watersmeet ui. "
        "What explain says: docs/explain.md."
    )


#: The whole demo.
STEPS: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    ("The question", ask),
    ("The plan, and why", plan),
    ("The answer", join),
    ("The same again, the slow way", check),
    ("An aggregation over a join", aggregate),
    ("Not enough machine", overload),
    ("Where to look next", look_further),
)


def _sample(rows: pa.Table) -> pa.Table:
    """A few rows from all over the year."""
    ordered = rows.sort_by([("from_ewr", "ascending"), ("dest", "ascending")])
    return ordered.take(pa.array(np.linspace(0, max(rows.num_rows - 1, 0), min(_SAMPLE_ROWS, rows.num_rows)).astype(np.int64)))
