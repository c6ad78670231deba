"""`watersmeet bench`: print and save each finding as it comes, so that an interrupted run loses nothing."""

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
    """Run benchmarks, print their findings, and save the comparisons."""
    done = list_saved_workloads(keep) if resume and keep is not None else ()
    growth_points = []
    for finding in run_benchmarks(name, scale, done, without):
        typer.echo(json.dumps(finding.values) if as_json else finding.text)
        if keep is not None and finding.comparison is not None:
            save_comparison(finding.comparison, keep)
            write_page(keep)
        if finding.values.get("workload") == "growth":
            growth_points.append(finding.values)
    if keep is not None and growth_points:
        save_growth(growth_points, keep)
        write_page(keep)


def compare_results(saved: Sequence[Path]) -> None:
    """Print how two saved results differ."""
    if len(saved) != 2:
        raise typer.BadParameter("name two saved results to compare")
    for line in list_differences(*map(load_comparison, saved)):
        typer.echo(line)


def show_profile(name: str, scale: float, *, as_json: bool) -> None:
    """Print where the time of a workload goes."""
    from watersmeet_lab.bench.time_profile import profile_workload

    for found in profile_workload(name, scale):
        typer.echo(json.dumps(found.to_dict()) if as_json else str(found))
