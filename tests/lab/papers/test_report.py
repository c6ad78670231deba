"""The command and its report: every paper quickly, its claims as JSON, its pages, plots and tables."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from watersmeet.cli.main import app
from watersmeet_lab.papers.registry import PAPERS

#: Plots and tables that the report of each paper must contain.
PLOTS = {
    "golab": {"figure-2", "figure-3", "table-8", "figure-4a", "figure-4b"},
    "hammad": {"figure-7", "figure-8", "figure-9a", "figure-9b", "figure-9c", "figure-13", "figure-14"},
    "kang": {"figures-2-and-3", "figure-4", "figures-5-to-7"},
    "tran": {"figure-6", "figure-6-measured", "figure-7", "figure-8", "figure-8-measured", "figure-9", "figure-10"},
    "ayad": {"example-1", "figure-7"},
}
TABLES = {
    "golab": {"table-3", "table-5", "table-6", "table-7", "tables-10-and-11", "table-8"},
    "hammad": {"figures-7-and-8", "figure-9a", "figure-13"},
    "kang": {"table-3", "weights", "figure-3", "figures-5-to-7"},
    "tran": {"figure-6a", "figure-9d", "gains"},
    "ayad": {"example-1", "knapsack", "figure-4", "figure-7"},
}


@dataclass(frozen=True)
class PaperReport:
    name: str
    folder: Path
    claims: list[dict[str, Any]]


@pytest.mark.parametrize("name", [paper.name for paper in PAPERS])
def test_a_paper_is_reproduced_quickly_with_pages_plots_tables_and_a_verdict_for_every_claim(
    name: str, tmp_path: Path
) -> None:
    """Check everything in one test, because writing the report takes most of the time."""
    result = CliRunner().invoke(app, ["paper", name, "--quick", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    report = PaperReport(name, tmp_path, json.loads(result.stdout))
    check_json_claims(report)
    check_exact_claims_hold(report)
    check_figures_and_tables(report)
    check_links(report)
    check_verdicts(report)


def check_json_claims(report: PaperReport) -> None:
    assert report.claims
    for claim in report.claims:
        assert set(claim) == {"id", "kind", "statement", "paper", "ours", "holds", "verdict", "difference"}
        assert claim["kind"] in ("exact", "shape")
        assert isinstance(claim["holds"], bool)
        assert claim["id"].startswith(f"{report.name}.")
    names = [claim["id"] for claim in report.claims]
    assert len(set(names)) == len(names)


def check_exact_claims_hold(report: PaperReport) -> None:
    assert [claim for claim in report.claims if claim["kind"] == "exact" and not claim["holds"]] == []


def check_figures_and_tables(report: PaperReport) -> None:
    folder = report.folder / report.name
    for name in PLOTS[report.name]:
        assert (folder / f"{name}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for name in TABLES[report.name]:
        assert (folder / f"{name}.md").read_text(encoding="utf-8").startswith("# ")
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1


def check_links(report: PaperReport) -> None:
    for page in report.folder.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def check_verdicts(report: PaperReport) -> None:
    page = (report.folder / report.name / "README.md").read_text(encoding="utf-8")
    saved = json.loads((report.folder / "claims.json").read_text(encoding="utf-8"))
    assert [claim["id"] for claim in saved] == [claim["id"] for claim in report.claims]
    for claim in saved:
        assert f"| {claim['id']} |" in page
        assert claim["verdict"] in ("holds", "holds with a difference", "does not hold")
        assert claim["holds"] or claim["difference"]


@pytest.mark.parametrize(
    ("arguments", "words"), [(["knuth"], 'there is no paper "knuth"'), (["ayad", "--out", __file__], "is a file")]
)
def test_mistakes_are_reported_before_anything_runs(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["paper", *arguments])
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr
