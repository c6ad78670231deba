"""`watersmeet paper`: reproduce a paper's tables and figures, write the report, and print which claims hold."""

from __future__ import annotations

import datetime as dt
import json
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import watersmeet as wm
from watersmeet.calibration.profiles import cpu_name
from watersmeet.cli.terminal import make_console
from watersmeet.errors import InputError, escape_controls
from watersmeet_lab.papers.claims import Claim
from watersmeet_lab.papers.effort import choose_effort
from watersmeet_lab.papers.registry import PaperEntry, find_papers, reproduce_papers
from watersmeet_lab.papers.report import VERDICTS, ReproducedPaper, write_report

_STYLES = {"holds": "green", "holds with a difference": "yellow", "does not hold": "red"}


def write_paper_report(name: str, out: Path, *, quick: bool, as_json: bool) -> None:
    """Reproduce the named paper, or all papers, and write the report into the folder."""
    papers = find_papers(name)
    _refuse_file(out)
    with report_progress(make_console(stderr=True)) as report:
        reproduced = _reproduce_all(papers, report, quick=quick)
        report("drawing plots and writing the report")
        index = write_report(reproduced, _describe_run(quick=quick), out)
    claims = [claim for paper in reproduced for claim in paper.claims]
    if as_json:
        typer.echo(json.dumps([claim.to_dict() for claim in claims], indent=1, ensure_ascii=False))
        return
    screen = make_console()
    screen.print(_claims_table(claims))
    screen.print(
        f"{_count_verdicts(claims)}; report: {escape_controls(str(index))}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def report_progress(screen: Console) -> Iterator[Callable[[str], None]]:
    """Show the current step in one line on stderr, so that it does not mix with output for programs."""
    if not screen.is_terminal:
        yield lambda step: screen.print(step, markup=False, style="dim")
        return
    with screen.status("starting", spinner="dots") as status:
        yield lambda step: status.update(Text(step))


def _reproduce_all(
    papers: tuple[PaperEntry, ...], report: Callable[[str], None], *, quick: bool
) -> list[ReproducedPaper]:
    return list(reproduce_papers(papers, choose_effort(report, quick=quick)))


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f'the report needs a folder, but "{out}" is a file', hint="name another with --out")


def _describe_run(*, quick: bool) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    how = "Written with --quick: small runs, so measurements are not meaningful. " if quick else ""
    return (
        f"{how}Watersmeet {wm.__version__} on {cpu_name()}, Python {platform.python_version()}, {today}. Times are CPU "
        "time of one process, the best of a few runs. Algorithms that are compared take turns."
    )


def _claims_table(claims: list[Claim]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("claim", "verdict", "statement"):
        table.add_column(column, no_wrap=column != "statement")
    for claim in claims:
        table.add_row(Text(claim.id), Text(claim.verdict, _STYLES[claim.verdict]), Text(claim.statement))
    return table


def _count_verdicts(claims: list[Claim]) -> str:
    counts = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
