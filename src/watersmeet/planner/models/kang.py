"""Cost of storing and probing a window, by index structure, and the best pair of structures for two streams.

The weight factors say how many seconds it takes to touch one row when a window is probed (P) and when it is updated
(I).

A join of streams A and B splits into two independent directions. Arrivals of A probe window B, and arrivals of B update
it; the other direction is the mirror image. So each window gets the structure that suits its own two rates. `TN` means
a T-tree on window A and a list on window B.

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams", section 4, Tables 1 and 3, Figure
2; sections 4.1 and 4.2 for the weight factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from watersmeet.algebra.plan import Index
from watersmeet.errors import InputError, PlanError, listing
from watersmeet.planner.models.checks import check_not_negative, check_positive, check_whole


@dataclass(frozen=True, slots=True)
class StructureWeights:
    """Seconds per row touched by a probe (P) and by an insertion or an expiration (I)."""

    probe_s: float
    update_s: float

    def __post_init__(self) -> None:
        check_not_negative(self.probe_s, "the weight of a probe")
        check_not_negative(self.update_s, "the weight of an update")


@dataclass(frozen=True, slots=True)
class Weights:
    """P and I of each structure, rows per hash bucket (B/|B|) and rows per tree node (N)."""

    list: StructureWeights
    hash: StructureWeights
    btree: StructureWeights
    ttree: StructureWeights
    bucket_rows: float = 10.0
    node_rows: int = 100

    def __post_init__(self) -> None:
        check_positive(self.bucket_rows, "the rows of a hash bucket")
        check_whole(self.node_rows, 2, "the rows of a tree node")


#: The weights that the paper measured (eq. 7). It does not name their unit, so such costs compare only with each other.
PAPER_WEIGHTS = Weights(
    list=StructureWeights(3e-4, 1e-4),
    hash=StructureWeights(5.5e-4, 7.8e-4),
    btree=StructureWeights(2.6e-4, 2.6e-4),
    ttree=StructureWeights(2.6e-4, 2.7e-4),
)


def fit_weight(touched_rows: Sequence[float], seconds: Sequence[float]) -> float:
    """Fit the weight for which `touched rows · weight` is closest to measured seconds.

    Least squares through the origin. Pass the points of a probe-only workload at rising rates for P, of an update-only
    workload for I.

    >>> fit_weight([1000, 2000, 3000], [0.5, 1.0, 1.5])
    0.0005

    References: Kang, Naughton, Viglas, section 4.2, "Estimating the Weight Factors" (20 points of rising rate).
    """
    if not touched_rows or len(touched_rows) != len(seconds):
        raise InputError(
            f"a weight needs as many times as points, and at least one: got {len(touched_rows)} and {len(seconds)}"
        )
    for touched, spent in zip(touched_rows, seconds, strict=True):
        check_positive(touched, "the rows touched at a measured point")
        check_not_negative(spent, "the time of a measured point")
    products = [touched * spent for touched, spent in zip(touched_rows, seconds, strict=True)]
    return math.fsum(products) / math.fsum(touched * touched for touched in touched_rows)


#: Structure names used in plans, by the paper's letters.
LETTERS = {"N": "list", "H": "hash", "B": "btree", "T": "ttree"}


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """Load of one window of `rows` rows, filled at `arrivals_per_s` and probed at `probes_per_s`."""

    rows: float
    arrivals_per_s: float
    probes_per_s: float

    def __post_init__(self) -> None:
        check_positive(self.rows, "the rows of a window")
        check_not_negative(self.arrivals_per_s, "the rate at which a window is filled")
        check_not_negative(self.probes_per_s, "the rate at which a window is probed")


@dataclass(frozen=True, slots=True)
class TwoStreams:
    """Workload of a join of A and B: rows in each window and arrivals on each stream."""

    rows_a: float
    rows_b: float
    a_per_s: float
    b_per_s: float

    def __post_init__(self) -> None:
        check_positive(self.rows_a, "the rows of window A")
        check_positive(self.rows_b, "the rows of window B")
        check_positive(self.a_per_s, "the rate of stream A")
        check_positive(self.b_per_s, "the rate of stream B")

    @property
    def loads(self) -> tuple[WindowLoad, WindowLoad]:
        """Loads of window A and window B: each is filled by its own stream and probed by the other."""
        return WindowLoad(self.rows_a, self.a_per_s, self.b_per_s), WindowLoad(self.rows_b, self.b_per_s, self.a_per_s)


def list_cost(load: WindowLoad, weights: Weights) -> float:
    """Estimate the cost of a list: a probe touches every row of the window, an update touches one.

    >>> round(list_cost(WindowLoad(rows=500, arrivals_per_s=998, probes_per_s=2), PAPER_WEIGHTS), 4)
    0.4996

    References: Kang, Naughton, Viglas, eq. 3.
    """
    return _cost(load, weights.list, probe_rows=load.rows, update_rows=1)


def hash_cost(load: WindowLoad, weights: Weights) -> float:
    """Estimate the cost of a hash index: a probe touches the rows of one bucket, an update touches one row.

    Buckets keep arrival order, so an update finds the oldest row at once.

    >>> round(hash_cost(WindowLoad(rows=500, arrivals_per_s=998, probes_per_s=2), PAPER_WEIGHTS), 4)
    1.5679

    References: Kang, Naughton, Viglas, eq. 4.
    """
    return _cost(load, weights.hash, probe_rows=min(weights.bucket_rows, load.rows), update_rows=1)


def btree_cost(load: WindowLoad, weights: Weights) -> float:
    """Estimate the cost of a B+tree: a probe or an update visits one node per level, with a binary search in each.

    >>> round(btree_cost(WindowLoad(rows=500, arrivals_per_s=998, probes_per_s=2), PAPER_WEIGHTS), 4)
    7.2727

    References: Kang, Naughton, Viglas, eq. 5.
    """
    touched = btree_path_rows(load.rows, weights.node_rows)
    return _cost(load, weights.btree, probe_rows=touched, update_rows=touched)


def ttree_cost(load: WindowLoad, weights: Weights) -> float:
    """Estimate the cost of a T-tree: 1.5 comparisons per node on the path, then a search in one node.

    Probes and updates cost the same. The path has one node less than the height of the tree.

    >>> round(ttree_cost(WindowLoad(rows=9500, arrivals_per_s=2, probes_per_s=998), PAPER_WEIGHTS), 4)
    4.169

    References: Kang, Naughton, Viglas, eq. 6. The paper prints the update as 2·1.5·(…) + ⌈log2 N⌉. Insertion and
    invalidation each search the tree, so the whole bracket is doubled. Only this reading gives Table 3.
    """
    touched = ttree_path_rows(load.rows, weights.node_rows)
    return _cost(load, weights.ttree, probe_rows=touched, update_rows=touched)


def btree_path_rows(rows: float, node_rows: int) -> float:
    """Count rows compared from root to leaf: (⌈log_{N+1} ⌈n/N⌉⌉ + 1) · ⌈log2 N⌉, a binary search per node.

    >>> btree_path_rows(5000, node_rows=100)
    14

    """
    return (_ceil_log(math.ceil(rows / node_rows), node_rows + 1) + 1) * _ceil_log(node_rows, 2)


def ttree_path_rows(rows: float, node_rows: int) -> float:
    """Count rows compared on a T-tree path: 1.5 · (⌈log2 ⌈n/N⌉⌉ − 1) + ⌈log2 N⌉; a tree of one node has no path.

    >>> ttree_path_rows(5000, node_rows=100), ttree_path_rows(50, node_rows=100)
    (14.5, 7.0)

    """
    return 1.5 * max(_ceil_log(math.ceil(rows / node_rows), 2) - 1, 0) + _ceil_log(node_rows, 2)


STRUCTURE_COSTS = {"list": list_cost, "hash": hash_cost, "btree": btree_cost, "ttree": ttree_cost}


def structure_cost(structure: str, load: WindowLoad, weights: Weights = PAPER_WEIGHTS) -> float:
    """Estimate the cost per unit of time of a window in the structure of this name or letter."""
    return STRUCTURE_COSTS[_structure_name(structure)](load, weights)


def index_cost(index: Index, load: WindowLoad, weights: Weights) -> float:
    """Estimate the cost per unit of time of a window under a plan's index, with its own buckets or node size.

    >>> round(index_cost(Index("hash", 50), WindowLoad(rows=500, arrivals_per_s=998, probes_per_s=2), PAPER_WEIGHTS), 4)
    1.5679

    """
    bucket_rows = max(load.rows / index.size, 1.0) if index.kind == "hash" else weights.bucket_rows
    node_rows = index.size if index.kind in ("btree", "ttree") else weights.node_rows
    sized = Weights(weights.list, weights.hash, weights.btree, weights.ttree, bucket_rows, node_rows)
    return structure_cost(index.kind, load, sized)


def pair_cost(pair: str, streams: TwoStreams, weights: Weights = PAPER_WEIGHTS) -> float:
    """Estimate the cost per unit of time of a join whose window A has the first structure and window B the second.

    >>> round(pair_cost("TN", TwoStreams(9500, 500, 2, 998)), 2)
    4.67

    References: Kang, Naughton, Viglas, eq. 2 and Table 3.
    """
    if len(pair) != 2:
        raise PlanError(f'"{pair}" does not name two structures', hint='write two of N, H, B and T, for example "TN"')
    return math.fsum(structure_cost(letter, load, weights) for letter, load in zip(pair, streams.loads, strict=True))


def best_pair(streams: TwoStreams, weights: Weights = PAPER_WEIGHTS, letters: str = "NHBT") -> str:
    """Return the cheapest pair of structures.

    The directions are independent, so the best structure of each window makes the best pair.

    >>> best_pair(TwoStreams(7000, 3000, 800, 200), letters="NHT")
    'HT'

    """
    return "".join(min(letters, key=lambda letter: structure_cost(letter, load, weights)) for load in streams.loads)


def crossing_ratio(first: str, second: str, rows: float, weights: Weights = PAPER_WEIGHTS) -> float:
    """Return the probes per arrival at which two structures on a window of `rows` cost the same.

    Costs are linear in both rates, so there is at most one such ratio. Raise `PlanError` if there is none.

    >>> round(crossing_ratio("N", "H", rows=500), 4)
    0.0094

    References: Kang, Naughton, Viglas, eqs. 8 to 11.
    """
    ratio = _find_crossing(first, second, rows, weights)
    if ratio is None:
        raise PlanError(
            f"{_structure_name(first)} and {_structure_name(second)} never cost the same on a window of {rows} rows"
        )
    return ratio


def best_pairs_by_ratio(
    rows_a: float, rows_b: float, weights: Weights = PAPER_WEIGHTS, letters: str = "NHT"
) -> tuple[tuple[str, float], ...]:
    """Return the best pair for every ratio λa/λb from 0 up, each with the ratio up to which it is best.

    >>> [pair for pair, _ in best_pairs_by_ratio(5000, 5000)]
    ['TN', 'TH', 'HH', 'HT', 'NT']

    References: Kang, Naughton, Viglas, Figure 2.
    """
    # Rows of B probe window A, so the ratio for window A is inverted.
    on_a = {1 / ratio for ratio in _list_crossings(rows_a, weights, letters)}
    ratios = sorted(on_a | set(_list_crossings(rows_b, weights, letters)))
    edges = [0.0, *ratios, 2 * ratios[-1] if ratios else 1.0]
    between = [((low + high) / 2, high) for low, high in pairwise(edges)]
    found = [(best_pair(TwoStreams(rows_a, rows_b, ratio, 1.0), weights, letters), up_to) for ratio, up_to in between]
    found[-1] = (found[-1][0], math.inf)
    return tuple(each for each, after in zip(found, [*found[1:], ("", 0.0)], strict=True) if each[0] != after[0])


def _list_crossings(rows: float, weights: Weights, letters: str) -> list[float]:
    ratios = [_find_crossing(first, second, rows, weights) for first, second in combinations(letters, 2)]
    return [ratio for ratio in ratios if ratio is not None]


def _find_crossing(first: str, second: str, rows: float, weights: Weights) -> float | None:
    probing, updating = (
        WindowLoad(rows, arrivals_per_s=0, probes_per_s=1),
        WindowLoad(rows, arrivals_per_s=1, probes_per_s=0),
    )
    more_to_probe = structure_cost(first, probing, weights) - structure_cost(second, probing, weights)
    less_to_update = structure_cost(second, updating, weights) - structure_cost(first, updating, weights)
    return less_to_update / more_to_probe if more_to_probe * less_to_update > 0 else None


def _cost(load: WindowLoad, weights: StructureWeights, probe_rows: float, update_rows: float) -> float:
    """Add probes and updates. Each arrival is inserted once and expired once, hence the 2."""
    return load.probes_per_s * probe_rows * weights.probe_s + 2 * load.arrivals_per_s * update_rows * weights.update_s


def _ceil_log(value: int, base: int) -> int:
    """Return the smallest integer k with base**k >= value, without floating-point logarithms."""
    power, reached = 0, 1
    while reached < value:
        power, reached = power + 1, reached * base
    return power


def _structure_name(structure: str) -> str:
    name = LETTERS.get(structure, structure)
    if name not in STRUCTURE_COSTS:
        raise PlanError(
            f'there is no structure "{structure}"', hint=f"structures: {listing(list(STRUCTURE_COSTS))}, or N, H, B, T"
        )
    return name
