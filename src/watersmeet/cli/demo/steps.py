"""The demo step by step. A step is a function of the stage; `STEPS` is the whole demo, in its order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import watersmeet as wm
from watersmeet.cli.calibrate import format_operation_time
from watersmeet.cli.demo.engines import (
    EMBEDDED,
    SHORT_RUN_JAVA_OPTIONS,
    DemoEngine,
    sum_measured_seconds,
    sum_predicted_seconds,
)
from watersmeet.cli.demo.flights import (
    CHECKED_HOURS,
    QUERY,
    Tables,
    check_busiest_hours,
    count_rows,
    load_flights,
    times_us,
)
from watersmeet.cli.spark import quiet_spark
from watersmeet.cli.terminal import pluralize, render_rows
from watersmeet.cli.ui import build_dashboard, serve_during_run
from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.planner.explain import Explanation

_SAMPLE_ROWS = 8
_WATCHED_BATCH_S = 0.08

AGGREGATION_QUERY = """\
SELECT e.dest, COUNT(*) AS pairs
FROM ewr [RANGE 30 MINUTES] AS e, lga [RANGE 30 MINUTES] AS l
WHERE e.dest = l.dest
GROUP BY e.dest EVERY 1 DAY"""


def run_demo(screen: Console, engine: DemoEngine = EMBEDDED, observe: Observer = lambda figures: None) -> bool:
    """Runs the whole demo; False when an engine and the oracle disagree."""
    from watersmeet.kernels.compile import warm_up

    with screen.status("compiling the kernels, which takes a minute the first time"):
        warm_up()  # what is timed below is the join, not the compiler
    stage = DemoContext(screen, load_flights(), engine, observe)
    for number, (title, step) in enumerate(STEPS, start=1):
        screen.rule(f"{number}. {title}", align="left")
        step(stage)
    return stage.agreed


def run_demo_with_dashboard(screen: Console, port: int, engine: DemoEngine = EMBEDDED) -> bool:
    """The demo beside its dashboard, in this process slowed down to about half a minute so that there is something to
    watch.
    """
    tables = {name: wm.stream(table, time="departed") for name, table in load_flights().items()}
    with serve_during_run(
        build_dashboard("departures of three airports", wm.sql(QUERY), tables, engine=engine.name), port
    ) as live:

        def observe(figures: BatchMetrics) -> None:
            live.observe(figures)
            if engine is EMBEDDED:
                time.sleep(_WATCHED_BATCH_S)

        return run_demo(screen, engine, observe)


def show_question(stage: DemoContext) -> None:
    stage.screen.print(
        f"In 2013, {stage.arrived:,} flights left New York from Newark (ewr), Kennedy (jfk) and LaGuardia (lga). Each airport is a stream. "
        "Which places were reached from all three, within a quarter of an hour from one airport to the next?\n"
    )
    stage.screen.print(Syntax(QUERY, "sql", background_color="default"))


def show_plan(stage: DemoContext) -> None:
    """The windows that follow from those given, the plan that was chosen, and by how much the others lost."""
    names = {"e": "ewr", "j": "jfk", "l": "lga"}
    about = stage.plan = wm.explain(QUERY, stage.engine.streams(stage.departures), engine=stage.engine.name)
    facts = about.to_dict()
    stage.screen.print(
        "Two pairs are given a window; the third follows from them, so nothing has to be kept for longer:"
    )
    for pair in facts["pairs"]:
        stage.screen.print(
            f"  {names[pair['first']]} and {names[pair['second']]}: at most {pair['within_us'] // 60_000_000} minutes apart"
        )
    verdict = "It keeps up" if about.feasible else "It would not keep up"
    stage.screen.print(
        f"Chosen out of {1 + len(about.others)} plans by what each would cost: [bold]{about.plan.algorithm}[/bold], predicted to need "
        f"{format_operation_time(facts['cost']['cpu_per_s'])} of CPU per second of stream and "
        f"{facts['cost']['state_rows']:,.0f} rows of state. {verdict}."
    )
    if about.others and facts["cost"]["cpu_per_s"]:
        times = about.others[0].cost.cpu_per_s / facts["cost"]["cpu_per_s"]
        stage.screen.print(f"The next best, {about.others[0].plan.algorithm}, would cost {times:.2f} times as much.")


def run_join(stage: DemoContext) -> None:
    if stage.plan is None:
        return
    if stage.engine is not EMBEDDED:
        _start_spark(stage)
    started = time.perf_counter()
    stage.rows, seen = stage.run(QUERY, stage.plan.plan)
    seconds = time.perf_counter() - started
    life = stage.span_s / seconds
    stage.screen.print(
        f"[bold]{stage.rows.num_rows:,}[/bold] such triples of flights, out of {stage.arrived:,} departures in {seconds:.2f} s "
        f"{stage.engine.where}: [bold]{stage.arrived / seconds:,.0f} rows per second[/bold], {life:,.0f} times as fast as life. "
        "Some of them:\n"
    )
    stage.screen.print(render_rows(_sample_rows(stage.rows), _SAMPLE_ROWS))
    on_spark = stage.engine is not EMBEDDED
    predicted = sum_predicted_seconds(stage.plan, stage.span_s, on_spark=on_spark)
    stage.screen.print("\nSeconds of work, as predicted before the first row and as measured:")
    stage.screen.print(_render_costs(predicted, sum_measured_seconds(seen, on_spark=on_spark)))
    if on_spark:
        stage.screen.print(
            f"What Spark takes itself is assumed, not calibrated; of what was measured, the first micro-batch took {seen[0].took_s:.1f} s, "
            "most of it to start workers."
        )


def check_join(stage: DemoContext) -> None:
    if stage.rows is None or stage.plan is None:
        return
    stage.screen.print(
        f"For the {CHECKED_HOURS} busiest hours: every combination of three flights, one by one, in plain Python."
    )
    verdict = check_busiest_hours(stage.rows, stage.departures)
    stage.screen.print(
        f"{verdict.since} to {verdict.until} UTC: {verdict.combinations:,} combinations, {verdict.rows:,} rows from the engine."
    )
    wrong = f"They differ: {verdict.lost:,} rows lost, {verdict.invented:,} invented."
    stage.verdict(verdict.holds, "The same rows, each exactly once.", wrong)
    if stage.engine is not EMBEDDED:
        same = have_same_rows(stage.rows, stage.run_here(QUERY, stage.plan.plan))
        stage.verdict(
            same,
            "And the whole year gives the same rows in this process, day by day.",
            "In this process the year gives other rows.",
        )


def run_aggregation(stage: DemoContext) -> None:
    """An aggregation over a join, by two plans: aggregating after the join, and one input before it. They must agree."""
    stage.screen.print(
        "How many pairs of flights to one place left Newark and LaGuardia within half an hour, as of every midnight?\n"
    )
    stage.screen.print(Syntax(AGGREGATION_QUERY, "sql", background_color="default"))
    late, _ = stage.run(AGGREGATION_QUERY, wm.plan(), "ewr", "lga")
    early = stage.run_here(AGGREGATION_QUERY, wm.plan(early=["l"]), "ewr", "lga")
    if stage.engine is not EMBEDDED:  # what has no end shows what its watermark has passed
        early = early.filter(pc.less_equal(early.column("as_of"), pc.max(late.column("as_of"))))
    ordered = late.sort_by([("as_of", "ascending"), ("dest", "ascending")])
    stage.screen.print(f"\n{late.num_rows:,} changes of a group over the year. The last:")
    stage.screen.print(render_rows(ordered.slice(max(0, late.num_rows - 3)), 3))
    same = late.num_rows > 0 and have_same_rows(late, early)
    here = "" if stage.engine is EMBEDDED else ", in this process,"
    fine = f"Aggregating one stream before the join{here} gives the same rows."
    stage.verdict(same, fine, f"Aggregating one stream before the join{here} gives other rows.")


def run_overload(stage: DemoContext) -> None:
    """Three quarters of the CPU the join needs: what is dropped, what is left, and whether the ledger closes."""
    if stage.rows is None:
        return
    whole = {name: wm.stream(table, time="departed") for name, table in stage.departures.items()}
    needed = wm.explain(QUERY, whole).chosen.cost.cpu_per_s
    about = wm.explain(QUERY, whole, budget=wm.Budget(processors=needed * 3 / 4))
    stage.screen.print(
        f"Say the machine had three quarters of the {format_operation_time(needed)} of CPU per second that the join itself needs. What would help:"
    )
    for sentence in about.remedies.sentences() if about.remedies is not None else ():
        stage.screen.print(f"  {sentence}", markup=False)
    shedding = about.runnable(shed=True) or about.plan
    kept, seen = stage.run(QUERY, shedding)
    here = stage.run_here(QUERY, shedding)
    ledger = json.loads((here.schema.metadata or {}).get(b"watersmeet", b"{}")).get("ledger", {})
    for name, entry in ledger.items():
        stage.screen.print(
            f"  {name}: {entry['arrived']:,} arrived = {entry['kept']:,} kept + {entry['shed']:,} shed + {entry['late']:,} late"
        )
    closes = all(each["arrived"] == each["kept"] + each["shed"] + each["late"] for each in ledger.values())
    closes &= _sum_shed_rows(seen) == {name: entry["shed"] for name, entry in ledger.items()}
    subset = not count_rows(kept) - count_rows(stage.rows)
    left = kept.num_rows / max(1, stage.rows.num_rows)
    stage.screen.print(f"{kept.num_rows:,} rows are left, {left:.0%} of the answer.")
    wrong = "They are not all in the full answer, or the ledger does not close."
    stage.verdict(closes and subset, "All of them are in the full answer, and the ledger closes to the row.", wrong)
    if stage.engine is not EMBEDDED:
        stage.verdict(
            have_same_rows(kept, here),
            "In this process the very same rows are shed.",
            "In this process other rows are shed.",
        )


def show_next_steps(stage: DemoContext) -> None:
    seconds = time.perf_counter() - stage.began_s
    stage.screen.print(
        f"All of this took {seconds:.0f} s. Your own streams: docs/tutorial.md. The dashboard: watersmeet demo --ui, or watersmeet ui. "
        "What explain says: docs/explain.md."
    )


#: The whole demo.
STEPS: tuple[tuple[str, Callable[[DemoContext], None]], ...] = (
    ("The question", show_question),
    ("The plan, and why", show_plan),
    ("The answer", run_join),
    ("The same again, the slow way", check_join),
    ("An aggregation over a join", run_aggregation),
    ("Not enough machine", run_overload),
    ("Where to look next", show_next_steps),
)


def _start_spark(stage: DemoContext) -> None:
    started = time.perf_counter()
    with quiet_spark(SHORT_RUN_JAVA_OPTIONS):
        pass  # it stays when the block is over
    stage.screen.print(
        f"Spark took {time.perf_counter() - started:.1f} s to start. A streaming query reads the year quarter by quarter, from files "
        "into files, with a checkpoint; its first micro-batch starts the Python workers.",
    )


def _render_costs(predicted: Mapping[str, float], measured: Mapping[str, float]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for title in ("  part", "predicted", "measured"):
        shown.add_column(title, justify="left" if "part" in title else "right")
    for name in predicted:
        shown.add_row(
            f"  {name}", f"{predicted[name]:.3f} s", f"{measured[name]:.3f} s" if name in measured else "not told apart"
        )
    return shown


def _sum_shed_rows(seen: Iterable[BatchMetrics]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in seen:
        for name, rows in each.shed.items():
            found[name] = found.get(name, 0) + rows
    return found


def _sample_rows(rows: pa.Table) -> pa.Table:
    """A few rows from all over the year."""
    ordered = rows.sort_by([("from_ewr", "ascending"), ("dest", "ascending")])
    return ordered.take(
        pa.array(np.linspace(0, max(rows.num_rows - 1, 0), min(_SAMPLE_ROWS, rows.num_rows)).astype(np.int64))
    )


@dataclass
class DemoContext:
    """`plan` is what was chosen for the join, `rows` its answer once it has run; `agreed` turns False when a check
    fails.
    """

    screen: Console
    departures: Tables
    engine: DemoEngine
    observe: Observer
    show_plan: Explanation | None = None
    rows: pa.Table | None = None
    agreed: bool = True
    began_s: float = field(default_factory=time.perf_counter)

    @property
    def arrived(self) -> int:
        return sum(table.num_rows for table in self.departures.values())

    @property
    def span_s(self) -> float:
        """Seconds of stream, from the first departure to the last."""
        times = [times_us(table, "departed") for table in self.departures.values()]
        return float(max(at[-1] for at in times) - min(at[0] for at in times)) / 1e6

    def run(self, query: str, plan: wm.Plan, *names: str) -> tuple[pa.Table, list[BatchMetrics]]:
        """The rows of a query over these airports, or all, every batch said as it ends where batches take long."""
        seen: list[BatchMetrics] = []

        def observe(figures: BatchMetrics) -> None:
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

    def _say(self, figures: BatchMetrics) -> None:
        until = "" if figures.newest_us is None else f" up to {str(np.datetime64(figures.newest_us, 'us'))[:10]}"
        self.screen.print(
            f"  micro-batch {figures.batch + 1}: {pluralize(sum(figures.rows_in.values()), 'departure')}{until}, "
            f"{pluralize(figures.rows_out, 'row')} out, {figures.took_s:.1f} s",
            style="dim",
        )


def have_same_rows(first: pa.Table, second: pa.Table) -> bool:
    return count_rows(first) == count_rows(second)
