"""`watersmeet paper`: reproduces a paper's tables and figures, writes the report, and says which claims hold."""

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
from watersmeet.calibration.calibrate import cpu_name
from watersmeet.cli.terminal import escape_controls, make_console
from watersmeet.errors import InputError
from watersmeet_lab.papers.claims import Claim
from watersmeet_lab.papers.effort import choose_effort
from watersmeet_lab.papers.registry import PaperEntry, find_papers, reproduce_papers
from watersmeet_lab.papers.report import VERDICTS, ReproducedPaper, write_report

_STYLES = {"holds": "green", "holds with a difference": "yellow", "does not hold": "red"}


def write_paper_report(name: str, out: Path, *, quick: bool, as_json: bool) -> None:
    """Reproduces the paper of this name, or all of them, and writes the report into the folder."""
    papers = find_papers(name)
    _refuse_file(out)
    with report_progress(make_console(stderr=True)) as say:
        shown = _reproduce_all(papers, say, quick=quick)
        say("drawing plots and writing the report")
        index = write_report(shown, _describe_run(quick=quick), out)
    claims = [claim for each in shown for claim in each.claims]
    if as_json:
        typer.echo(json.dumps([claim.to_dict() for claim in claims], indent=1, ensure_ascii=False))
        return
    screen = make_console()
    screen.print(_claims_table(claims))
    screen.print(
        f"{_count_verdicts(claims)}; the report is {escape_controls(str(index))}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def report_progress(screen: Console) -> Iterator[Callable[[str], None]]:
    """One line that says what is under way, on stderr, where it cannot mix with what programs read."""
    if not screen.is_terminal:
        yield lambda words: screen.print(words, markup=False, style="dim")
        return
    with screen.status("starting", spinner="dots") as status:
        yield lambda words: status.update(Text(words))


def _reproduce_all(papers: tuple[PaperEntry, ...], say: Callable[[str], None], *, quick: bool) -> list[ReproducedPaper]:
    return list(reproduce_papers(papers, choose_effort(say, quick=quick)))


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f'the report goes into a folder, and "{out}" is a file', hint="name another with --out")


def _describe_run(*, quick: bool) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    how = "Made quickly, with small runs: measured figures say little. " if quick else ""
    return (
        f"{how}Watersmeet {wm.__version__} on {cpu_name()}, Python {platform.python_version()}, {today}. Times are CPU time of one "
        "process, the least "
        "of a few runs taken in turns."
    )


def _claims_table(claims: list[Claim]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("claim", "verdict", "statement"):
        shown.add_column(column, no_wrap=column != "statement")
    for claim in claims:
        shown.add_row(Text(claim.id), Text(claim.verdict, _STYLES[claim.verdict]), Text(claim.statement))
    return shown


def _count_verdicts(claims: list[Claim]) -> str:
    counts = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
