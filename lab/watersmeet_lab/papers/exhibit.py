"""A table or figure as values: the setting, the results, the plots, and the claims that rest on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from watersmeet.errors import InputError, InternalError, listing
from watersmeet_lab.papers.claims import Claim

#: Origin of a line or a bar: a cost model, a run of our operators, or the printed paper.
Origin = Literal["model", "ours", "paper"]

Cell = str | float


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one name; lines of the same name and different origin share a colour."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    origin: Origin = "ours"

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise InternalError(f'line "{self.name}" has {len(self.x)} places and {len(self.y)} heights')


@dataclass(frozen=True, slots=True)
class LinePanel:
    """Lines over one horizontal axis."""

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
    """Groups of bars over categories."""

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
    """Panels next to each other under one name, which is also the file name."""

    name: str
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InternalError(f'a row of table "{self.name}" does not have {len(self.columns)} cells')


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A reproduced table or figure; `setting` describes what ran and how it differs from the paper."""

    title: str
    setting: str
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


def model_lines(figure: FigureLines, names: Sequence[str] | None = None) -> tuple[Line, ...]:
    """Return the lines of a figure as computed by the cost model."""
    return tuple(Line(name, figure.x, y, "model") for name, y in figure.lines if names is None or name in names)


def lines_table(name: str, title: str, lines: Sequence[Line], axis: str) -> Table:
    """Return the points of several lines as one table, with a row per place on the axis."""
    places = sorted({x for line in lines for x in line.x})
    heights = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    header = (axis, *(f"{line.name} ({line.origin})" for line in lines))
    return Table(name, title, header, tuple((x, *(each.get(x, "") for each in heights)) for x in places))


@dataclass(frozen=True, slots=True)
class FigureLines:
    """Named lines over a common horizontal axis.

    >>> FigureLines("tau_s", (1, 2), (("LAZY", (3.0, 4.0)),)).line("LAZY")
    (3.0, 4.0)
    """

    axis: str
    x: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float, ...]], ...]

    def __post_init__(self) -> None:
        if any(len(line) != len(self.x) for _, line in self.lines):
            raise InternalError(f"a line of the figure over {self.axis} does not have {len(self.x)} points")

    def line(self, name: str) -> tuple[float, ...]:
        for label, line in self.lines:
            if label == name:
                return line
        raise InputError(
            f'the figure has no line "{name}"', hint=f"lines: {listing([label for label, _ in self.lines])}"
        )

    def lowest_line(self, place: int) -> str:
        """Return the name of the lowest line at a point of the axis; the first of equals."""
        return min(self.lines, key=lambda named: named[1][place])[0]


def figure_from_points(axis: str, points: dict[float, dict[str, float]]) -> FigureLines:
    """Build a figure from the values of all lines per point of the axis.

    >>> figure_from_points("n", {2: {"NAIVE": 5.0, "MULTI-WAY": 4.0}}).lowest_line(0)
    'MULTI-WAY'
    """
    names = list(next(iter(points.values()), {}))
    return FigureLines(
        axis, tuple(points), tuple((name, tuple(values[name] for values in points.values())) for name in names)
    )
