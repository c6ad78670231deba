"""docs/papers/coverage.md: every row names code and a test that exist, and nothing of the papers is left out."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from watersmeet.planner.algorithms import ALGORITHMS
from watersmeet_lab.papers.registry import PAPERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers" / "coverage.md").read_text(encoding="utf-8")
#: Algorithms of no paper: our own.
OWN_ALGORITHMS = {"runs", "sorted-ranges", "tree"}


@dataclass(frozen=True)
class CoverageRow:
    item: str
    code: tuple[str, ...]
    reached_by: str
    test: tuple[str, ...]


def parse_rows() -> list[CoverageRow]:
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [
        CoverageRow(item, tuple(re.findall(r"`([^`]+)`", code)), reached_by, tuple(re.findall(r"`([^`]+)`", test)))
        for item, code, reached_by, test in cells
        if item not in ("item", "---")
    ]


ROWS = parse_rows()


@cache
def defined_names(path: Path) -> set[str]:
    """Return the names that a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.item)
def test_code_and_test_of_a_row_exist(row: CoverageRow) -> None:
    file, *symbols = row.code
    path = ROOT / file if file.startswith("lab/") else ROOT / "src" / "watersmeet" / file
    assert set(symbols) <= defined_names(path)
    test_file, test = row.test
    assert test in defined_names(ROOT / "tests" / test_file)
    assert row.reached_by


def test_every_algorithm_of_the_planner_has_a_row() -> None:
    pinned = {name for row in ROWS for name in re.findall(r'wm\.plan\("([^"]+)"', row.reached_by)}
    assert pinned == set(ALGORITHMS) - OWN_ALGORITHMS


def test_every_reproduced_table_and_figure_has_a_row() -> None:
    named = {symbol for row in ROWS for symbol in row.code[1:]} | {Path(row.code[0]).stem for row in ROWS}
    reproduced = {reproduce.__name__ for paper in PAPERS for reproduce in paper.reproductions}
    assert reproduced - named == set()


def test_a_row_that_is_only_in_the_reproduction_gives_a_reason() -> None:
    for row in ROWS:
        assert "only in the reproduction" not in row.reached_by or "because" in row.reached_by
