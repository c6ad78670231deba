"""The `watersmeet` command: its subcommands and their options.

Exit codes: 0 success, 1 an error in the query or the data (reported on stderr), 2 wrong usage of the command, 130
stopped by Ctrl-C.

This module imports only what the options need, so that `--version` and `--help` answer at once. A command imports its
own modules.
"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import watersmeet as wm
from watersmeet.cli.exit import INTERRUPTED, exit_on_error
from watersmeet.errors import InputError
from watersmeet.sinks import SINK_FORMATS

if TYPE_CHECKING:
    from watersmeet.cli.arguments import PlanningOptions, QueryText, ReadMode
    from watersmeet.cli.jobfile import JobFile

DEFAULT_PORT = 8470
MAX_PORT = 65_535
MAX_ROWS = 2**31 - 1

#: The package watersmeet-lab adds its commands through this entry point.
ENTRY_POINTS = "watersmeet.commands"
LAB_COMMANDS = {
    "paper": "Reproduce a paper's tables and figures (needs watersmeet-lab).",
    "bench": "Measure this system against its peers (needs watersmeet-lab).",
}

app = typer.Typer(
    name="watersmeet",
    help="Run continuous queries that join data streams over sliding windows.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class EngineName(StrEnum):
    EMBEDDED = "embedded"
    SPARK = "spark"


_QUERY = typer.Argument(metavar="QUERY", help="File with the query, or the query itself in quotes.", show_default=False)
QueryArgument = Annotated[str, _QUERY]
MaybeQueryArgument = Annotated[str | None, _QUERY]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help=f"Output file ({', '.join(SINK_FORMATS)}), or a directory with --follow or --checkpoint. "
        "`console` prints every row; `memory`, the default, prints the first rows.",
    ),
]
Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="NAME=PATH,time=COLUMN[,unit=ms][,lateness=5s][,idle=1m]",
        help="Stream: a file or a directory of files. "
        "For a source that Spark reads itself: NAME=format=FORMAT,OPTION=VALUE,...,time=COLUMN.",
    ),
]
Ui = Annotated[bool, typer.Option("--ui", help="Open the dashboard.")]
Port = Annotated[
    int, typer.Option(min=0, max=MAX_PORT, help="Port of the dashboard on 127.0.0.1; 0 selects a free port.")
]
Processors = Annotated[float | None, typer.Option(help="CPU cores for the query. A query that needs more is refused.")]
Headroom = Annotated[float, typer.Option(help="Fraction of CPU to keep free.")]
Memory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory for the state of the query, such as 500MB or 2GB.")
]
Objective = Annotated[
    str | None, typer.Option(metavar="cpu|memory", help="Resource that the plan minimizes.  [default: cpu]")
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Pin the plan of a file: the output of `explain --json`."),
]
StatsFile = Annotated[
    Path | None,
    typer.Option(
        "--stats",
        metavar="FILE",
        help="TOML file with declared statistics: rates, distinct values, selectivities and costs of predicates, "
        "rows of relations.",
    ),
]
Config = Annotated[
    Path | None, typer.Option(metavar="JOB.TOML", help="Job file with these settings. Options override it.")
]
Shed = Annotated[
    bool, typer.Option("--shed", help="If the query cannot keep up, drop the rows that cost the least output.")
]
Least = Annotated[
    list[str] | None,
    typer.Option("--least", metavar="NAME=RATE", help="Rows per second of a stream that shedding must keep."),
]
Weights = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="NAME=NUMBER", help="Weight of the output from a stream, for shedding."),
]
Relations = Annotated[list[str] | None, typer.Option("--relation", metavar="NAME=PATH", help="Static table.")]


@app.command()
def run(  # noqa: PLR0913, PLR0917 - one parameter per option
    query: MaybeQueryArgument = None,
    stream: Streams = None,
    relation: Relations = None,
    out: Out = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(suffix[1:] for suffix in SINK_FORMATS),
            help="Format of the files in the output directory.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running and process new files until Ctrl-C.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Checkpoint directory. Rerun the same command to resume.")
    ] = None,
    max_batch: Annotated[
        str | None,
        typer.Option(
            metavar="auto|ROWS",
            help="Rows of a batch of a growing input: a number, or those that fit its time and the memory.",
        ),
    ] = None,
    config: Config = None,
    plan: PlanFile = None,
    stats: StatsFile = None,
    limit: Annotated[int, typer.Option(min=0, max=MAX_ROWS, help="Number of rows to print.")] = 20,
    engine: Annotated[
        EngineName | None, typer.Option(help="Engine that runs the query.  [default: embedded]", show_default=False)
    ] = None,
    ui: Ui = False,
    port: Port = DEFAULT_PORT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print rows as JSON lines; with --out, print metrics.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print rows and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the plan, changes of the plan, and a line per batch.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the events of the run to a file, as JSON lines.")
    ] = None,
    shed: Shed = False,
    least: Least = None,
    weight: Weights = None,
    processors: Processors = None,
    headroom: Headroom = 0.0,
    memory: Memory = None,
    objective: Objective = None,
) -> None:
    """Run a query over files, once or continuously, and print or write its rows."""
    from watersmeet.cli.arguments import declare_sources, parse_max_batch
    from watersmeet.cli.jobfile import JobFile, parse_budget, read_job_file
    from watersmeet.cli.reporter import open_reporter, write_events
    from watersmeet.cli.run import RunOptions, run_query
    from watersmeet.cli.spark import make_spark_reader

    with exit_on_error(), write_events(verbose=verbose, log=log):
        job = read_job_file(config) if config is not None else JobFile()
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other")
        text = _choose_query(query, job, config)
        budget = parse_budget(processors, headroom, memory, objective)
        planning = _read_planning_options(job, plan, stats, budget, least, weight, shed=shed)
        on_spark = _choose_engine(engine, job.engine) is EngineName.SPARK
        is_incremental = follow or job.follow or checkpoint is not None or job.checkpoint is not None
        with open_reporter(text.title, follow=follow or job.follow, quiet=quiet) as reporter:
            sources = declare_sources(
                stream or [],
                relation or [],
                job,
                reading=_choose_read_mode(is_incremental=is_incremental, on_spark=on_spark),
                spark=make_spark_reader(job.spark, reporter) if on_spark else None,
            )
            options = RunOptions(
                query=wm.sql(text.text),
                title=text.title,
                sources=sources,
                out=out or job.out or "memory",
                format=format_ or job.format,
                limit=limit,
                follow=follow or job.follow,
                checkpoint=checkpoint or (Path(job.checkpoint) if job.checkpoint else None),
                max_batch=parse_max_batch(max_batch) or job.max_batch,
                planning=planning,
                on_spark=on_spark,
                spark=job.spark,
                as_json=as_json,
                quiet=quiet,
                ui_port=port if ui else None,
            )
            run_query(options, reporter)


@app.command()
def explain(  # noqa: PLR0913, PLR0917 - one parameter per option
    query: MaybeQueryArgument = None,
    stream: Streams = None,
    relation: Relations = None,
    config: Config = None,
    plan: PlanFile = None,
    stats: StatsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    all_plans: Annotated[bool, typer.Option("--all-plans", help="List every plan that lost.")] = False,
    engine: Annotated[
        EngineName, typer.Option(help="Engine to plan for. Costs on Spark include the work of Spark itself.")
    ] = EngineName.EMBEDDED,
    trigger: Annotated[
        str | None,
        typer.Option(metavar="INTERVAL", help="With --engine spark: time between micro-batches, such as 10s."),
    ] = None,
    shed: Shed = False,
    least: Least = None,
    weight: Weights = None,
    processors: Processors = None,
    headroom: Headroom = 0.0,
    memory: Memory = None,
    objective: Objective = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Of a job that runs or ran with this checkpoint: its verdict, its first forecast, what its batches "
            "measured and the forecast of the next batch.",
        ),
    ] = None,
) -> None:
    """Show the plan, its predicted cost and the plans that lost, without running the query."""
    from watersmeet.cli.arguments import declare_sources
    from watersmeet.cli.jobfile import JobFile, parse_budget, read_job_file
    from watersmeet.cli.terminal import make_console

    with exit_on_error():
        if checkpoint is not None:
            from watersmeet.runtime.live import read_report

            report = read_report(checkpoint)
            typer.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
            return
        job = read_job_file(config) if config is not None else JobFile()
        text = _choose_query(query, job, config).text
        budget = parse_budget(processors, headroom, memory, objective)
        planning = _read_planning_options(job, plan, stats, budget, least, weight, shed=shed)
        known = planning.stats
        sources = declare_sources(stream or [], relation or [], job)
        declared = {name: known[name] for name in known if name in sources}
        with make_console(stderr=True).status("planning"):
            explanation = wm.explain(
                text,
                {**known, **sources},
                plan=planning.plan,
                stats=declared,
                budget=planning.budget,
                shed=planning.shed,
                all_plans=all_plans,
                engine=engine.value,
                trigger=trigger,
            )
        typer.echo(json.dumps(explanation.to_dict(), indent=2) if as_json else str(explanation))


@app.command()
def demo(
    engine: Annotated[
        EngineName | None,
        typer.Option(help="Engine that runs the queries.  [default: spark; embedded without Java]", show_default=False),
    ] = None,
    ui: Ui = False,
    port: Port = DEFAULT_PORT,
) -> None:
    """Join a year of real departures from three airports, and check the result."""
    from watersmeet.cli.demo import steps
    from watersmeet.cli.demo.engines import EMBEDDED, SPARK
    from watersmeet.cli.spark import find_spark_problem
    from watersmeet.cli.terminal import make_console

    with exit_on_error():
        problem = find_spark_problem()
        if engine is None and problem is not None:
            make_console().print(f"{problem}, so the demo runs in this process.", markup=False)
            engine = EngineName.EMBEDDED
        demo_engine = EMBEDDED if engine is EngineName.EMBEDDED else SPARK
        passed = (
            steps.run_demo_with_dashboard(make_console(), port, demo_engine)
            if ui
            else steps.run_demo(make_console(), demo_engine)
        )
        if not passed:
            raise typer.Exit(1)


@app.command()
def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer points: a few seconds, less precise.")] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Measure the costs of Spark, too: needs Java and another minute.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the operation costs of this machine and save the profile that the planner uses."""
    from watersmeet.cli.calibrate import run_calibration

    with exit_on_error():
        run_calibration(quick=quick, spark=spark, as_json=as_json)


