"""The check of names and prose finds what it is meant to find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = """
[[term]]
name = "emit"
meaning = "Write result rows."
avoid = ["put out"]

[[plain]]
write = "again"
avoid = ["anew"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small repository with a glossary and the check."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs" / "glossary.toml").write_text(GLOSSARY)
    (tmp_path / "docs" / "glossary-exceptions.txt").write_text("# none\n")
    (tmp_path / "scripts" / "plain_english.py").write_text((ROOT / "scripts" / "plain_english.py").read_text())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path)
    return tmp_path


def commit(tree: Path) -> None:
    author = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    subprocess.run(["git", "add", "-A"], cwd=tree, check=True)
    subprocess.run(["git", *author, "commit", "-qm", "Change", "--allow-empty"], cwd=tree, check=True)


def run_check(tree: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "scripts/plain_english.py"], cwd=tree, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("page.md", "Rows are computed anew.\n", "page.md:1: avoided word: anew"),
        ("code.py", "x = 1  # rows that are put out\n", "code.py:1: avoided word: put out"),
        ("code.py", 'raise ValueError("rows put out twice")\n', "code.py:1: avoided word: put out"),
        ("code.py", "def measured():\n    pass\n", "code.py:1: participle: measured"),
        ("code.py", "def _told():\n    pass\n", "code.py:1: participle: _told"),
        ("code.py", "class Part: ...\nclass Part: ...\n", "code.py:1: class name used twice: Part"),
    ],
)
def test_a_place_that_breaks_a_rule_is_named(tree: Path, name: str, text: str, problem: str) -> None:
    (tree / name).write_text(text)
    code, output = run_check(tree)
    assert code == 1
    assert problem in output.splitlines()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "The option `anew` is code.\n```\nanew\n```\n"),
        ("code.py", "def shed():\n    pass\n"),
        ("code.py", "def is_measured():\n    pass\n"),
        ("code.py", "class A:\n    @property\n    def started(self):\n        return 1\n"),
    ],
)
def test_code_verbs_and_properties_are_accepted(tree: Path, name: str, text: str) -> None:
    (tree / name).write_text(text)
    assert run_check(tree) == (0, "")


def test_the_list_of_exceptions_can_only_shrink(tree: Path) -> None:
    (tree / "page.md").write_text("Rows are computed anew.\n")
    exceptions = tree / "docs" / "glossary-exceptions.txt"
    exceptions.write_text("page.md: avoided word: anew\n")
    code, output = run_check(tree)
    assert (code, "can only shrink" in output) == (1, True)
    commit(tree)
    commit(tree)
    assert run_check(tree) == (0, "")
    (tree / "page.md").write_text("Rows are computed again.\n")
    code, output = run_check(tree)
    assert (code, "remove this entry" in output) == (1, True)
