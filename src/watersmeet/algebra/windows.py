"""Windows: the rows of a stream that are valid at an instant, and the time bounds that follow.

Every window kind gives each row a validity interval `[ts, end]`: the instants at which the row is inside. A combination
of rows is a result when the largest `ts` among them lies in every row's interval. The join kernels know nothing else
about windows.

Difference bounds limit how far apart in time the rows of a result can be. RANGE windows and pair constraints all mean
`ts_j - ts_i <= D[i][j]`. Shortest paths over those bounds give the tightest bound for every pair (the derived windows
of Hammad et al., here also for one-sided constraints). The given constraints imply them, so pruning by them never loses
a result.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.algebra.names import quote_name
from watersmeet.errors import InternalError, QueryError

#: Instants beyond every real one. Times are refused outside ±MAX_TIME_US and lengths above MAX_LENGTH_US, so that sums
#: of a time and a few lengths never leave int64.
FOREVER_US = 2**62
MAX_TIME_US = 2**60
MAX_LENGTH_US = 2**59

UNITS_US: dict[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """Rows of the last `length_us` microseconds: `t - length_us <= ts <= t`. With length 0, the rows of the instant."""

    length_us: int

    def __post_init__(self) -> None:
        check_length(self.length_us)

    def __str__(self) -> str:
        return f"RANGE {format_sql_duration(self.length_us)}"


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """The last `count` rows of the stream, or per value of `partition_by`, among those with `ts <= t`."""

    count: int
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.count < 2**31:
            raise QueryError(f"a ROWS window holds between 1 and {2**31 - 1} rows, got {self.count}")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise QueryError("a column appears twice in PARTITION BY")

    def __str__(self) -> str:
        columns = ", ".join(quote_name(name) for name in self.partition_by)
        return f"PARTITION BY {columns} ROWS {self.count}" if columns else f"ROWS {self.count}"


@dataclass(frozen=True, slots=True)
class TumbleWindow:
    """Rows since the last multiple of `length_us`: `⌊t/length⌋·length <= ts <= t`.

    In aggregations with EVERY, the tile that ends at a multiple of `length_us` is still emitted there
    (`operators.aggregate.validity`).
    """

    length_us: int

    def __post_init__(self) -> None:
        check_length(self.length_us)
        if self.length_us == 0:
            raise QueryError(
                "a TUMBLE window must be longer than zero", hint="[RANGE 0 SECONDS] contains the rows of one instant"
            )

    def __str__(self) -> str:
        return f"TUMBLE {format_sql_duration(self.length_us)}"


@dataclass(frozen=True, slots=True)
class LandmarkWindow:
    """Every row so far: `ts <= t`. The caller requests unbounded state explicitly."""

    def __str__(self) -> str:
        return "LANDMARK"


Window = RangeWindow | RowsWindow | TumbleWindow | LandmarkWindow


def check_length(length_us: int) -> None:
    """Refuse negative lengths, and lengths with which window arithmetic would leave int64."""
    if length_us < 0:
        raise QueryError(f"a window must not be negative, got {format_sql_duration(length_us)}")
    if length_us > MAX_LENGTH_US:
        raise QueryError(f"a window of {length_us} microseconds is too long", hint="the longest is about 18,000 years")


def check_every(interval_us: int) -> None:
    """Refuse intervals of EVERY that define no instants, or that are too long."""
    if interval_us <= 0:
        raise QueryError("EVERY takes a length above zero")
    check_length(interval_us)


def format_sql_duration(length_us: int) -> str:
    """Return a length in the largest unit that divides it, and 0 in seconds.

    >>> [format_sql_duration(length_us) for length_us in (5_000_000, 3_600_000_000, 1_500, 0)]
    ['5 SECONDS', '1 HOUR', '1500 MICROSECONDS', '0 SECONDS']
    """
    if length_us == 0:
        return "0 SECONDS"
    for unit, size_us in sorted(UNITS_US.items(), key=lambda item: -item[1]):
        if length_us % size_us == 0:
            count = length_us // size_us
            return f"{count} {unit}" if count == 1 else f"{count} {unit}S"
    raise AssertionError("every length is a number of microseconds")


@dataclass(frozen=True, slots=True)
class DifferenceBounds:
    """Bounds between the times of all pairs; FOREVER_US means unbounded.

    `later_by_us[i][j]` is the most by which a row of j can be later than the row of i that it matches. `close_bounds`
    closes the bounds under shortest paths. A negative cycle cannot occur: every bound is at least zero.

    >>> chain = close_bounds([[0, 5, FOREVER_US], [5, 0, 3], [FOREVER_US, 3, 0]])
    >>> chain.later_by_us[0][2]
    8
    """

    later_by_us: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.later_by_us)
        if any(len(row) != size for row in self.later_by_us):
            raise InternalError("difference bounds must be square")
        if any(self.later_by_us[i][j] < 0 for i in range(size) for j in range(size)):
            raise InternalError("a difference bound below zero")

    def __len__(self) -> int:
        return len(self.later_by_us)

    def retention_us(self, i: int, streams: list[int]) -> int:
        """Return how long after its own time a row of i can still match a new row of one of the other `streams`."""
        return max((self.later_by_us[i][j] for j in streams if j != i), default=0)

    def symmetric_us(self, i: int, j: int) -> int:
        """Return the largest distance in time in either direction: the paper's window of the pair."""
        return max(self.later_by_us[i][j], self.later_by_us[j][i])


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
