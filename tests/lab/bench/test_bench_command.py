"""The command `watersmeet bench`: mistakes of its arguments are refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.test_hostile_files import NOT_FILES
from tests.cli.test_usage_errors import run_failing
from watersmeet.cli import main as cli


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_a_regular_file_is_read_as_a_saved_benchmark(tmp_path: Path, kind: str) -> None:
    path = NOT_FILES[kind](tmp_path)
    assert "benchmark file" in run_failing("bench", "compare", path, path)


@pytest.mark.parametrize("scale", ["nan", "inf", "-1", "1e300", "0"])
def test_a_scale_that_cannot_be_is_a_mistake_of_usage(scale: str) -> None:
    result = CliRunner().invoke(cli.app, ["bench", "embedded", "--scale", scale])
    assert result.exit_code == 2, result.output
