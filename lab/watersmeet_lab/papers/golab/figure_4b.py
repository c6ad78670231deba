"""Figure 4b: one stream fifty times as fast; how to divide the hash buckets."""

from __future__ import annotations

from watersmeet.planner.models.golab import CommonAttribute, Intervals, WindowedStream
from watersmeet.planner.models.golab_orders import search_all_orders_per_origin
from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Line, LinePanel, Plot, lines_table
from watersmeet_lab.papers.golab.multi_join_runs import (
    TIE_SHARE,
    fit_linear,
    lazy_plan,
    origin_first_orders,
    run_fastest,
)
from watersmeet_lab.workloads.golab_streams import GolabRunResult, StreamSpec, scale_streams, unit_us

SCALE = 10
STREAMS = scale_streams((*(StreamSpec(1, 100, 50),) * 3, StreamSpec(50, 100, 50)), SCALE)
TAU = 5
AVERAGES = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 13.0)
EQUAL, ONE, FIVE, TEN = "Equal", "1 to slow", "5 to slow", "10 to slow"
SLOW_BUCKETS = {ONE: 1, FIVE: 5, TEN: 10}
_ROWS = 20_000

Lines = dict[str, Line]


def figure_4b(effort: Effort) -> Exhibit:
    effort.report("golab, Figure 4b: buckets for the fast stream")
    rates, work = _measure_rates(effort)
    x_label = "average number of buckets per window"
    panels = (
        LinePanel("input rate", x_label, "tuples per second", tuple(rates.values())),
        LinePanel("comparisons", x_label, "comparisons per tuple", tuple(work.values()), log_y=True),
    )
    return Exhibit(
        "Figure 4b: buckets for the fast stream",
        f"Three streams of λ = {SCALE} and one fifty times as fast, T = 100, v = {50 * SCALE}, τ = {TAU}: {SCALE} "
        "times the paper's rows and values. Loops run over the origin's new rows, then over the windows in order, the "
        f"fast one last. {effort.scale_rows(_ROWS):,} rows with full windows; tuples per second of CPU time.",
        tuple(_claims(rates, work)),
        tuple(
            lines_table(f"figure-4b{suffix}", f"Figure 4b: {title}", tuple(lines.values()), "average buckets")
            for suffix, title, lines in (
                ("", "tuples per second", rates),
                ("-comparisons", "comparisons per tuple", work),
            )
        ),
        (Plot("figure-4b", "Figure 4b: one stream fifty times as fast", panels),),
    )


def allocate_buckets(strategy: str, average: float) -> tuple[int, ...] | None:
    """Return the buckets of the three slow windows and the fast one.

    Return None if the fast one would get fewer than a slow one.

    >>> allocate_buckets("5 to slow", 12), allocate_buckets("Equal", 12), allocate_buckets("10 to slow", 8)
    ((5, 5, 5, 33), (12, 12, 12, 12), None)
    """
    slow = SLOW_BUCKETS.get(strategy, int(average))
    fast = int(4 * average) - 3 * slow
    return (slow, slow, slow, fast) if fast >= slow else None


def _measure_rates(effort: Effort) -> tuple[Lines, Lines]:
    averages = (12.0, 13.0) if effort.quick else AVERAGES
    chosen = {
        (name, at): buckets
        for name in (EQUAL, *SLOW_BUCKETS)
        for at in averages
        if (buckets := allocate_buckets(name, at))
    }
    plans = {
        f"{name}/{at}": lazy_plan("lazy-hash", STREAMS, TAU, origin_first_orders(STREAMS), buckets)
        for (name, at), buckets in chosen.items()
    }
    ran = run_fastest(effort, STREAMS, plans, effort.scale_rows(_ROWS))
    per_row = 1 / unit_us(STREAMS)

    def line(name: str, quantity: str) -> Line:
        places = tuple(at for each, at in chosen if each == name)
        return Line(name, places, tuple(_quantity(ran[f"{name}/{at}"], quantity, per_row) for at in places))

    return {name: line(name, "rate") for name in (EQUAL, *SLOW_BUCKETS)}, {
        name: line(name, "work") for name in (EQUAL, *SLOW_BUCKETS)
    }


def _quantity(ran: GolabRunResult, quantity: str, per_row: float) -> float:
    return 1 / ran.cpu_s_per_row if quantity == "rate" else ran.comparisons_per_unit * per_row


