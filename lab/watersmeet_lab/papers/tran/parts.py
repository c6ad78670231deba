"""The four parts of Figures 6 to 9 as panels and tables."""

from __future__ import annotations

from collections.abc import Callable

from watersmeet_lab.papers.exhibit import LinePanel, Plot, Table, lines_table, model_lines
from watersmeet_lab.papers.series import FigureLines

PARTS = ("a", "b", "c", "d")
AXES = {
    "a": "rows in the first window",
    "b": "groups in the first stream",
    "c": "rows per second of the first stream",
    "d": "join selectivity",
}
_LOG = ("b", "d")

#: A figure's lines out of the cost model, by part.
ModelParts = dict[str, FigureLines]


def model_parts(modelled: Callable[[str], FigureLines]) -> ModelParts:
    return {part: modelled(part) for part in PARTS}


def plot_model_parts(number: int, title: str, parts: ModelParts) -> Plot:
    panels = tuple(
        LinePanel(
            f"({part}) over {AXES[part]}",
            AXES[part],
            "cost per second",
            model_lines(figure),
            log_x=part in _LOG,
            log_y=True,
        )
        for part, figure in parts.items()
    )
    return Plot(f"figure-{number}", f"Figure {number}: {title}", panels)


def tabulate_model_parts(number: int, parts: ModelParts) -> tuple[Table, ...]:
    return tuple(
        lines_table(
            f"figure-{number}{part}", f"Figure {number}{part}: cost per second", model_lines(figure), AXES[part]
        )
        for part, figure in parts.items()
    )


def is_rising(line: tuple[float, ...]) -> bool:
    return list(line) == sorted(line)


def format_ends(name: str, line: tuple[float, ...]) -> str:
    """The ends of a line.

    >>> told("LAP", (1000.0, 2500.0))
    'LAP 1,000 to 2,500'
    """
    return f"{name} {line[0]:,.0f} to {line[-1]:,.0f}"
