"""The lines of a paper's figure: one horizontal axis, several named lines."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import InputError, InternalError, listing


@dataclass(frozen=True, slots=True)
class FigureLines:
    """Lines over a common horizontal axis.

    >>> Figure("tau_s", (1, 2), (("LAZY", (3.0, 4.0)),)).line("LAZY")
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

    def lowest(self, place: int) -> str:
        """The name of the line that is lowest at the given point of the axis; the first of equals."""
        return min(self.lines, key=lambda named: named[1][place])[0]


def figure_from_points(axis: str, points: dict[float, dict[str, float]]) -> FigureLines:
    """A figure out of the values of all lines per point of the axis.

    >>> figure_of("n", {2: {"NAIVE": 5.0, "MULTI-WAY": 4.0}}).lowest(0)
    'MULTI-WAY'
    """
    names = list(next(iter(points.values()), {}))
    return FigureLines(
        axis, tuple(points), tuple((name, tuple(values[name] for values in points.values())) for name in names)
    )
