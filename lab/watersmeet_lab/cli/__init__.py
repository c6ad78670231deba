"""The commands `watersmeet paper` and `watersmeet bench`; the entry point `watersmeet.commands` adds them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.exit import exit_on_error

MAX_SCALE = 1_000


class Peer(StrEnum):
    """Systems that a benchmark can skip."""

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
        bool, typer.Option("--quick", help="Small runs: seconds instead of minutes; measurements are not meaningful.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the claims as one JSON list.")] = False,
) -> None:
    """Reproduce a paper's tables and figures: numbers, plots, and a verdict for each claim."""
    from watersmeet_lab.cli import paper_command

    with exit_on_error():
        paper_command.write_paper_report(name, out, quick=quick, as_json=as_json)


def bench(
    name: Annotated[str, typer.Argument(help="A benchmark, peers, or all; or compare, with two saved results.")],
    results: Annotated[list[Path] | None, typer.Argument(help="Two files to compare.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    scale: Annotated[
        float,
        typer.Option(
            min=0.001, max=MAX_SCALE, help="Length of the streams in comparisons with peers; below 1 for a quick look."
        ),
    ] = 1.0,
    save: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save the comparisons with peers: values, plots and a page.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip workloads that DIR already has.")] = False,
    without: Annotated[
        list[Peer] | None, typer.Option(help="A peer to skip; may be repeated.", show_default=False)
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile Watersmeet only: time by stage on Spark, by kernel embedded.")
    ] = False,
) -> None:
    """Measure Watersmeet against its peers in one run, on seeded workloads."""
    from watersmeet_lab.cli import bench_command

    with exit_on_error():
        if name == "compare":
            bench_command.compare_results(results or [])
        elif profile:
            bench_command.show_profile(name, scale, as_json=as_json)
        else:
            bench_command.run_and_save(
                name, scale, as_json=as_json, results_dir=save, resume=resume, excluded_peers=without or []
            )
