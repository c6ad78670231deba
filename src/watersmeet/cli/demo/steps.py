"""Steps of the demo. A step is a function of the `DemoContext`; `STEPS` lists them in order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import watersmeet as wm
from watersmeet.cli.demo.engines import (
    EMBEDDED,
    DemoContext,
    DemoEngine,
    format_day,
    measure_steady_state,
    predict_join_cpu_per_s,
)
from watersmeet.cli.demo.replay import (
    AIRCRAFT_WINDOW_US,
    HOURS_LATE,
    Replay,
    load_flights,
    write_aircraft_query,
    write_delay_query,
    write_punctuality_query,
)
from watersmeet.cli.demo.results import (
    SAMPLE_ROWS,
    check_aircraft,
    count_rows,
    describe_costs,
    have_same_rows,
    render_measurement,
    render_plans,
    round_averages,
    select_quickest,
)
from watersmeet.cli.terminal import render_rows
from watersmeet.metrics import BatchMetrics, Observer
from watersmeet.planner.explain import Explanation
from watersmeet.runtime.live import LiveWatch, forecast_run
from watersmeet.units import (
    format_bytes,
    format_cores,
    format_count,
    format_duration,
    format_percent,
    format_rate,
)

#: The overload replays the year faster by the first of these factors that is too much for one core.
OVERLOAD_FACTORS = (2, 4, 5, 10, 20)

_ONE_CORE = wm.Budget(processors=1)
_PUNCTUALITY_STREAMS = ("ewr", "lga")
_EARLY_PLAN = wm.plan(early=["e", "l"])
_OVERLOAD_PLAN = wm.plan("runs")

#: A compilation of kernels that takes longer than this is reported. Loading them from the cache is faster.
_NOTABLE_COMPILATION_S = 3.0


def run_demo(
    screen: Console,
    engine: DemoEngine = EMBEDDED,
    observe: Observer = lambda figures: None,
    *,
    replay: Replay | None = None,
    paced: bool = True,
) -> bool:
    """Run all steps; return False if a check fails. `observe` receives the batches of the join."""
    with _open_demo(screen, engine, replay) as demo:
        demo.observe, demo.paced = observe, paced
        return _run_steps(demo)


def run_demo_with_dashboard(screen: Console, port: int, engine: DemoEngine = EMBEDDED) -> bool:
    """Run the demo with its dashboard, which shows the join."""
    from watersmeet.cli.ui import build_dashboard, serve_during_run

    with _open_demo(screen, engine) as demo:
        query, streams = wm.sql(write_aircraft_query(demo.replay)), demo.replay.declare_streams()
        shown = build_dashboard("aircraft at three airports", query, streams, engine=engine.name)
        watch = LiveWatch(lambda: forecast_run(lambda: shown.questions.base))
        with serve_during_run(shown, port) as live:
            demo.observe = lambda figures: live.observe(watch.observe(figures), watch.report)
            return _run_steps(demo)


@contextmanager
def _open_demo(screen: Console, engine: DemoEngine, replay: Replay | None = None) -> Iterator[DemoContext]:
    """Start the engine in the background while the flights are read and the join is planned."""
    started_s, background = time.perf_counter(), ThreadPoolExecutor(1, "watersmeet demo")

    def start_engine() -> float:
        engine.start()
        return time.perf_counter() - started_s

    starting = background.submit(start_engine)
    try:
        with screen.status("reading the flights"):
            replay = replay or Replay(load_flights())
        yield DemoContext(screen, replay, engine, started_s=started_s, background=background, starting=starting)
    finally:
        background.shutdown(cancel_futures=True)


def _run_steps(demo: DemoContext) -> bool:
    for number, (title, step) in enumerate(STEPS, start=1):
        demo.screen.rule(f"{number}. {title}", align="left")
        step(demo)
    return demo.all_checks_passed


def show_question(demo: DemoContext) -> None:
    replay = demo.replay
    week = format_duration(replay.to_replay_us(AIRCRAFT_WINDOW_US) / 1e6)
    demo.screen.print(
        f"In 2013, {replay.row_count:,} flights left New York from Newark (ewr), Kennedy (jfk) and LaGuardia (lga). "
        f"Each airport is a stream. The demo replays them {replay.speedup:,} times faster: the year lasts "
        f"{replay.length_s:.0f} s, a week lasts {week}, and {format_count(replay.rows_per_s)} flights depart "
        "per second."
    )
    demo.screen.print("Which aircraft left from all three airports within a week?\n")
    demo.print_query(write_aircraft_query(replay))


def show_plan(demo: DemoContext) -> None:
    """Show the cost of the best plan of every algorithm, and the state and output of the chosen one."""
    about = demo.explanation = wm.explain(
        write_aircraft_query(demo.replay), demo.replay.declare_streams(), engine=demo.engine.name, budget=_ONE_CORE
    )
    demo.screen.print(
        f"explain has seen the first {format_duration(demo.replay.batch_s)} of the streams. It predicts the cost of "
        f"{1 + len(about.others)} plans. The cheapest of each algorithm:"
    )
    demo.screen.print(render_plans(about))
    cost = about.chosen.cost
    spark = cost.cpu_per_s - predict_join_cpu_per_s(about)
    also = f" Spark itself needs {format_cores(spark)} with every plan." if demo.on_spark else ""
    verdict = "It keeps up" if about.feasible else "It cannot keep up"
    demo.screen.print(
        f"The chosen plan needs [bold]{format_cores(cost.cpu_per_s)}[/bold], "
        f"{format_bytes(cost.state_bytes)} of state ({format_count(cost.state_rows)} rows), and emits "
        f"{format_rate(cost.rows_out_per_s)}. {verdict} on one core.{also}"
    )


def run_join(demo: DemoContext) -> None:
    if demo.explanation is None:
        return
    _compile_kernels(demo, demo.explanation.plan)
    if demo.on_spark and demo.starting is not None:
        _report_start_up(demo, demo.starting)
    pace = f"one batch every {format_duration(demo.replay.batch_s)}" if demo.paced else "as fast as it can"
    demo.screen.print(f"The year is replayed {demo.engine.where}, {pace}:")
    demo.rows, samples = demo.run_join_observed()
    demo.screen.print("\nPredicted before the run, and measured from the second batch on:")
    demo.screen.print(render_measurement(demo, demo.explanation, measure_steady_state(samples)))
    demo.screen.print(describe_costs(demo, samples))
    demo.screen.print(f"\n[bold]{demo.rows.num_rows:,}[/bold] results. The quickest aircraft (times in UTC):")
    demo.screen.print(render_rows(select_quickest(demo.rows), SAMPLE_ROWS))


def check_join(demo: DemoContext) -> None:
    if demo.rows is None or demo.explanation is None:
        return
    if demo.on_spark:  # all figures have been measured, so both cores are free
        demo.prepare_reference(write_punctuality_query(demo.replay), wm.plan(), _PUNCTUALITY_STREAMS)
        demo.prepare_reference(write_delay_query(demo.replay), _OVERLOAD_PLAN)
    verdict = check_aircraft(demo.rows, demo.replay.departures)
    demo.screen.print(
        f"A plain Python loop tests all {verdict.combinations:,} combinations of three departures of one aircraft, "
        "one from each airport."
    )
    wrong = f"The rows differ: {verdict.lost:,} are missing, {verdict.invented:,} are too many."
    demo.report_check(verdict.holds, f"It finds the same {verdict.rows:,} rows, each exactly once.", wrong)
    if demo.on_spark:
        same = have_same_rows(demo.rows, demo.run_embedded(write_aircraft_query(demo.replay), demo.explanation.plan))
        demo.report_check(same, "The embedded engine gives the same rows.", "The embedded engine gives different rows.")


def run_aggregation(demo: DemoContext) -> None:
    """Aggregate over a join by two plans, before the join and after it. They must agree."""
    query, names = write_punctuality_query(demo.replay), _PUNCTUALITY_STREAMS
    demo.screen.print(
        "Newark or LaGuardia? Every week: how many minutes late were flights to each destination in the last week?\n"
    )
    demo.print_query(query)
    early, late = (
        wm.explain(query, demo.replay.declare_streams(names), plan=plan) for plan in (_EARLY_PLAN, wm.plan())
    )
    ratio = late.chosen.cost.cpu_per_s / early.chosen.cost.cpu_per_s
    demo.screen.print(
        f"\nexplain: aggregated before the join, it needs {format_cores(early.chosen.cost.cpu_per_s)}; "
        f"after the join, {ratio:.1f} times as much."
    )
    rows, _ = demo.run(query, early.plan, demo.replay, names)
    last = pc.max(rows.column("as_of"))
    at_end = rows.filter(pc.equal(rows.column("as_of"), last)).sort_by([("pairs", "descending"), ("dest", "ascending")])
    last_day = format_day(demo.replay.to_departure_us(int(last.cast(pa.int64()).as_py())))
    demo.screen.print(f"{rows.num_rows:,} rows over the year. The last week, until {last_day}, most flights first:")
    demo.screen.print(render_rows(round_averages(at_end.drop_columns(["as_of"])), SAMPLE_ROWS))
    reference = demo.run_embedded(query, wm.plan(), names)
    if demo.on_spark:  # a streaming query emits only what its watermark has passed
        reference = reference.filter(pc.less_equal(reference.column("as_of"), last))
    same = rows.num_rows > 0 and have_same_rows(rows, reference)
    here = "on the embedded engine, " if demo.on_spark else ""
    fine = f"Aggregated after the join, {here}it gives the same rows."
    demo.report_check(same, fine, fine.replace("the same", "different"))


def run_overload(demo: DemoContext) -> None:
    """Replay the year so fast that one core is too little; show what is shed, and check the ledger."""
    demo.screen.print(
        "A harder question: which three flights to one destination, one from each airport and within two days, were "
        f"more than {HOURS_LATE} hours late together?\n"
    )
    query = write_delay_query(demo.replay)
    demo.print_query(query)
    full = demo.run_embedded(query, _OVERLOAD_PLAN)
    found = find_overload(demo)
    _describe_overload(demo, found)
    shedding = found.explanation.choose_shedding_plan(shed=True) or found.explanation.plan
    query = write_delay_query(found.replay)
    if demo.on_spark:
        demo.prepare_reference(query, shedding, replay=found.replay)
    kept, samples = demo.run(query, shedding, found.replay)
    reference = demo.run_embedded(query, shedding, replay=found.replay) if demo.on_spark else kept
    ledger = _read_ledger(reference)
    demo.screen.print(f"The run {demo.engine.where} sheds rows, and counts each of them:")
    for name, entry in ledger.items():
        demo.screen.print(
            f"  {name}: {entry['arrived']:,} arrived = "
            f"{entry['kept']:,} kept + {entry['shed']:,} shed + {entry['late']:,} late"
        )
    share = kept.num_rows / max(1, full.num_rows)
    demo.screen.print(
        f"It finds {kept.num_rows:,} of {full.num_rows:,} results: [bold]{format_percent(share)}[/bold], "
        f"predicted {format_percent(found.predicted_share)}."
    )
    adds_up = all(each["arrived"] == each["kept"] + each["shed"] + each["late"] for each in ledger.values())
    adds_up &= _sum_shed_rows(each.figures for each in samples) == {name: each["shed"] for name, each in ledger.items()}
    demo.report_check(
        adds_up and not count_rows(kept) - count_rows(full),
        "All of them are in the full result, and the ledger adds up exactly.",
        "Some of them are not in the full result, or the ledger does not add up.",
    )
    if demo.on_spark:
        demo.report_check(
            have_same_rows(kept, reference),
            "The embedded engine sheds the same rows.",
            "The embedded engine sheds different rows.",
        )


def _describe_overload(demo: DemoContext, found: Overload) -> None:
    about = found.explanation
    at_first = _explain_delays(demo, demo.replay, _ONE_CORE).chosen.cost.cpu_per_s
    demo.screen.print(
        f"\nexplain: it needs {format_cores(at_first)}. Replayed [bold]{found.factor} times faster[/bold], "
        f"{format_count(found.replay.rows_per_s)} flights depart per second, and it needs "
        f"[bold]{format_cores(about.chosen.cost.cpu_per_s)}[/bold]; {format_cores(about.budget.processors)} is "
        "available. Any of these would help:"
    )
    for sentence in about.remedies.describe() if about.remedies is not None else ():
        demo.screen.print(Padding(Text(sentence), (0, 0, 0, 2), expand=False))


def show_next_steps(demo: DemoContext) -> None:
    seconds = time.perf_counter() - demo.started_s
    demo.screen.print(
        f"The demo took {seconds:.0f} s. Watch the join in the dashboard: watersmeet demo --ui. "
        "Your own streams: docs/tutorial.md. How to read explain: docs/explain.md."
    )


#: The whole demo.
STEPS: tuple[tuple[str, Callable[[DemoContext], None]], ...] = (
    ("The question", show_question),
    ("The plan", show_plan),
    ("The run", run_join),
    ("The check", check_join),
    ("An aggregation over a join", run_aggregation),
    ("Overload", run_overload),
    ("Next steps", show_next_steps),
)


@dataclass(frozen=True)
class Overload:
    """Replay that is too fast for the budget of its explanation."""

    factor: int
    replay: Replay
    explanation: Explanation

    @property
    def predicted_share(self) -> float:
        """Predicted share of the results that shedding keeps."""
        remedies = self.explanation.remedies
        return 1.0 if remedies is None or remedies.approximation is None else remedies.approximation.share_of_output


def find_overload(demo: DemoContext) -> Overload:
    """Find the slowest replay that one core cannot process in full, but can with shedding.

    On a machine for which every replay fits, the fastest one gets three quarters of the CPU that it needs.
    """
    for factor in OVERLOAD_FACTORS:
        replay = demo.replay.accelerate(factor)
        found = Overload(factor, replay, _explain_delays(demo, replay, _ONE_CORE))
        if found.predicted_share < 1:
            return found
    budget = wm.Budget(processors=found.explanation.chosen.cost.cpu_per_s * 3 / 4)
    return Overload(factor, replay, _explain_delays(demo, replay, budget))


def _explain_delays(demo: DemoContext, replay: Replay, budget: wm.Budget) -> Explanation:
    return wm.explain(
        write_delay_query(replay),
        replay.declare_streams(),
        plan=_OVERLOAD_PLAN,
        engine=demo.engine.name,
        budget=budget,
    )


def _compile_kernels(demo: DemoContext, plan: wm.Plan) -> None:
    """Run every query on one day in this process, so that no figure includes the compilation of a kernel.

    Compiled kernels are cached on disk, also for the workers of Spark.
    """
    day, started = demo.replay.select_first_day(), time.perf_counter()
    with demo.screen.status("compiling the kernels of these queries"):
        for query, each_plan, names in (
            (write_aircraft_query(day), plan, ()),
            (write_punctuality_query(day), _EARLY_PLAN, _PUNCTUALITY_STREAMS),
            (write_punctuality_query(day), wm.plan(), _PUNCTUALITY_STREAMS),
            (write_delay_query(day), replace(_OVERLOAD_PLAN, drop=(("ewr", 0.5),)), ()),
        ):
            EMBEDDED.run(query, day.declare_streams(names), each_plan, lambda figures: None, None)
    seconds = time.perf_counter() - started
    if seconds > _NOTABLE_COMPILATION_S:
        demo.screen.print(f"The kernels of these queries were compiled in {seconds:.1f} s, once per installation.")


def _report_start_up(demo: DemoContext, starting: Future[float]) -> None:
    """Wait until Spark has started, start its workers, and report how long each took."""
    with demo.screen.status("starting Spark"):
        session_s = starting.result()
    began = time.perf_counter()
    with demo.screen.status("starting the workers of Spark"):
        demo.engine.start_workers()
    demo.screen.print(
        f"Spark started in {session_s:.1f} s, and its workers in {time.perf_counter() - began:.1f} s. "
        "No figure below includes that. The first batch also starts the streaming query."
    )


def _read_ledger(rows: pa.Table) -> dict[str, dict[str, int]]:
    ledger: dict[str, dict[str, int]] = json.loads((rows.schema.metadata or {})[b"watersmeet"])["ledger"]
    return ledger


def _sum_shed_rows(seen: Iterable[BatchMetrics]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for each in seen:
        for name, rows in each.shed.items():
            totals[name] = totals.get(name, 0) + rows
    return totals
