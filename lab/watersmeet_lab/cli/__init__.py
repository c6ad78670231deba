"""The commands `watersmeet paper` and `watersmeet bench`, found by the product through the entry point
`watersmeet.commands`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.exit import exit_on_error

MOST_SCALE = 1_000


class Peer(StrEnum):
    """Systems that a benchmark may leave out."""

    SPARK = "spark"
    FLINK = "flink"


def add_commands(app: typer.Typer) -> None:
    """Add both commands to the program."""
    app.command()(paper)
    app.command()(bench)


def paper(
    name: Annotated[str, typer.Argument(help="golab, hammad, kang, tran, ayad, or all.")],
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("paper-report"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Small runs: seconds instead of minutes; measured figures say little.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: the claims as one list.")] = False,
) -> None:
    """Reproduces a paper's tables and figures: numbers, plots, and a verdict for each claim."""
    from watersmeet_lab.cli import paper as papers

    with exit_on_error():
        papers.write_paper_report(name, out, quick=quick, as_json=as_json)


def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark, peers, or all; or compare, with two saved results.")],
    results: Annotated[list[Path] | None, typer.Argument(help="Two files to compare.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one object per line.")] = False,
    scale: Annotated[
        float,
        typer.Option(
            min=0.001, max=MOST_SCALE, help="Length of the streams beside peers; less than 1 for a quick look."
        ),
    ] = 1.0,
    save: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what was found beside peers: values, plots and a page.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Leave out what DIR has already.")] = False,
    without: Annotated[
        list[Peer] | None, typer.Option(help="A peer to leave out; may be repeated.", show_default=False)
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Only ours: where time goes, by stage on Spark, by kernel embedded.")
    ] = False,
) -> None:
    """Measures this system beside its peers in one run, on seeded workloads."""
    from watersmeet_lab.cli import bench as benches

    with exit_on_error():
        if name == "compare":
            benches.compare_results(results or [])
        elif profile:
            benches.show_profile(name, scale, as_json=as_json)
        else:
            benches.run_and_save(name, scale, as_json=as_json, keep=save, resume=resume, without=without or [])
