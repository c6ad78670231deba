"""Steps of the demo. A step is a function of the `DemoContext`; `STEPS` lists them in order."""

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
from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.planner.explain import Explanation
from watersmeet.units import format_cores, format_count, format_percent, format_rate

_SAMPLE_ROWS = 8
_WATCHED_BATCH_S = 0.08

AGGREGATION_QUERY = """\
SELECT e.dest, COUNT(*) AS pairs
FROM ewr [RANGE 30 MINUTES] AS e, lga [RANGE 30 MINUTES] AS l
WHERE e.dest = l.dest
GROUP BY e.dest EVERY 1 DAY"""


def run_demo(screen: Console, engine: DemoEngine = EMBEDDED, observe: Observer = lambda figures: None) -> bool:
    """Run all steps; return False if a check fails."""
    from watersmeet.kernels.compile import warm_up

    departures = load_flights()
    with screen.status("compiling the kernels, which takes a minute the first time"):
        warm_up()  # the demo times the join, not the compiler
    demo = DemoContext(screen, departures, engine, observe)
    for number, (title, step) in enumerate(STEPS, start=1):
        screen.rule(f"{number}. {title}", align="left")
        step(demo)
    return demo.all_checks_passed


def run_demo_with_dashboard(screen: Console, port: int, engine: DemoEngine = EMBEDDED) -> bool:
    """Run the demo with its dashboard.

    The embedded engine is slowed down to about half a minute, so that the user can watch the run.
    """
    from watersmeet.cli.ui import build_dashboard, serve_during_run

    tables = {name: wm.stream(table, time="departed") for name, table in load_flights().items()}
    with serve_during_run(
        build_dashboard("departures of three airports", wm.sql(QUERY), tables, engine=engine.name), port
    ) as live:

        def observe(figures: BatchMetrics) -> None:
            live.observe(figures)
            if engine is EMBEDDED:
                time.sleep(_WATCHED_BATCH_S)

        return run_demo(screen, engine, observe)


def show_question(demo: DemoContext) -> None:
    demo.screen.print(
        f"In 2013, {demo.departure_count:,} flights left New York from Newark (ewr), Kennedy (jfk) and "
        "LaGuardia (lga). "
        "Each airport is a stream. Which destinations were served from all three airports, with at most 15 minutes "
        "from one airport to the next?\n"
    )
    demo.screen.print(Syntax(QUERY, "sql", background_color="default"))


def show_plan(demo: DemoContext) -> None:
    """Show the derived windows, the chosen plan, and how much more the next plan would cost."""
    names = {"e": "ewr", "j": "jfk", "l": "lga"}
    about = demo.explanation = wm.explain(QUERY, demo.engine.streams(demo.departures), engine=demo.engine.name)
    facts = about.to_dict()
    demo.screen.print(
        "The query gives windows for two pairs. The third follows from them and bounds how long rows are stored:"
    )
    for pair in facts["pairs"]:
        demo.screen.print(
            f"  {names[pair['first']]} and {names[pair['second']]}: "
            f"at most {pair['within_us'] // 60_000_000} minutes apart"
        )
    verdict = "It keeps up" if about.feasible else "It cannot keep up"
    demo.screen.print(
        f"Cheapest of {1 + len(about.others)} plans: [bold]{about.plan.algorithm}[/bold]. It is predicted to need "
        f"{format_cores(facts['cost']['cpu_per_s'])} and {format_count(facts['cost']['state_rows'])} rows of state. "
        f"{verdict}."
    )
    if about.others and facts["cost"]["cpu_per_s"]:
        times = about.others[0].cost.cpu_per_s / facts["cost"]["cpu_per_s"]
        demo.screen.print(f"The next plan, {about.others[0].plan.algorithm}, would cost {times:.2f} times as much.")


def run_join(demo: DemoContext) -> None:
    if demo.explanation is None:
        return
    if demo.engine is not EMBEDDED:
        _start_spark(demo)
    started = time.perf_counter()
    demo.rows, seen = demo.run(QUERY, demo.explanation.plan)
    seconds = time.perf_counter() - started
    speedup = demo.span_s / seconds
    demo.screen.print(
        f"[bold]{demo.rows.num_rows:,}[/bold] triples of flights from {demo.departure_count:,} departures, "
        f"in {seconds:.2f} s {demo.engine.where}. That is [bold]{format_rate(demo.departure_count / seconds)}[/bold], "
        f"{speedup:,.0f} times faster than real time. A sample:\n"
    )
    demo.screen.print(render_rows(_sample_rows(demo.rows), _SAMPLE_ROWS))
    on_spark = demo.engine is not EMBEDDED
    predicted = sum_predicted_seconds(demo.explanation, demo.span_s, on_spark=on_spark)
    demo.screen.print("\nCPU seconds, predicted before the first row and measured:")
    demo.screen.print(_render_costs(predicted, sum_measured_seconds(seen, on_spark=on_spark)))
    if on_spark:
        demo.screen.print(
            "The costs of Spark itself are assumed, not calibrated. "
            f"The first micro-batch took {seen[0].took_s:.1f} s, mostly to start the Python workers."
        )


