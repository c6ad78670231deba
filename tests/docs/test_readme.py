"""The README is true: its example runs and prints the lines shown, and its table comes from the saved results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watersmeet_lab.bench.readme_table import END, START, render_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
SHOWN = re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_example_prints_the_lines_of_explain_that_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert SHOWN
    assert [line for line in SHOWN[0].splitlines() if line not in printed] == []
    table = names["table"]
    assert table.num_rows > 0  # type: ignore[attr-defined] # a table of the example


def test_the_excerpt_of_the_demo_is_in_its_transcript() -> None:
    transcript = (ROOT / "docs" / "transcripts" / "demo.txt").read_text()
    assert len(SHOWN) == 2
    assert " ".join(SHOWN[1].split()) in " ".join(transcript.split())


def test_the_measured_figures_are_those_of_the_saved_results() -> None:
    table = README.partition(START + "\n")[2].partition(END)[0]
    assert table == render_table(ROOT / "docs" / "benchmarks"), "run `make readme`"


def test_the_first_ten_lines_say_what_it_is_for_whom_and_why() -> None:
    beginning = " ".join(README.splitlines()[:10])
    assert "joins several data streams over sliding windows" in beginning
    assert "data engineers" in beginning
    assert "Spark's own stream-stream join" in beginning


def test_the_readme_has_an_install_line_and_the_two_commands() -> None:
    assert 'pip install "watersmeet[spark]"' in README
    assert "\n```\nmake demo\nmake test\n```\n" in README


def test_the_readme_reads_in_two_minutes() -> None:
    prose = re.sub(r"^```.*?^```|^\|.*?$", "", README, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) < 400


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
