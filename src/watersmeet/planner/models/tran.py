"""Cost per unit of time of an aggregation over a join, with some of its inputs aggregated before the join.

A plan is the set of inputs that carry an early aggregation (EA) operator. The empty set is the late aggregation plan
(LAP). There are 2^m plans for m inputs. Each row is handled once when it enters its window and once when it leaves
(hence the paper's factor of two). To handle a row of input k under the plan E is to

    update window k                                       U
    update the aggregation set of k, if k is in E         (α_k / B_k) · Ug
    find its matches in every other input j               (α_j / B_j) · P if j is in E, (w_j / B_j) · P otherwise
    update the query's aggregation set with each result   Π over j ≠ k of (n_j if j in E, else m_j) · (α / Bg) · Ug

The paper gives this for two inputs. For m inputs its algorithm (Figure 5, step 3) looks up the row once in each of the
other inputs and combines the matches: probes add up, matches multiply. With two inputs both the sum and the product
have one term, which is the paper's formula. Nested loops touch all rows of the probed window or aggregation set, not
one bucket. So B_j = 1 in the third line, and only there, because aggregation sets are hashed in either case.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", sections 6.3 and 7.1,
eqs. 1 to 22.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Literal

from watersmeet.errors import InputError, PlanError
from watersmeet.planner.models.checks import check_not_negative, check_positive, check_selectivity, check_whole

Method = Literal["hash", "nested loops"]

#: Maximum number of inputs for which all plans are listed.
MAX_LISTED_INPUTS = 12  # 4,096 plans


@dataclass(frozen=True, slots=True)
class Input:
    """A joined stream: λ rows per second, w rows in its window, g groups of its own, join selectivity σ.

    g is 1 if no grouping attribute comes from this stream. A relation is an input of rate zero. `passes` counts how
    often a row is handled: twice in a sliding window, once if rows do not leave one by one (landmark and tumbling
    windows).
    """

    rows_per_s: float
    window_rows: float
    groups: float
    selectivity: float
    passes: int = 2

    def __post_init__(self) -> None:
        check_not_negative(self.rows_per_s, "the rate of a stream")
        check_positive(self.window_rows, "the rows of a window")
        check_positive(self.groups, "the number of groups of a stream")
        if self.groups < 1:
            raise InputError(f"a stream has at least one group, got {self.groups}")
        check_selectivity(self.selectivity, "the join selectivity of a stream")
        if self.passes not in (1, 2):
            raise PlanError(f"a row is handled once or twice, got {self.passes}")


@dataclass(frozen=True, slots=True)
class AggregationWeights:
    """Seconds per row probed (P) and per window updated (U), by join method, and per group visited (Ug)."""

    nested_probe_s: float = 1.0
    hash_probe_s: float = 1.0
    nested_update_s: float = 1.0
    hash_update_s: float = 1.0
    group_s: float = 1.0

    def __post_init__(self) -> None:
        for weight in (self.nested_probe_s, self.hash_probe_s, self.nested_update_s, self.hash_update_s, self.group_s):
            check_not_negative(weight, "a weight of the aggregation model")


#: The paper tunes its weights per experiment and prints none of them. Equal weights reproduce its rankings.
UNIT_WEIGHTS = AggregationWeights()


@dataclass(frozen=True, slots=True)
class AggregationJoin:
    """An aggregation over the join of these inputs; hash tables have at most `most_buckets` (B) buckets.

    The paper hashes the query's aggregation set on the grouping attribute of the first input alone; "all" hashes it on
    the grouping attributes of all inputs.
    """

    inputs: tuple[Input, ...]
    method: Method = "hash"
    most_buckets: int = 1021
    hashed_on: Literal["first", "all"] = "first"

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise PlanError("an aggregation join needs at least two inputs")
        if self.method not in ("hash", "nested loops"):
            raise PlanError(f'there is no join method "{self.method}"', hint="methods: hash, nested loops")
        if self.hashed_on not in ("first", "all"):
            raise PlanError(f'groups are hashed on the "first" input or on "all" of them, not on "{self.hashed_on}"')
        check_whole(self.most_buckets, 1, "the most buckets of a hash table")


def result_groups(join: AggregationJoin) -> float:
    """Return α: groups in the query's aggregation set, at most the product over the inputs.

    References: Tran, Lee, eq. 13.
    """
    return math.prod(min(each.window_rows, each.groups) for each in join.inputs)


def early_groups(each: Input) -> float:
    """Return α_i: rows of an input's aggregation set, grouped by its grouping and its join attributes.

    >>> early_groups(Input(300, 5000, groups=150, selectivity=0.1))
    1500.0

    References: Tran, Lee, eqs. 14 and 15.
    """
    return min(each.window_rows, each.groups / each.selectivity)


def window_matches(each: Input) -> float:
    """Return m_i: rows of the window that match an arrival on another input.

    References: Tran, Lee, eqs. 16 and 17.
    """
    return each.selectivity * each.window_rows


def early_matches(each: Input) -> float:
    """Return n_i: rows of the aggregation set that match an arrival on another input, one per group.

    References: Tran, Lee, eqs. 18 and 19.
    """
    return min(window_matches(each), each.groups)


def join_buckets(each: Input, most_buckets: int) -> float:
    """Return B_i: buckets on the join attribute, one per value up to B.

    References: Tran, Lee, eqs. 20 and 21.
    """
    return min(1 / each.selectivity, most_buckets)


def group_buckets(join: AggregationJoin) -> float:
    """Return Bg: buckets of the query's aggregation set, one per hashed value up to B.

    References: Tran, Lee, eq. 22.
    """
    values = join.inputs[0].groups if join.hashed_on == "first" else math.prod(each.groups for each in join.inputs)
    return min(values, join.most_buckets)


def plan_cost(join: AggregationJoin, early: Collection[int] = (), weights: AggregationWeights = UNIT_WEIGHTS) -> float:
    """Estimate the cost per unit of time of the plan with early aggregation on the inputs `early`; none is the LAP.

    >>> two = AggregationJoin((Input(300, 5000, 150, 0.1), Input(300, 5000, 1, 0.1)))
    >>> plan_cost(two), plan_cost(two, early={1})
    (1201200.0, 603000.0)

    References: Tran, Lee, eqs. 5 to 12. Eq. 6 prints α1/Bg and α/B2 for α1/B1 and α/Bg, which eq. 10 has.
    """
    if not set(early) <= set(range(len(join.inputs))):
        raise PlanError(f"early aggregation on input {max(early)}, but there are {len(join.inputs)}, numbered from 0")
    return math.fsum(
        each.rows_per_s * each.passes * row_cost(join, k, early, weights) for k, each in enumerate(join.inputs)
    )


def row_cost(join: AggregationJoin, k: int, early: Collection[int], weights: AggregationWeights) -> float:
    """Estimate the cost of handling one row of input k once, as it enters or leaves its window."""
    others = [j for j in range(len(join.inputs)) if j != k]
    keep_own = _group_chain(join, k) * weights.group_s if k in early else 0.0
    probes = math.fsum(_probed_rows(join, j, early) for j in others)
    results = math.prod(early_matches(join.inputs[j]) if j in early else window_matches(join.inputs[j]) for j in others)
    update_result = results * result_groups(join) / group_buckets(join) * weights.group_s
    probe_s, update_s = _method_weights(join.method, weights)
    return update_s + keep_own + probes * probe_s + update_result


def plan_name(early: Collection[int], inputs: int) -> str:
    """Return the paper's name of a plan.

    >>> plan_name({1}, inputs=2), plan_name((), inputs=2)
    ('EAP01', 'LAP')

    """
    return "EAP" + "".join("01"[k in early] for k in range(inputs)) if early else "LAP"


def all_plans(inputs: int) -> list[frozenset[int]]:
    """List all 2^m plans, the LAP first.

    >>> [plan_name(early, 2) for early in all_plans(2)]
    ['LAP', 'EAP01', 'EAP10', 'EAP11']

    """
    if inputs > MAX_LISTED_INPUTS:
        raise PlanError(
            f"{inputs} inputs have too many plans to list", hint=f"plans are listed for up to {MAX_LISTED_INPUTS}"
        )
    return [frozenset(k for k, bit in enumerate(bits) if bit) for bits in product((0, 1), repeat=inputs)]


def plan_costs(join: AggregationJoin, weights: AggregationWeights = UNIT_WEIGHTS) -> dict[str, float]:
    """Estimate the cost of every plan, by plan name."""
    count = len(join.inputs)
    return {plan_name(early, count): plan_cost(join, early, weights) for early in all_plans(count)}


def best_plan(join: AggregationJoin, weights: AggregationWeights = UNIT_WEIGHTS) -> frozenset[int]:
    """Return the inputs that aggregate early in the cheapest of all 2^m plans; on a tie, the smaller set."""
    return min(all_plans(len(join.inputs)), key=lambda early: (plan_cost(join, early, weights), len(early)))


def _group_chain(join: AggregationJoin, k: int) -> float:
    """Return the rows of an aggregation set that share a bucket."""
    return early_groups(join.inputs[k]) / join_buckets(join.inputs[k], join.most_buckets)


def _probed_rows(join: AggregationJoin, j: int, early: Collection[int]) -> float:
    rows = early_groups(join.inputs[j]) if j in early else join.inputs[j].window_rows
    return rows / join_buckets(join.inputs[j], join.most_buckets) if join.method == "hash" else rows


def _method_weights(method: Method, weights: AggregationWeights) -> tuple[float, float]:
    if method == "hash":
        return weights.hash_probe_s, weights.hash_update_s
    return weights.nested_probe_s, weights.nested_update_s