def check_join(demo: DemoContext) -> None:
    if demo.rows is None or demo.explanation is None:
        return
    demo.screen.print(
        f"A plain Python loop tests every combination of three flights in the {CHECKED_HOURS} busiest hours."
    )
    verdict = check_busiest_hours(demo.rows, demo.departures)
    demo.screen.print(
        f"{verdict.since} to {verdict.until} UTC: {verdict.combinations:,} combinations, "
        f"{verdict.rows:,} rows from the engine."
    )
    wrong = f"They differ: {verdict.lost:,} rows missing, {verdict.invented:,} rows too many."
    demo.report_check(verdict.holds, "The same rows, each exactly once.", wrong)
    if demo.engine is not EMBEDDED:
        same = have_same_rows(demo.rows, demo.run_embedded(QUERY, demo.explanation.plan))
        demo.report_check(
            same,
            "The embedded engine gives the same rows for the whole year, day by day.",
            "The embedded engine gives different rows for the year.",
        )


def run_aggregation(demo: DemoContext) -> None:
    """Aggregate over a join by two plans, after the join and early on one input. They must agree."""
    demo.screen.print(
        "At every midnight: how many pairs of flights to one destination left Newark and LaGuardia within 30 minutes?\n"
    )
    demo.screen.print(Syntax(AGGREGATION_QUERY, "sql", background_color="default"))
    late, _ = demo.run(AGGREGATION_QUERY, wm.plan(), "ewr", "lga")
    early = demo.run_embedded(AGGREGATION_QUERY, wm.plan(early=["l"]), "ewr", "lga")
    if demo.engine is not EMBEDDED:  # a streaming query emits only what its watermark has passed
        early = early.filter(pc.less_equal(early.column("as_of"), pc.max(late.column("as_of"))))
    ordered = late.sort_by([("as_of", "ascending"), ("dest", "ascending")])
    demo.screen.print(f"\n{late.num_rows:,} changes of groups over the year. The last three:")
    demo.screen.print(render_rows(ordered.slice(max(0, late.num_rows - 3)), 3))
    same = late.num_rows > 0 and have_same_rows(late, early)
    here = "" if demo.engine is EMBEDDED else ", on the embedded engine,"
    fine = f"Aggregating one stream before the join{here} gives the same rows."
    demo.report_check(same, fine, f"Aggregating one stream before the join{here} gives different rows.")


def run_overload(demo: DemoContext) -> None:
    """Run with three quarters of the CPU that the join needs; show what is shed and check the ledger."""
    if demo.rows is None:
        return
    streams = {name: wm.stream(table, time="departed") for name, table in demo.departures.items()}
    needed = wm.explain(QUERY, streams).chosen.cost.cpu_per_s
    about = wm.explain(QUERY, streams, budget=wm.Budget(processors=needed * 3 / 4))
    demo.screen.print(
        f"The join needs {format_cores(needed)}. Suppose the machine has only three quarters of that. "
        "Any of these would help:"
    )
    for sentence in about.remedies.describe() if about.remedies is not None else ():
        demo.screen.print(f"  {sentence}", markup=False)
    shedding = about.choose_shedding_plan(shed=True) or about.plan
    kept, seen = demo.run(QUERY, shedding)
    here = demo.run_embedded(QUERY, shedding)
    ledger = json.loads((here.schema.metadata or {}).get(b"watersmeet", b"{}")).get("ledger", {})
    for name, entry in ledger.items():
        demo.screen.print(
            f"  {name}: {entry['arrived']:,} arrived = "
            f"{entry['kept']:,} kept + {entry['shed']:,} shed + {entry['late']:,} late"
        )
    closes = all(each["arrived"] == each["kept"] + each["shed"] + each["late"] for each in ledger.values())
    closes &= _sum_shed_rows(seen) == {name: entry["shed"] for name, entry in ledger.items()}
    subset = not count_rows(kept) - count_rows(demo.rows)
    share = kept.num_rows / max(1, demo.rows.num_rows)
    demo.screen.print(f"The run emits {kept.num_rows:,} rows, {format_percent(share)} of the full result.")
    wrong = "Some of them are not in the full result, or the ledger does not add up."
    demo.report_check(closes and subset, "All of them are in the full result, and the ledger adds up exactly.", wrong)
    if demo.engine is not EMBEDDED:
        demo.report_check(
            have_same_rows(kept, here),
            "The embedded engine sheds the same rows.",
            "The embedded engine sheds different rows.",
        )


