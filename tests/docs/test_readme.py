"""The examples in the README run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_of_the_readme_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "probe order" in printed or "as_of" in printed
    assert "item" in printed


def test_the_readme_has_code_and_begins_with_the_two_commands() -> None:
    assert BLOCKS
    assert README.read_text().startswith("# Watersmeet\n\n```\nmake demo\nmake test\n```\n")
