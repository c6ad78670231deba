"""A table or a figure as values: what was run, what came out, what is drawn, and the claims that rest on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from watersmeet.errors import InternalError
from watersmeet_lab.papers.claims import Claim
from watersmeet_lab.papers.series import FigureLines

#: Where a line or a bar comes from: a cost model, a run of our operators, or the paper's own print.
Origin = Literal["model", "ours", "paper"]

Cell = str | float


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one name; lines of the same name and different origin are drawn in one colour."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    origin: Origin = "ours"

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise InternalError(f'line "{self.name}" has {len(self.x)} places and {len(self.y)} heights')


@dataclass(frozen=True, slots=True)
class LinePanel:
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per category."""

    name: str
    heights: tuple[float, ...]
    origin: Origin = "ours"


@dataclass(frozen=True, slots=True)
class BarPanel:
    title: str
    y_label: str
    categories: tuple[str, ...]
    bars: tuple[Bars, ...]
    log_y: bool = False

    def __post_init__(self) -> None:
        if any(len(each.heights) != len(self.categories) for each in self.bars):
            raise InternalError(f'the bars of "{self.title}" do not fit its {len(self.categories)} categories')


Panel = LinePanel | BarPanel


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels side by side under one name, which is also the file's."""

    name: str
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InternalError(f'a row of table "{self.name}" does not have {len(self.columns)} cells')


@dataclass(frozen=True, slots=True)
class Exhibit:
    """`setting` says what was run or computed, and in what it is not the paper's."""

    title: str
    setting: str
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


def model_lines(figure: FigureLines, names: Sequence[str] | None = None) -> tuple[Line, ...]:
    """The lines of a figure out of the cost model."""
    return tuple(Line(name, figure.x, y, "model") for name, y in figure.lines if names is None or name in names)


def lines_table(name: str, title: str, lines: Sequence[Line], axis: str) -> Table:
    """The points of lines that share their places, as a table."""
    places = sorted({x for line in lines for x in line.x})
    heights = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    header = (axis, *(f"{line.name} ({line.origin})" for line in lines))
    return Table(name, title, header, tuple((x, *(each.get(x, "") for each in heights)) for x in places))