def show_next_steps(demo: DemoContext) -> None:
    seconds = time.perf_counter() - demo.started_s
    demo.screen.print(
        f"The demo took {seconds:.0f} s. Your own streams: docs/tutorial.md. How to read explain: docs/explain.md. "
        "The dashboard: watersmeet demo --ui, or watersmeet ui."
    )


#: The whole demo.
STEPS: tuple[tuple[str, Callable[[DemoContext], None]], ...] = (
    ("The question", show_question),
    ("The plan", show_plan),
    ("The result", run_join),
    ("The check", check_join),
    ("An aggregation over a join", run_aggregation),
    ("Overload", run_overload),
    ("Next steps", show_next_steps),
)


def _start_spark(demo: DemoContext) -> None:
    started = time.perf_counter()
    with quiet_spark(SHORT_RUN_JAVA_OPTIONS):
        pass  # the session stays active after the block
    demo.screen.print(
        f"Spark took {time.perf_counter() - started:.1f} s to start. A streaming query reads the year "
        "quarter by quarter from files and writes files, with a checkpoint. "
        "Its first micro-batch starts the Python workers.",
    )


def _render_costs(predicted: Mapping[str, float], measured: Mapping[str, float]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for title in ("  part", "predicted", "measured"):
        shown.add_column(title, justify="left" if "part" in title else "right")
    for name in predicted:
        shown.add_row(
            f"  {name}",
            f"{predicted[name]:.3f} s",
            f"{measured[name]:.3f} s" if name in measured else "not measured separately",
        )
    return shown


def _sum_shed_rows(seen: Iterable[BatchMetrics]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for each in seen:
        for name, rows in each.shed.items():
            totals[name] = totals.get(name, 0) + rows
    return totals


def _sample_rows(rows: pa.Table) -> pa.Table:
    """Return a few rows from the whole year."""
    ordered = rows.sort_by([("from_ewr", "ascending"), ("dest", "ascending")])
    return ordered.take(np.linspace(0, max(rows.num_rows - 1, 0), min(_SAMPLE_ROWS, rows.num_rows)).astype(np.int64))


@dataclass
class DemoContext:
    """Data, engine and results that the steps share.

    `explanation` has the plan of the join, `rows` its result. Both are None until their step has run.
    """

    screen: Console
    departures: Tables
    engine: DemoEngine
    observe: Observer
    explanation: Explanation | None = None
    rows: pa.Table | None = None
    all_checks_passed: bool = True
    started_s: float = field(default_factory=time.perf_counter)

    @property
    def departure_count(self) -> int:
        return sum(table.num_rows for table in self.departures.values())

    @property
    def span_s(self) -> float:
        """Event time from the first departure to the last."""
        times = [times_us(table, "departed") for table in self.departures.values()]
        return float(max(at[-1] for at in times) - min(at[0] for at in times)) / 1e6

    def run(self, query: str, plan: wm.Plan, *names: str) -> tuple[pa.Table, list[BatchMetrics]]:
        """Run a query over the named airports, or all of them; print each micro-batch on Spark."""
        seen: list[BatchMetrics] = []

        def observe(figures: BatchMetrics) -> None:
            seen.append(figures)
            self.observe(figures)
            if self.engine is not EMBEDDED:
                self._print_batch(figures)

        rows = self.engine.run(query, self.engine.streams(self.select_departures(names)), plan, observe)
        return rows, seen

    def run_embedded(self, query: str, plan: wm.Plan, *names: str) -> pa.Table:
        """Run the query on the embedded engine, as a reference."""
        return EMBEDDED.run(query, EMBEDDED.streams(self.select_departures(names)), plan, lambda figures: None)

    def select_departures(self, names: tuple[str, ...]) -> Tables:
        return {name: table for name, table in self.departures.items() if not names or name in names}

    def report_check(self, passed: bool, success: str, failure: str) -> None:
        """Print the outcome of a check and remember a failure."""
        self.screen.print(f"[bold green]{success}[/bold green]" if passed else f"[bold red]{failure}[/bold red]")
        self.all_checks_passed &= passed

    def _print_batch(self, figures: BatchMetrics) -> None:
        until = "" if figures.newest_us is None else f" up to {str(np.datetime64(figures.newest_us, 'us'))[:10]}"
        self.screen.print(
            f"  micro-batch {figures.batch + 1}: {pluralize(sum(figures.rows_in.values()), 'departure')}{until}, "
            f"{pluralize(figures.rows_out, 'row')} out, {figures.took_s:.1f} s",
            style="dim",
        )


def have_same_rows(first: pa.Table, second: pa.Table) -> bool:
    return count_rows(first) == count_rows(second)
