"""Figure 3: NAIVE, LAZY and GENERAL in their best orders as τ grows.

Part (a) has four equal streams; in part (b), one is ten times as fast.
"""

from __future__ import annotations

from itertools import permutations

from watersmeet.algebra.plan import Plan
from watersmeet.planner.models.golab import CommonAttribute, Intervals, Order, naive_lazy_nlj
from watersmeet.planner.models.golab_orders import search_all_orders, search_all_orders_per_origin
from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, FigureLines, Line, LinePanel, Plot, lines_table, model_lines
from watersmeet_lab.papers.golab.models import FOUR_EQUAL, ONE_FAST, figure_3a, figure_3b
from watersmeet_lab.papers.golab.multi_join_runs import count_comparisons, lazy_plan
from watersmeet_lab.workloads.golab_streams import StreamSpec

NAMES = ("NAIVE", "LAZY", "GENERAL")
EQUAL = (StreamSpec(1, 100, 50),) * 4
FAST = (*(StreamSpec(1, 100, 50),) * 3, StreamSpec(10, 100, 50))
TAUS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0)
_UNITS = 1000

Lines = dict[str, Line]


def figure_3(effort: Effort) -> Exhibit:
    """Compute the model at every τ from 1 to 50, and count our loops at some of them."""
    effort.report("golab, Figure 3: comparisons of the lazy algorithms")
    taus = effort.choose_points(TAUS)
    models = figure_3a(), figure_3b()
    equal, fast = _count_by_tau(EQUAL, FOUR_EQUAL, taus, effort), _count_by_tau(FAST, ONE_FAST, taus, effort)
    panels = tuple(
        LinePanel(title, "τ", "comparisons per unit of time", (*model_lines(model), *ours.values()))
        for title, model, ours in (
            ("(a) four equal streams", models[0], equal),
            ("(b) S4 ten times as fast", models[1], fast),
        )
    )
    return Exhibit(
        "Figure 3: lazy algorithms",
        "T = 100, λ = 1, v = 50, four windows; in (b) λ4 = 10. Each algorithm in the best of its orders at that τ. "
        f"Dashed: the cost model; dots: counts of our loops over {_units(effort)} units of time, in the same orders.",
        (*_equal_stream_claims(models[0], equal), *_fast_stream_claims(models[1], fast)),
        tuple(
            lines_table(
                f"figure-3{part}", f"Figure 3{part}: comparisons per unit of time, counted", tuple(ours.values()), "τ"
            )
            for part, ours in (("a", equal), ("b", fast))
        ),
        (Plot("figure-3", "Figure 3: comparisons as τ grows", panels),),
    )


def best_plan(name: str, streams: tuple[StreamSpec, ...], join: CommonAttribute, tau: float) -> Plan:
    """Return the best order of each algorithm at this τ as a plan."""
    intervals = Intervals(tau)
    if name == "NAIVE":
        orders: list[Order] = list(permutations(range(len(streams))))
        return lazy_plan(
            "naive-nlj", streams, tau, min(orders, key=lambda order: sum(naive_lazy_nlj(join, order, intervals)))
        )
    if name == "LAZY":
        return lazy_plan("lazy-nlj", streams, tau, search_all_orders(join, intervals).order)
    return lazy_plan(
        "general-lazy-nlj", streams, tau, [found.order for found in search_all_orders_per_origin(join, intervals)]
    )


def _count_by_tau(
    streams: tuple[StreamSpec, ...], join: CommonAttribute, taus: tuple[float, ...], effort: Effort
) -> Lines:
    return {
        name: Line(
            name,
            taus,
            tuple(count_comparisons(streams, best_plan(name, streams, join, tau), _units(effort)) for tau in taus),
        )
        for name in NAMES
    }


def _units(effort: Effort) -> int:
    return effort.scale_rows(_UNITS, least=100)


