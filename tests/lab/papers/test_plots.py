"""Plots: the same values give the same picture, and every kind of panel can be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.errors import InternalError
from watersmeet_lab.papers.exhibit import BarPanel, Bars, Line, LinePanel, Plot, Table, lines_table
from watersmeet_lab.papers.plots import draw_plot

LINES = (
    Line("LAP", (1.0, 10.0), (5.0, 7.0), "model"),
    Line("LAP", (1.0, 10.0), (5.5, 6.5)),
    Line("EAP", (1.0, 10.0), (2.0, 3.0)),
)
PLOT = Plot(
    "both",
    "Lines and bars",
    (
        LinePanel("lines", "τ", "µs", LINES, log_x=True, log_y=True),
        BarPanel("bars", "µs", ("a rather long name", "another one", "short"), (Bars("LAP", (1.0, 2.0, 3.0)),)),
    ),
)


def test_the_same_values_give_the_same_files(tmp_path: Path) -> None:
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        draw_plot(PLOT, tmp_path / name)
    for suffix in ("svg", "png"):
        once, again = ((tmp_path / name / f"both.{suffix}").read_bytes() for name in ("once", "again"))
        assert once == again


def test_a_table_of_lines_has_a_row_per_place() -> None:
    table = lines_table("t", "T", [*LINES[:1], Line("EAP", (10.0,), (3.0,))], "τ")
    assert table.columns == ("τ", "LAP (model)", "EAP (ours)")
    assert table.rows == ((1.0, 5.0, ""), (10.0, 7.0, 3.0))


def test_values_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(InternalError, match="2 places and 1 heights"):
        Line("LAP", (1.0, 2.0), (3.0,))
    with pytest.raises(InternalError, match="do not fit its 2 categories"):
        BarPanel("bars", "µs", ("a", "b"), (Bars("LAP", (1.0,)),))
    with pytest.raises(InternalError, match="does not have 2 cells"):
        Table("t", "T", ("a", "b"), ((1.0,),))
