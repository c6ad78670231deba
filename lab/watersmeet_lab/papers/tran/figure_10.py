"""Figure 10: each of the four plans of a two-way join is the best in some setting."""

from __future__ import annotations

from watersmeet.planner.models.tran import AggregationJoin
from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Cell, Exhibit, FigureLines, LinePanel, Plot, Table, lines_table, model_lines
from watersmeet_lab.papers.tran.aggregation_join_runs import measure_plans
from watersmeet_lab.papers.tran.models import SHOWCASES
from watersmeet_lab.papers.tran.models import figure_10 as modelled

#: Plans closer than this count as equal.
_TIE = 0.1


def figure_10(effort: Effort) -> Exhibit:
    effort.report("tran, Figure 10: every plan, measured")
    ours = {
        best: measure_plans(effort, AggregationJoin(inputs), _seconds(effort, best))
        for best, inputs in SHOWCASES.items()
    }
    figures = {best: modelled(best) for best in SHOWCASES}
    panels = tuple(
        LinePanel(f"{_settings(best)}", "rows per second of the first stream", "cost per second", model_lines(figure))
        for best, figure in figures.items()
    )
    return Exhibit(
        "Figure 10: showcases of different best plans",
        "From the cost model, nested loops, all weights equal, λ2 = 500. The paper prints the settings of (c) and (d); "
        "those of (a) and (b) follow its words: both numbers of groups high, and g1 low with g2 high. Measured at λ1 = "
        "500, by hash.",
        (
            *(_model_winner_claim(best, figure) for best, figure in figures.items()),
            *(_measured_winner_claim(best, costs) for best, costs in ours.items()),
        ),
        (
            _measured_table(ours),
            *(
                lines_table(f"figure-10-{best.lower()}", f"Figure 10, {best} best", model_lines(figure), "λ1")
                for best, figure in figures.items()
            ),
        ),
        (Plot("figure-10", "Figure 10: each plan is best somewhere", panels),),
    )


def _seconds(effort: Effort, best: str) -> int:
    """Return a duration long enough to separate the plans; the last setting has many more results per second."""
    return 1 if effort.quick else 2 if best == "EAP11" else 10


def _settings(best: str) -> str:
    one, two = SHOWCASES[best]
    return f"g {one.groups:g}/{two.groups:g}, σ {one.selectivity:g}, w {one.window_rows:g}"


def _model_winner_claim(best: str, figure: FigureLines) -> Claim:
    lowest = [figure.lowest_line(place) for place in range(len(figure.x))]
    second = min(line[-1] for name, line in figure.lines if name != best)
    return shape_claim(
        f"tran.figure10.{best.lower()}",
        f"{best} is the best plan at {_settings(best)}",
        f"{best} is best at every λ1 from 100 to 500",
        f"{', '.join(dict.fromkeys(lowest))} is lowest; the next costs {second / figure.line(best)[-1]:.3f} times as "
        "much at λ1 = 500",
        holds=set(lowest) == {best},
    )


def _measured_winner_claim(best: str, costs: dict[str, float]) -> Claim:
    fastest = min(costs, key=lambda name: costs[name])
    behind = costs[best] / costs[fastest]
    return shape_claim(
        f"tran.figure10.{best.lower()}.measured",
        f"{best} is the best plan at {_settings(best)}, measured",
        f"{best} is best",
        ", ".join(f"{name} {1e3 * cost:.1f}" for name, cost in costs.items()) + " ms of CPU per second",
        holds=behind < 1 + _TIE,
        difference=""
        if fastest == best
        else f"{fastest} is as fast, within {_TIE:.0%}: by hash, the plans are closer together than by nested loops",
        reason=f"{fastest} is {behind:.2f} times as fast; measured by hash, whereas the paper has nested loops",
    )


def _measured_table(ours: dict[str, dict[str, float]]) -> Table:
    names = tuple(next(iter(ours.values())))
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (best, _settings(best), *(1e3 * costs[n] for n in names)) for best, costs in ours.items()
    )
    return Table(
        "figure-10-measured",
        "Figure 10, measured: ms of CPU per second",
        ("best by the model", "setting", *names),
        rows,
    )
