"""Weight factors of the four index structures: what touching one row costs when a window is searched (P) and when it is
updated (I).

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams", sections 4.1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.errors import InputError
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
    """P and I of each structure, the rows in a hash bucket (B/|B|) and in a tree node (N)."""

    list: StructureWeights
    hash: StructureWeights
    btree: StructureWeights
    ttree: StructureWeights
    bucket_rows: float = 10.0
    node_rows: int = 100

    def __post_init__(self) -> None:
        check_positive(self.bucket_rows, "the rows of a hash bucket")
        check_whole(self.node_rows, 2, "the rows of a tree node")


#: The weights the paper measured (eq. 7). It does not name their unit, so costs with them compare only with each other.
PAPER_WEIGHTS = Weights(
    list=StructureWeights(3e-4, 1e-4),
    hash=StructureWeights(5.5e-4, 7.8e-4),
    btree=StructureWeights(2.6e-4, 2.6e-4),
    ttree=StructureWeights(2.6e-4, 2.7e-4),
)


def fitted_weight(touched_rows: Sequence[float], seconds: Sequence[float]) -> float:
    """The weight that makes `touched rows · weight` fit measured seconds best: least squares through the origin.

    Feed it the points of a probe-only workload at rising rates for P, of an update-only workload for I.

    >>> fitted_weight([1000, 2000, 3000], [0.5, 1.0, 1.5])
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