@app.command()
def ui(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="File with the query, or the query itself in quotes. Default: an example.",
            show_default=False,
        ),
    ] = None,
    stream: Streams = None,
    relation: Relations = None,
    stats: Annotated[Path | None, typer.Option(help="TOML file with declared statistics, instead of data.")] = None,
    port: Port = DEFAULT_PORT,
) -> None:
    """Open the dashboard of a query: its plan, the plans that lost, and what-if questions about rates and windows."""
    with exit_on_error():
        from watersmeet.cli.arguments import declare_sources, read_query
        from watersmeet.cli.ui import EXAMPLE, EXAMPLE_STATS, build_dashboard, serve_until_interrupted
        from watersmeet.stats.stream_stats import read_stats

        if query is None:
            serve_until_interrupted(
                build_dashboard("example: one item sold in three stores", wm.sql(EXAMPLE), EXAMPLE_STATS), port
            )
            return
        text = read_query(query)
        known = read_stats(stats) if stats is not None else {}
        sources = declare_sources(stream or [], relation or [])
        declared = {name: known[name] for name in known if name in sources}
        serve_until_interrupted(
            build_dashboard(text.title, wm.sql(text.text), {**known, **sources}, stats=declared), port
        )


@app.command()
def repair(
    checkpoint: Annotated[Path, typer.Argument(metavar="DIR", help="Checkpoint directory of Watersmeet or of Spark.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Output directory of the query, needed if a batch must run again."),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", "--mend", help="Fix what can be fixed. Files are moved aside, never deleted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a checkpoint directory and fix what can be fixed without losing or duplicating rows."""
    from watersmeet.cli.repair import repair_checkpoint

    with exit_on_error():
        if not repair_checkpoint(checkpoint, out, fix=fix, as_json=as_json):
            raise typer.Exit(1)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"watersmeet {wm.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the `watersmeet` command."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _choose_query(query: str | None, job: JobFile, config: Path | None) -> QueryText:
    from watersmeet.cli.arguments import QueryText, read_query

    if query is None and job.query is None and job.sql is None:
        raise typer.BadParameter("name the query file, write the query itself, or name a --config with a query")
    if query is None and job.sql is not None:
        return QueryText(str(config), job.sql)
    return read_query(query or str(job.query))


def _read_planning_options(
    job: JobFile,
    plan: Path | None,
    stats: Path | None,
    budget: wm.Budget | None,
    least: list[str] | None,
    weights: list[str] | None,
    *,
    shed: bool,
) -> PlanningOptions:
    from watersmeet.cli.arguments import PlanningOptions, parse_policy
    from watersmeet.cli.jobfile import read_plan_file
    from watersmeet.stats.stream_stats import read_stats

    given = PlanningOptions(
        None if plan is None else read_plan_file(plan),
        budget,
        parse_policy(least or [], weights or [], shed=shed or bool(job.shed)),
        {} if stats is None else read_stats(stats),
    )
    return given.override(job)


def _choose_engine(option: EngineName | None, in_file: str | None) -> EngineName:
    if option is not None:
        return option
    if in_file is not None and in_file not in list(EngineName):
        raise InputError(f'there is no engine "{in_file[:40]}"', hint=f"engines: {', '.join(EngineName)}")
    return EngineName(in_file or EngineName.EMBEDDED)


def _choose_read_mode(*, is_incremental: bool, on_spark: bool) -> ReadMode:
    from watersmeet.cli.arguments import ReadMode

    if not is_incremental:
        return ReadMode.WHOLE
    return ReadMode.ON_SPARK if on_spark else ReadMode.FILE_BY_FILE


def add_lab_commands(app: typer.Typer) -> None:
    """Add the commands of installed extensions, or commands that print how to install the laboratory."""
    found = entry_points(group=ENTRY_POINTS)
    for entry in found:
        entry.load()(app)
    if not found:
        for name, summary in LAB_COMMANDS.items():
            _add_missing_command(app, name, summary)


def _add_missing_command(app: typer.Typer, name: str, summary: str) -> None:
    @app.command(name, help=summary, context_settings={"ignore_unknown_options": True})
    def explain_how_to_install(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        with exit_on_error():
            raise InputError(
                f'"watersmeet {name}" belongs to the laboratory, which is not installed',
                hint="run `pip install ./lab` in a checkout of Watersmeet",
            )


add_lab_commands(app)
