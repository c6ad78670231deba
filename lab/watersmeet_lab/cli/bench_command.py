"""`watersmeet bench`: print each finding as soon as it is measured, and save it if it belongs on the page.

The page shows comparisons with peers, and how our time per row grows with windows, streams and matches. An interrupted
run keeps what it has saved, and `--resume` measures the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import typer

from watersmeet_lab.bench.results import list_differences, load_comparison, save_comparison
from watersmeet_lab.bench.results_page import list_saved_workloads, save_growth, write_page
from watersmeet_lab.bench.suite import run_benchmarks


def run_and_save(
    name: str, scale: float, *, as_json: bool, results_dir: Path | None, resume: bool, excluded_peers: Sequence[str]
) -> None:
    """Run benchmarks, print their findings, and save comparisons and growth points."""
    done = list_saved_workloads(results_dir) if resume and results_dir is not None else ()
    findings = run_benchmarks(name, scale, done, excluded_peers)
    for workload, of_workload in groupby(findings, key=lambda finding: finding.values.get("workload")):
        growth_points = []
        for finding in of_workload:
            typer.echo(json.dumps(finding.values) if as_json else finding.text)
            if results_dir is not None and finding.comparison is not None:
                save_comparison(finding.comparison, results_dir)
                write_page(results_dir)
            if results_dir is not None and workload == "growth":
                growth_points.append(finding.values)
                save_growth(growth_points, results_dir, is_complete=False)
        if results_dir is not None and growth_points:
            save_growth(growth_points, results_dir, is_complete=True)
            write_page(results_dir)


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