def _equal_stream_claims(model: FigureLines, ours: Lines) -> list[Claim]:
    naive, lazily, general = (model.line(name) for name in NAMES)
    counted_naive, counted_lazy, counted_general = (ours[name].y for name in NAMES)
    return [
        shape_claim(
            "golab.figure3a.order",
            "four equal streams: LAZY and GENERAL cost the same, NAIVE more at every τ",
            "LAZY = GENERAL < NAIVE",
            f"model: NAIVE {_format_ratios(naive, lazily)} times LAZY from τ = 1 to 50, LAZY = GENERAL",
            holds=_largest_ratio_error(lazily, general) < 1e-9
            and all(a > b for a, b in zip(naive, lazily, strict=True)),
        ),
        shape_claim(
            "golab.figure3a.rising",
            "four equal streams: the cost of LAZY rises with τ",
            "steadily increases",
            f"model: {lazily[0]:,.0f} to {lazily[-1]:,.0f} comparisons per unit of time",
            holds=list(lazily) == sorted(lazily),
        ),
        shape_claim(
            "golab.figure3a.counted",
            "the same order when our loops are counted",
            "LAZY = GENERAL < NAIVE, rising with τ",
            f"NAIVE {_format_ratios(counted_naive, counted_lazy)} times LAZY; LAZY {counted_lazy[0]:,.0f} to "
            f"{counted_lazy[-1]:,.0f}",
            holds=_largest_ratio_error(counted_lazy, counted_general) < 0.02
            and all(a > b for a, b in zip(counted_naive, counted_lazy, strict=True))
            and list(counted_lazy) == sorted(counted_lazy),
            difference=f"at the largest τ ours are {counted_lazy[-1] / lazily[-1]:.2f} of the model's: " + _WHY_LESS,
        ),
    ]


def _fast_stream_claims(model: FigureLines, ours: Lines) -> list[Claim]:
    naive, lazily, general = (model.line(name) for name in NAMES)
    crossed = next((tau for tau, n, z in zip(model.x, naive, lazily, strict=True) if n < z), None)
    equal_until = max((tau for tau, g, z in zip(model.x, general, lazily, strict=True) if z < g * 1.001), default=0)
    return [
        shape_claim(
            "golab.figure3b.general",
            "one fast stream: GENERAL is the lowest at every τ",
            "lowest regardless of τ",
            f"model: at most {max(g / min(n, z) for g, n, z in zip(general, naive, lazily, strict=True)):.3f} times "
            "the better of the others",
            holds=all(g <= min(n, z) * (1 + 1e-9) for g, n, z in zip(general, naive, lazily, strict=True)),
        ),
        shape_claim(
            "golab.figure3b.small",
            "one fast stream: LAZY equals GENERAL for small τ",
            "equal for small τ",
            f"model: equal up to τ = {equal_until:g}; {lazily[-1] / general[-1]:.2f} times GENERAL at τ = 50",
            holds=0 < equal_until < model.x[-1],
        ),
        shape_claim(
            "golab.figure3b.crossing",
            "one fast stream: NAIVE overtakes LAZY for large τ, with S4 last",
            "NAIVE better than LAZY when τ is large",
            f"model: NAIVE is cheaper from τ = {crossed:g} on" if crossed else "model: NAIVE is never cheaper",
            holds=crossed is not None and naive[0] > lazily[0] and naive[-1] < lazily[-1],
        ),
        _crossing_claim(model, ours),
    ]


def _crossing_claim(model: FigureLines, ours: Lines) -> Claim:
    naive, lazily, general = (ours[name].y for name in NAMES)
    taus = ours["LAZY"].x
    crossed = next((tau for tau, n, z in zip(taus, naive, lazily, strict=True) if n < z), None)
    return shape_claim(
        "golab.figure3b.counted",
        "the same crossing when our loops are counted",
        "NAIVE better than LAZY when τ is large",
        f"NAIVE {_format_ratios(naive, lazily)} times LAZY from τ = {taus[0]:g} to {taus[-1]:g}, GENERAL "
        f"{_format_ratios(general, lazily)} times",
        holds=crossed is not None,
        reason=f"at τ = {taus[-1]:g} LAZY makes {lazily[-1]:,.0f} comparisons where the model has "
        f"{model.line('LAZY')[-1]:,.0f}, NAIVE {naive[-1]:,.0f} where it has {model.line('NAIVE')[-1]:,.0f}: "
        f"{_WHY_LESS}; so LAZY does not become expensive enough for the others to win",
    )


_WHY_LESS = (
    "our loops test a row's time as soon as they reach it, so an expired row costs one comparison and starts no inner "
    "loop. The model lets the whole window of T + τ pass"
)


def _largest_ratio_error(these: tuple[float, ...], those: tuple[float, ...]) -> float:
    return max(abs(a / b - 1) for a, b in zip(these, those, strict=True))


def _format_ratios(these: tuple[float, ...], those: tuple[float, ...]) -> str:
    return f"{these[0] / those[0]:.1f} to {these[-1] / those[-1]:.1f}"