def _claims(rates: Lines, work: Lines) -> list[Claim]:
    at_12 = {name: dict(zip(line.x, line.y, strict=True))[12.0] for name, line in rates.items()}
    compared = {name: dict(zip(line.x, line.y, strict=True))[12.0] for name, line in work.items()}
    best, skewed = max(at_12, key=lambda name: at_12[name]), max((FIVE, TEN), key=lambda name: at_12[name])
    times_text = ", ".join(
        f"{name} {rate:,.0f} tuples per second ({compared[name]:,.0f} comparisons each)" for name, rate in at_12.items()
    )
    model = {name: model_comparisons(name, 12) for name in at_12}
    return [
        _model_claim(model),
        shape_claim(
            "golab.figure4b.skewed",
            "more buckets for the fast stream beat equally many, twelve on average",
            "5 to slow: over 10000; Equal: under 7000",
            times_text,
            holds=at_12[skewed] > at_12[EQUAL] * (1 + TIE_SHARE),
            difference=f"{skewed} is {at_12[skewed] / at_12[EQUAL]:.2f} times Equal, less than the paper's factor: "
            + _explain_rates(rates, work),
            reason=_explain_rates(rates, work),
        ),
        shape_claim(
            "golab.figure4b.five",
            "five buckets to each slow stream are the best division of twelve on average",
            "5 to slow is best, 10 to slow passes it later",
            f"{best} is best; {times_text}",
            holds=best == FIVE
            and at_12[FIVE] > (1 + TIE_SHARE) * max(rate for name, rate in at_12.items() if name != FIVE),
            reason=_explain_rates(rates, work),
        ),
        shape_claim(
            "golab.figure4b.more",
            "the rate rises with the number of buckets when all windows have equally many",
            "increases gradually",
            f"{rates[EQUAL].y[0]:,.0f} to {rates[EQUAL].y[-1]:,.0f} tuples per second",
            holds=rates[EQUAL].y[-1] > rates[EQUAL].y[0],
        ),
    ]


def model_comparisons(strategy: str, average: float) -> float:
    """Estimate comparisons per tuple by the cost model, with each origin in its best order.

    In that order, the new rows of the fast stream come last.

    >>> round(model_comparisons("5 to slow", 12)), round(model_comparisons("Equal", 12))
    (824, 1579)
    """
    buckets = allocate_buckets(strategy, average)
    assert buckets is not None
    streams = tuple(
        WindowedStream(each.rate, each.window, each.distinct, buckets=b)
        for each, b in zip(STREAMS, buckets, strict=True)
    )
    found = search_all_orders_per_origin(CommonAttribute(streams), Intervals(TAU))
    return sum(each.cost for each in found) / unit_us(STREAMS)


def _model_claim(model: dict[str, float]) -> Claim:
    return shape_claim(
        "golab.figure4b.model",
        "by the cost model, five buckets to each slow stream are the best division of twelve on average",
        "5 to slow is best",
        ", ".join(f"{name} {cost:,.0f}" for name, cost in model.items())
        + " comparisons per tuple, each origin in its best order",
        holds=min(model, key=lambda name: model[name]) == FIVE,
    )


def _explain_rates(rates: Lines, work: Lines) -> str:
    """Explain where the time goes, over all measured divisions and averages."""
    points = [
        (1e9 / rate, compared) for name in rates for rate, compared in zip(rates[name].y, work[name].y, strict=True)
    ]
    found = fit_linear([time for time, _ in points], [compared for _, compared in points])
    compared = {name: dict(zip(line.x, line.y, strict=True))[12.0] for name, line in work.items()}
    fitted = {name: found.predict(compared[name]) for name in compared if name != ONE}
    return (
        f"a tuple takes {found.constant:,.0f} ns and {found.per_unit[0]:.2f} ns per comparison, by a fit over all "
        f"points that explains {found.explained_share:.0%} of their variance; the combinations it finds on the way are "
        f"the same in every division and are in the constant, {found.constant / fitted[FIVE]:.0%} of its time with 5 "
        "to slow; so by the fit "
        + ", ".join(f"{name} takes {time:,.0f} ns" for name, time in fitted.items())
        + _repeat_difference(rates)
    )


def _repeat_difference(rates: Lines) -> str:
    """Return how far apart the two measurements are of the plan that appears in two lines."""
    both = [dict(zip(rates[name].x, rates[name].y, strict=True)).get(10.0) for name in (EQUAL, TEN)]
    if both[0] is None or both[1] is None:
        return ""
    return (
        "; ten buckets each appear in two lines, and these two measurements of one plan differ by "
        f"{abs(both[0] / both[1] - 1):.0%}"
    )
