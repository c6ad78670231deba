"""Figure 10: each of the four plans of a two-way join is the best somewhere."""

from __future__ import annotations

from watersmeet.cost.series import Figure
from watersmeet.cost.tran_figures import SHOWCASES
from watersmeet.cost.tran_figures import figure_10 as modelled
from watersmeet.paper.claims import Claim, shape
from watersmeet.paper.effort import Effort
from watersmeet.paper.exhibit import Exhibit, LinePanel, Plot, columns_of, model_lines


def figure_10(effort: Effort) -> Exhibit:
    figures = {best: modelled(best) for best in SHOWCASES}
    panels = tuple(
        LinePanel(f"{_settings(best)}", "rows per second of the first stream", "cost per second", model_lines(figure))
        for best, figure in figures.items()
    )
    return Exhibit(
        "Figure 10: showcases of different best plans",
        "From the cost model, nested loops, all weights equal, λ2 = 500. The paper prints the settings of (c) and (d); those of (a) and "
        "(b) follow "
        "its words: both numbers of groups high, and g1 low with g2 high.",
        tuple(_claim(best, figure) for best, figure in figures.items()),
        tuple(
            columns_of(f"figure-10-{best.lower()}", f"Figure 10, {best} best", model_lines(figure), "λ1")
            for best, figure in figures.items()
        ),
        (Plot("figure-10", "Figure 10: each plan is best somewhere", panels),),
    )


def _settings(best: str) -> str:
    one, two = SHOWCASES[best]
    return f"g {one.groups:g}/{two.groups:g}, σ {one.selectivity:g}, w {one.window_rows:g}"


def _claim(best: str, figure: Figure) -> Claim:
    lowest = [figure.lowest(place) for place in range(len(figure.x))]
    second = min(line[-1] for name, line in figure.lines if name != best)
    return shape(
        f"tran.figure10.{best.lower()}",
        f"{best} is the best plan at {_settings(best)}",
        f"{best} is best at every λ1 from 100 to 500",
        f"{', '.join(dict.fromkeys(lowest))} is lowest; the next costs {second / figure.line(best)[-1]:.2f} times as much at λ1 = 500",
        holds=set(lowest) == {best},
    )
