"""`watersmeet run`, `explain`, `calibrate`, `bench` and `demo`.

Exit codes: 0 done, 1 a mistake in query or data (said on stderr), 2 a mistake in how the command was called, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import watersmeet as wm
from watersmeet.cli import demo as flights
from watersmeet.cli.declare import declared_budget, declared_sources
from watersmeet.cli.show import console, counted, late_rows, printable, rows_as_table, shed_rows
from watersmeet.cli.write import check_target, write
from watersmeet.errors import InputError, InternalError, PlanError, WatersmeetError
from watersmeet.stats.toml import read_stats

INTERRUPTED = 130

app = typer.Typer(
    name="watersmeet",
    help="Continuous queries that join several data streams over sliding windows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Engine(StrEnum):
    EMBEDDED = "embedded"
    SPARK = "spark"


QueryFile = Annotated[Path, typer.Argument(metavar="QUERY.SQL", help="File with the query.", show_default=False)]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", metavar="NAME=PATH,time=COLUMN[,lateness=5s][,idle=1m]", help="A stream: a file or a directory of files."),
]
Processors = Annotated[float | None, typer.Option(help="Processors the query may use; it is refused if it needs more.")]
Headroom = Annotated[float, typer.Option(help="The share of the processors that is to stay free.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory for its windows, as in 500MB or 2GB.")]
Relations = Annotated[list[str] | None, typer.Option("--relation", metavar="NAME=PATH", help="A static table.")]


@app.command()
def run(
    query: QueryFile,
    stream: Streams = None,
    relation: Relations = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this .parquet, .csv or .jsonl file.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to show.")] = 20,
    engine: Annotated[Engine, typer.Option(help="Where the query runs.")] = Engine.EMBEDDED,
    shed: Annotated[bool, typer.Option("--shed", help="Drop rows if it cannot keep up, so that most of the answer is left.")] = False,
    processors: Processors = None,
    headroom: Headroom = 0.0,
    memory: Memory = None,
) -> None:
    """Runs a query over files and shows its rows, or writes them to a file."""
    with reported():
        _refuse_spark(engine)
        if out is not None:
            check_target(out)
        budget = declared_budget(processors, headroom, memory)
        rows = wm.collect(_text_of(query), declared_sources(stream or [], relation or []), budget=budget, shed=shed)
        screen = console()
        if out is None:
            screen.print(rows_as_table(rows, limit))
            screen.print(counted(rows, limit), style="dim")
        else:
            write(rows, out)
            screen.print(f"{rows.num_rows:,} rows written to {printable(str(out))}", markup=False, soft_wrap=True)
        for sentence in (*late_rows(rows), *shed_rows(rows)):
            console(stderr=True).print(sentence, markup=False)


@app.command()
def explain(
    query: QueryFile,
    stream: Streams = None,
    relation: Relations = None,
    stats: Annotated[Path | None, typer.Option(help="TOML file with declared statistics; streams need no data then.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    all_plans: Annotated[bool, typer.Option("--all-plans", help="List every plan that lost.")] = False,
    processors: Processors = None,
    headroom: Headroom = 0.0,
    memory: Memory = None,
) -> None:
    """Says what would run and what it would cost, before it runs."""
    with reported():
        known = read_stats(stats) if stats is not None else {}
        sources = declared_sources(stream or [], relation or [])
        declared = {name: known[name] for name in known if name in sources}
        budget = declared_budget(processors, headroom, memory)
        explanation = wm.explain(_text_of(query), {**known, **sources}, stats=declared, budget=budget, all_plans=all_plans)
        typer.echo(json.dumps(explanation.to_dict(), indent=2) if as_json else str(explanation))


@app.command()
def demo() -> None:
    """The main job on real data: a year of departures from three airports, joined and checked."""
    with reported():
        if not flights.show(console()):
            raise typer.Exit(1)


@app.command()
def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points: a few seconds, less exact.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measures this machine's weight factors and saves the profile that explain and the optimizer use."""
    from watersmeet.cli import calibrate as calibration

    with reported():
        calibration.calibrate(quick=quick, as_json=as_json)


@app.command()
def paper(
    name: Annotated[str, typer.Argument(help="golab, hammad, kang, tran, ayad, or all.")],
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("paper-report"),
    quick: Annotated[bool, typer.Option("--quick", help="Small runs: seconds instead of minutes; measured figures say little.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: the claims as one list.")] = False,
) -> None:
    """Reproduces a paper's tables and figures: numbers, plots, and a verdict for each claim."""
    from watersmeet.cli import paper as papers

    with reported():
        papers.paper(name, out, quick=quick, as_json=as_json)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark, or all.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one object per line.")] = False,
) -> None:
    """Measures this system beside its peers in one run, on seeded workloads."""
    from watersmeet.bench.suite import findings

    with reported():
        for finding in findings(name):
            typer.echo(json.dumps(finding.values) if as_json else finding.text)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"watersmeet {wm.__version__}")
        raise typer.Exit


@contextmanager
def reported() -> Iterator[None]:
    """Mistakes as one message on stderr, never as a stack trace."""
    try:
        yield
    except WatersmeetError as error:
        _say(str(error))
        raise typer.Exit(1) from error
    except InternalError as error:
        _say(f"{error}\nthis is a mistake in Watersmeet, not in your query or data")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(INTERRUPTED) from interrupt


def main() -> None:
    """The `watersmeet` command."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _say(message: str) -> None:
    typer.echo("watersmeet: " + "\n".join(printable(line) for line in message.split("\n")), err=True)


def _refuse_spark(engine: Engine) -> None:
    if engine is Engine.SPARK:
        raise PlanError("the Spark engine is not available in this version", hint="leave --engine out to run in this process")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f'query file "{path}" is not UTF-8 text') from error
    except (OSError, ValueError) as error:
        raise InputError(f'query file "{path}" cannot be read: {getattr(error, "strerror", None) or error}') from error
