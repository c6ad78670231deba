"""`watersmeet bench`: findings as they come, kept one by one, so that a long run that ends early has lost nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from watersmeet_lab.bench.results import list_differences, load_comparison, save_comparison
from watersmeet_lab.bench.results_page import list_saved_workloads, save_growth, write_page
from watersmeet_lab.bench.suite import run_benchmarks


def run_and_save(
    name: str, scale: float, *, as_json: bool, keep: Path | None, resume: bool, without: Sequence[str]
) -> None:
    done = list_saved_workloads(keep) if resume and keep is not None else ()
    grown = []
    for finding in run_benchmarks(name, scale, done, without):
        typer.echo(json.dumps(finding.values) if as_json else finding.text)
        if keep is not None and finding.comparison is not None:
            save_comparison(finding.comparison, keep)
            write_page(keep)
        if finding.values.get("workload") == "growth":
            grown.append(finding.values)
    if keep is not None and grown:
        save_growth(grown, keep)
        write_page(keep)


def compare_results(saved: Sequence[Path]) -> None:
    if len(saved) != 2:
        raise typer.BadParameter("name two saved results to compare")
    for line in list_differences(*map(load_comparison, saved)):
        typer.echo(line)


def show_profile(name: str, scale: float, *, as_json: bool) -> None:
    from watersmeet_lab.bench.time_profile import profile_workload

    for found in profile_workload(name, scale):
        typer.echo(json.dumps(found.to_dict()) if as_json else str(found))
