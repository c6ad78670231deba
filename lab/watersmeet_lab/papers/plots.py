"""Draw plots as SVG and PNG: one style, and the same picture for the same values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from watersmeet_lab.papers.exhibit import BarPanel, LinePanel, Origin, Panel, Plot

#: Colours that most colour-blind readers can distinguish, and that differ in lightness in print.
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
#: Style of a plot with a single origin.
SINGLE_ORIGIN_STYLE: dict[str, Any] = {"linestyle": "-", "marker": "o"}
BAR_STYLES: dict[Origin, dict[str, Any]] = {
    "model": {"alpha": 0.55},
    "ours": {},
    "paper": {"hatch": "///", "alpha": 0.35},
}

#: Labels of the origins in a legend.
ORIGIN_LABELS: dict[Origin, str] = {"model": "model", "ours": "measured", "paper": "paper"}

_PANEL_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT, _TITLE_HEIGHT = 4.3, 3.0, 0.24, 0.4
_MAX_COLUMNS = 3
#: Letters of all categories together that fit under a panel.
_MAX_LETTERS = 40
#: An axis of whole numbers is marked at each of them if there are at most this many, none beyond this limit.
_MAX_COUNTS, _LARGEST_COUNT = 9, 20
_DOTS_PER_INCH = 110


def draw_plot(plot: Plot, folder: Path) -> tuple[Path, Path]:
    """Write the plot as SVG and PNG into the folder."""
    svg, png = folder / f"{plot.name}.svg", folder / f"{plot.name}.png"
    with mpl.rc_context(STYLE):  # type: ignore[arg-type] # names are checked when they are set
        figure = _build_figure(plot)
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # the layout is final, so it need not be drawn twice, as savefig does
        figure.dpi = _DOTS_PER_INCH
        FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call] # declares no types
    return svg, png


@dataclass(frozen=True, slots=True)
class PlotLook:
    """The colour of every name, and the origins that line styles must distinguish."""

    colours: dict[str, str]
    origins: tuple[Origin, ...]

    def line(self, origin: Origin) -> dict[str, Any]:
        return LINE_STYLES[origin] if len(self.origins) > 1 else SINGLE_ORIGIN_STYLE


def _build_figure(plot: Plot) -> Figure:
    columns = min(len(plot.panels), _MAX_COLUMNS if len(plot.panels) != 4 else 2)
    rows = -(-len(plot.panels) // columns)
    look, per_row = _choose_look(plot), _keys_per_row(columns)
    handles = _legend_handles(plot, look)
    below = _LEGEND_HEIGHT * -(-len(handles) // per_row) + 0.1
    height = rows * _PANEL_HEIGHT + below + _TITLE_HEIGHT
    figure = Figure(figsize=(columns * _PANEL_WIDTH + 0.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, below / height, 0.98, 1 - below / height))  # type: ignore[union-attr,call-arg] # constrained
    figure.suptitle(plot.title, fontsize=11, x=0.02, ha="left", weight="bold")
    for number, panel in enumerate(plot.panels, start=1):
        _draw_panel(figure.add_subplot(rows, columns, number), panel, look)
    figure.legend(handles=handles, loc="lower center", ncols=min(len(handles), per_row))
    return figure


def _keys_per_row(columns: int) -> int:
    return {1: 3, 2: 6}.get(columns, 9)


def _choose_look(plot: Plot) -> PlotLook:
    shown = _list_series(plot)
    names, origins = dict.fromkeys(name for name, _ in shown), dict.fromkeys(origin for _, origin in shown)
    return PlotLook({name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}, tuple(origins))


def _list_series(plot: Plot) -> list[tuple[str, Origin]]:
    """Return names and origins in the order of their first appearance."""
    found: dict[tuple[str, Origin], None] = {}
    for panel in plot.panels:
        for each in panel.lines if isinstance(panel, LinePanel) else panel.bars:
            found[each.name, each.origin] = None
    return list(found)


def _legend_handles(plot: Plot, look: PlotLook) -> list[Artist]:
    """Return a key per name; if lines of one name have several origins, also a key per origin."""
    if isinstance(plot.panels[0], BarPanel):
        return [
            Patch(facecolor=look.colours[name], label=name, **BAR_STYLES[origin]) for name, origin in _list_series(plot)
        ]
    names: list[Artist] = [
        Line2D([], [], color=colour, label=name, linewidth=3) for name, colour in look.colours.items()
    ]
    if len(look.origins) == 1:
        return names
    return [
        *names,
        *(
            Line2D([], [], color="#404040", label=ORIGIN_LABELS[origin], **LINE_STYLES[origin])
            for origin in look.origins
        ),
    ]


def _draw_panel(axes: Axes, panel: Panel, look: PlotLook) -> None:
    axes.set_title(panel.title, loc="left")
    axes.set_ylabel(panel.y_label)
    if isinstance(panel, LinePanel):
        _draw_lines(axes, panel, look)
        _format_axis(axes.xaxis, axes.set_xscale, log=panel.log_x)
        _mark_counts(axes.xaxis, panel)
    else:
        _draw_bars(axes, panel, look)
    _format_axis(axes.yaxis, axes.set_yscale, log=panel.log_y)
    if not panel.log_y:
        axes.set_ylim(bottom=0)


def _draw_lines(axes: Axes, panel: LinePanel, look: PlotLook) -> None:
    axes.set_xlabel(panel.x_label)
    for line in panel.lines:
        axes.plot(line.x, line.y, color=look.colours[line.name], **look.line(line.origin))


def _draw_bars(axes: Axes, panel: BarPanel, look: PlotLook) -> None:
    width = 0.8 / len(panel.bars)
    for number, bars in enumerate(panel.bars):
        places = [at - 0.4 + width * (number + 0.5) for at in range(len(panel.categories))]
        axes.bar(places, bars.heights, width * 0.92, color=look.colours[bars.name], **BAR_STYLES[bars.origin])
    crowded = max(len(each) for each in panel.categories) * len(panel.categories) > _MAX_LETTERS
    axes.set_xticks(
        range(len(panel.categories)),
        panel.categories,
        rotation=25 if crowded else 0,
        ha="right" if crowded else "center",
    )
    axes.grid(visible=False, axis="x")


def _format_axis(axis: Axis, set_scale: Callable[[str], None], *, log: bool) -> None:
    """Show plain numbers instead of powers, and only a few."""
    if log:
        set_scale("log")
        first, last = sorted(axis.get_view_interval())
        axis.set_major_locator(LogLocator(subs=(1.0,) if last > 50 * first else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(lambda value, _: format_number(value))


def _mark_counts(axis: Axis, panel: LinePanel) -> None:
    """Mark every count, and nothing in between, if the axis counts a few things such as streams."""
    places = sorted({x for line in panel.lines for x in line.x})
    if (
        not panel.log_x
        and len(places) <= _MAX_COUNTS
        and places[-1] <= _LARGEST_COUNT
        and all(x == int(x) for x in places)
    ):
        axis.set_ticks(places)


def format_number(value: float) -> str:
    """Format a number for an axis.

    >>> format_number(20000.0), format_number(0.5), format_number(0.0005), format_number(3e7)
    ('20,000', '0.5', '0.0005', '30 M')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
