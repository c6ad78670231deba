"""Every page of the documentation works: its files are written, its commands and its Python code run in order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from tests.spark.sessions import open_small_session
from watersmeet.cli import main as cli

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
KINDS = ("python", "console", "csv", "sql", "toml", "text")


class Block(NamedTuple):
    """Fenced block: its kind, its file name or requirement, and its text."""

    kind: str
    name: str
    text: str


def read_blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*) ?([\w.-]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*each) for each in found]


def needs_spark(page: Path) -> bool:
    return any(block.name == "spark" for block in read_blocks(page))


@pytest.mark.parametrize("page", [page for page in PAGES if not needs_spark(page)], ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run_blocks(page)


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)], ids=lambda page: page.stem)
def test_a_page_about_spark_runs_on_spark(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_small_session()  # or the page would start a session of one core, and leave it to the tests after it
    monkeypatch.chdir(tmp_path)
    _run_blocks(page)


def _run_blocks(page: Path) -> None:
    names: dict[str, object] = {}
    for block in read_blocks(page):
        if block.kind in ("csv", "sql", "toml") and block.name:
            Path(block.name).write_text(block.text)
        elif block.kind == "console":
            for line in block.text.splitlines():
                _run_line(line.removeprefix("$ "))
        elif block.kind == "python":
            exec(compile(block.text, page.name, "exec"), names)


def _run_line(line: str) -> None:
    """Run a command line: our own command, `mkdir` or `cp`."""
    program, *args = shlex.split(line)
    if program == "mkdir":
        for name in args:
            Path(name).mkdir()
    elif program == "cp":
        shutil.copy(args[0], args[1])
    else:
        assert program == "watersmeet", line
        result = CliRunner().invoke(cli.app, args)
        assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_known_kinds_of_blocks_and_valid_links(page: Path) -> None:
    assert {block.kind for block in read_blocks(page)} <= set(KINDS)
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    for page in PAGES:
        assert f"docs/{page.name}" in readme
