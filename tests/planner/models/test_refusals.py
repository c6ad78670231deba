"""Invalid statistics and plans are refused when they are built, with a clear message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from watersmeet.errors import InputError, InternalError, PlanError, WatersmeetError
from watersmeet.planner.models.ayad import JoinNode, RowBudget, SelectionNode, SideCosts, SourceNode
from watersmeet.planner.models.ayad_drops import SheddingPolicy
from watersmeet.planner.models.ayad_search import JoinPredicate, SourceFilter, cost_per_row
from watersmeet.planner.models.golab import (
    CommonAttribute,
    Intervals,
    WindowedStream,
    eager_nlj,
    general_lazy_nlj,
    lazy_nlj,
    origin_comparisons,
)
from watersmeet.planner.models.kang import (
    PAPER_WEIGHTS,
    StructureWeights,
    TwoStreams,
    WindowLoad,
    fit_weight,
    pair_cost,
    structure_cost,
)
from watersmeet.planner.models.kang_limited import LimitedJoin, Pair
from watersmeet.planner.models.tran import AggregationJoin, AggregationWeights, Input
from watersmeet_lab.papers.exhibit import FigureLines
from watersmeet_lab.papers.golab.models import FOUR_EQUAL

NAN, INF = float("nan"), float("inf")
A = SourceNode("a", 1, window_rows=1)

#: Constructors with a parameter that must be above zero.
ABOVE_ZERO: dict[str, Callable[[float], object]] = {
    "golab rate": lambda x: WindowedStream(x, 100, 50),
    "golab window": lambda x: WindowedStream(1, x, 50),
    "golab count window": lambda x: WindowedStream(1, None, 50, window_rows=x),
    "golab values": lambda x: WindowedStream(1, 100, x),
    "golab weight": lambda x: WindowedStream(1, 100, 50, weight=x),
    "golab theta": lambda x: WindowedStream(1, 100, 50, theta=x),
    "kang rows": lambda x: WindowLoad(x, 1, 1),
    "kang rate": lambda x: TwoStreams(1, 1, x, 1),
    "kang limited rate": lambda x: LimitedJoin(Pair(1, x), Pair(1, 1), 0.1),
    "kang selectivity": lambda x: LimitedJoin(Pair(1, 1), Pair(1, 1), x),
    "kang bucket": lambda x: replace(PAPER_WEIGHTS, bucket_rows=x),
    "tran window": lambda x: Input(1, x, 1, 0.1),
    "tran groups": lambda x: Input(1, 1, x, 0.1),
    "tran selectivity": lambda x: Input(1, 1, 1, x),
    "ayad rate": lambda x: SourceNode("a", x, window_rows=1),
    "ayad window": lambda x: SourceNode("a", 1, window_rows=x),
    "ayad time window": lambda x: SourceNode("a", 1, window_s=x),
    "ayad selection": lambda x: SelectionNode(A, x),
    "ayad join": lambda x: JoinNode(A, A, x),
    "ayad tie": lambda x: JoinPredicate("a", "b", x),
    "ayad filter": lambda x: SourceFilter("a", x),
    "ayad processors": lambda x: RowBudget(processors=x),
    "ayad weights": lambda x: SheddingPolicy(weights={"a": x}),
}

#: Constructors with a parameter that may also be zero.
NOT_NEGATIVE: dict[str, Callable[[float], object]] = {
    "golab interval": Intervals,
    "kang probes": lambda x: WindowLoad(1, 1, x),
    "kang limited window": lambda x: LimitedJoin(Pair(1, 1), Pair(x, 1), 0.1),
    "kang weight": lambda x: StructureWeights(x, 0),
    "tran rate": lambda x: Input(x, 1, 1, 0.1),
    "tran weight": lambda x: AggregationWeights(group_s=x),
    "ayad cost": lambda x: SideCosts(probe_s=x),
    "ayad selection cost": lambda x: SelectionNode(A, 1, x),
    "ayad row cost": cost_per_row,
    "ayad least rate": lambda x: SheddingPolicy(least_rows_per_s={"a": x}),
}


@pytest.mark.parametrize("value", [NAN, INF, -INF, -1, 0, 1e300, 10**400])
@pytest.mark.parametrize("name", list(ABOVE_ZERO))
def test_positive_parameters_refuse_everything_else(name: str, value: float) -> None:
    with pytest.raises((InputError, PlanError), match="must be"):
        ABOVE_ZERO[name](value)
    ABOVE_ZERO[name](1)


@pytest.mark.parametrize("value", [NAN, INF, -1e-9])
@pytest.mark.parametrize("name", list(NOT_NEGATIVE))
def test_parameters_that_may_be_zero_refuse_negative_and_non_finite_values(name: str, value: float) -> None:
    with pytest.raises((InputError, PlanError), match="must be"):
        NOT_NEGATIVE[name](value)
    NOT_NEGATIVE[name](0)


@pytest.mark.parametrize("value", ["5", None, True])
def test_text_and_booleans_are_not_rates(value: object) -> None:
    with pytest.raises(InputError, match="the rate of a stream must be a number above zero"):
        WindowedStream(value, 100, 50)  # type: ignore[arg-type]  # the error under test


def test_a_window_has_either_rows_or_a_length() -> None:
    with pytest.raises(InputError, match="either a number of rows or a length in seconds"):
        WindowedStream(1, None, 50)
    with pytest.raises(InputError, match="either a number of rows or a length in seconds"):
        SourceNode("a", 1, window_rows=1, window_s=1)


@pytest.mark.parametrize("buckets", [0, -1, 1.5, True])
def test_buckets_are_whole_and_at_least_one(buckets: int) -> None:
    with pytest.raises(InputError, match="whole number of at least 1"):
        WindowedStream(1, 100, 50, buckets=buckets)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1, 2, 2), (0, 1, 2, 4), (0, 1, 2, 3, 3)])
def test_an_order_names_every_stream_once(order: tuple[int, ...]) -> None:
    with pytest.raises(PlanError, match="names each of 0 to 3 once"):
        origin_comparisons(FOUR_EQUAL, 0, order)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: CommonAttribute((WindowedStream(1, 1),)), "at least two streams"),
    (lambda: origin_comparisons(FOUR_EQUAL, 7, (0, 1, 2, 3)), "no stream 7 among 4"),
    (lambda: origin_comparisons(FOUR_EQUAL, -1, (0, 1, 2, 3)), "no stream -1 among 4"),
    (lambda: eager_nlj(FOUR_EQUAL, (0, 1)), "names each of 0 to 3 once"),
    (lambda: lazy_nlj(FOUR_EQUAL, (0, 1, 2, 3), Intervals()), "a lazy join needs an evaluation interval"),
    (lambda: general_lazy_nlj(FOUR_EQUAL, [(0, 1, 2, 3)], Intervals(1)), "4 origins need as many orders, got 1"),
    (lambda: Intervals(10, 5), "would come more often than evaluation"),
    (lambda: pair_cost("TNH", TwoStreams(1, 1, 1, 1)), "does not name two structures"),
    (lambda: structure_cost("heap", WindowLoad(1, 1, 1), PAPER_WEIGHTS), 'no structure "heap"'),
    (lambda: fit_weight([], []), "as many times as points"),
    (lambda: fit_weight([1.0], [1.0, 2.0]), "as many times as points"),
    (lambda: replace(PAPER_WEIGHTS, node_rows=1), "whole number of at least 2"),
    (lambda: AggregationJoin((Input(1, 1, 1, 1),)), "at least two inputs"),
    # the error under test
    (lambda: AggregationJoin((Input(1, 1, 1, 1),) * 2, "merge"), 'no join method "merge"'),  # type: ignore[arg-type]
    (lambda: Input(1, 1, 0.5, 0.1), "at least one group"),
    (lambda: Input(1, 1, 1, 0.1, passes=3), "once or twice, got 3"),
    (lambda: RowBudget(headroom=1), "leaves nothing to compute with"),
    (lambda: RowBudget(headroom=NAN), "between zero and one"),
    (lambda: RowBudget(memory_rows=NAN), "above zero rows"),
    (lambda: FigureLines("x", (1,), ()).line("LAP"), 'no line "LAP"'),
]


@pytest.mark.parametrize(("mistake", "complaint"), MISTAKES, ids=[complaint for _, complaint in MISTAKES])
def test_a_mistake_is_named(mistake: Callable[[], object], complaint: str) -> None:
    with pytest.raises(WatersmeetError, match=complaint):
        mistake()


def test_a_figure_with_a_line_that_is_too_short_is_our_bug() -> None:
    with pytest.raises(InternalError, match="does not have 2 points"):
        FigureLines("x", (1, 2), (("a", (1.0,)),))
