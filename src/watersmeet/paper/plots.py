"""Draws plots as SVG and PNG: one style, and the same picture for the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from watersmeet.paper.exhibit import BarPanel, Line, LinePanel, Origin, Panel, Plot

#: Told apart by most colour-blind readers, and in print by lightness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A", "#404040", "#8C6D31", "#A0A0A0")

STYLE: dict[str, Any] = {
    "svg.hashsalt": "watersmeet",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
}
LINE_STYLES: dict[Origin, dict[str, Any]] = {
    "model": {"linestyle": (0, (5, 2)), "linewidth": 1.3},
    "ours": {"linestyle": "-", "marker": "o"},
    "paper": {"linestyle": ":", "marker": "D", "markerfacecolor": "white"},
}
BAR_STYLES: dict[Origin, dict[str, Any]] = {"model": {"alpha": 0.55}, "ours": {}, "paper": {"hatch": "///", "alpha": 0.35}}

#: What the origins are called in a legend.
CALLED: dict[Origin, str] = {"model": "model", "ours": "measured", "paper": "paper"}

_PANEL_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT, _TITLE_HEIGHT = 4.3, 3.0, 0.24, 0.4
_MOST_COLUMNS = 3
_DOTS_PER_INCH = 110


def draw(plot: Plot, folder: Path) -> tuple[Path, Path]:
    """Writes the plot as SVG and PNG into the folder."""
    svg, png = folder / f"{plot.name}.svg", folder / f"{plot.name}.png"
    with mpl.rc_context(STYLE):  # type: ignore[arg-type] # names are checked when they are set
        figure = _figure(plot)
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
        figure.savefig(png, dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return svg, png


def _figure(plot: Plot) -> Figure:
    columns = min(len(plot.panels), _MOST_COLUMNS if len(plot.panels) != 4 else 2)
    rows = -(-len(plot.panels) // columns)
    keys = _keys(plot)
    legend_rows = -(-len(keys) // _keys_per_row(columns))
    below = _LEGEND_HEIGHT * legend_rows + 0.1
    height = rows * _PANEL_HEIGHT + below + _TITLE_HEIGHT
    figure = Figure(figsize=(columns * _PANEL_WIDTH + 0.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, below / height, 0.98, 1 - below / height))  # type: ignore[union-attr,call-arg] # it is the constrained one
    figure.suptitle(plot.title, fontsize=11, x=0.02, ha="left", weight="bold")
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(dict.fromkeys(name for name, _ in keys))}
    handles: dict[tuple[str, Origin], Any] = {}
    for number, panel in enumerate(plot.panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        handles |= _panel(axes, panel, colours)
    labels = [_label(*key, keys) for key in keys]
    figure.legend([handles[key] for key in keys], labels, loc="lower center", ncols=min(len(keys), _keys_per_row(columns)))
    return figure


def _keys_per_row(columns: int) -> int:
    return {1: 2, 2: 4}.get(columns, 6)


def _keys(plot: Plot) -> list[tuple[str, Origin]]:
    """Names and origins in the order in which they first appear."""
    found: dict[tuple[str, Origin], None] = {}
    for panel in plot.panels:
        for each in panel.lines if isinstance(panel, LinePanel) else panel.bars:
            found[each.name, each.origin] = None
    return list(found)


def _label(name: str, origin: Origin, keys: list[tuple[str, Origin]]) -> str:
    """The origin is said where there is more than one."""
    return f"{name}, {CALLED[origin]}" if len({each for _, each in keys}) > 1 else name


def _panel(axes: Axes, panel: Panel, colours: dict[str, str]) -> dict[tuple[str, Origin], Any]:
    axes.set_title(panel.title, loc="left")
    axes.set_ylabel(panel.y_label)
    handles = _lines(axes, panel, colours) if isinstance(panel, LinePanel) else _bars(axes, panel, colours)
    if panel.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
        _thousands(axes.yaxis)
    return handles


def _lines(axes: Axes, panel: LinePanel, colours: dict[str, str]) -> dict[tuple[str, Origin], Any]:
    axes.set_xlabel(panel.x_label)
    if panel.log_x:
        axes.set_xscale("log")
    return {(line.name, line.origin): _line(axes, line, colours[line.name]) for line in panel.lines}


def _line(axes: Axes, line: Line, colour: str) -> Any:
    (handle,) = axes.plot(line.x, line.y, color=colour, **LINE_STYLES[line.origin])
    return handle


def _bars(axes: Axes, panel: BarPanel, colours: dict[str, str]) -> dict[tuple[str, Origin], Any]:
    width = 0.8 / len(panel.bars)
    handles = {}
    for number, bars in enumerate(panel.bars):
        places = [at - 0.4 + width * (number + 0.5) for at in range(len(panel.categories))]
        style = BAR_STYLES[bars.origin]
        handles[bars.name, bars.origin] = axes.bar(places, bars.heights, width * 0.92, color=colours[bars.name], **style)
    longest = max(len(each) for each in panel.categories)
    crowded = longest * len(panel.categories) > 55
    axes.set_xticks(range(len(panel.categories)), panel.categories, rotation=25 if crowded else 0, ha="right" if crowded else "center")
    axes.grid(visible=False, axis="x")
    return handles


def _thousands(axis: Any) -> None:
    """Large numbers as they are read, not as powers."""
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}")
    axis.set_minor_formatter(NullFormatter())
