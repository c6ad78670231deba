"""Time bounds: how far apart in time the rows of a result can be.

RANGE windows and pair constraints all mean `ts_j - ts_i <= D[i][j]`. Shortest paths over those bounds give the tightest
bound for every pair (the derived windows of Hammad et al., here also for one-sided constraints). The given constraints
imply them, so pruning by them never loses a result.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError


@dataclass(frozen=True, slots=True)
class DifferenceBounds:
    """Bounds between the times of all pairs; FOREVER_US means unbounded.

    `later_by_us[i][j]` is the most by which a row of j can be later than the row of i that it matches. `close_bounds`
    closes the bounds under shortest paths. A bound may be below zero: a row of j is then earlier than the row of i. A
    negative cycle means that no rows match, and is refused.

    >>> chain = close_bounds([[0, 5, FOREVER_US], [5, 0, 3], [FOREVER_US, 3, 0]])
    >>> chain.later_by_us[0][2]
    8
    """

    later_by_us: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.later_by_us)
        if any(len(row) != size for row in self.later_by_us):
            raise InternalError("difference bounds must be square")
        if any(self.later_by_us[i][j] + self.later_by_us[j][i] < 0 for i in range(size) for j in range(size)):
            raise InternalError("difference bounds that no rows can satisfy")

    def __len__(self) -> int:
        return len(self.later_by_us)

    def retention_us(self, i: int, streams: list[int]) -> int:
        """Return how long after its own time a row of i can still match a new row of one of the other `streams`."""
        return max((self.later_by_us[i][j] for j in streams if j != i), default=0)


def close_bounds(given_us: list[list[int]]) -> DifferenceBounds:
    """Apply Floyd and Warshall to the given bounds; sums saturate at FOREVER_US."""
    size = len(given_us)
    bound = [list(row) for row in given_us]
    for i in range(size):
        bound[i][i] = 0
    for k in range(size):
        for i in range(size):
            for j in range(size):
                through = bound[i][k] + bound[k][j]
                bound[i][j] = min(bound[i][j], through)
    return DifferenceBounds(tuple(tuple(min(b, FOREVER_US) for b in row) for row in bound))
