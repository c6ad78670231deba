"""Warnings of Watersmeet are one line on stderr; other warnings keep Python's form."""

from __future__ import annotations

import warnings

import pytest

import watersmeet as wm
from watersmeet.cli.exit import exit_on_error


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with exit_on_error():
        for _ in range(2):  # a second query is warned about as well
            warnings.warn("spark.sql.shuffle.partitions is 200: set it to 2", wm.WatersmeetWarning, stacklevel=1)
    line = "watersmeet: warning: spark.sql.shuffle.partitions is 200: set it to 2\n"
    assert capsys.readouterr().err == 2 * line


def test_other_warnings_are_filtered_as_before() -> None:
    with pytest.raises(DeprecationWarning), exit_on_error():  # an error here, as everywhere in the tests
        warnings.warn("old", DeprecationWarning, stacklevel=1)
