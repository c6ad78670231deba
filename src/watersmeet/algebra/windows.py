"""Windows: the rows of a stream that are valid at an instant.

Every window kind gives each row a validity interval `[ts, end]`: the instants at which the row is inside. A combination
of rows is a result when the largest `ts` among them lies in every row's interval. The join kernels know nothing else
about windows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.schema import quote_name
from watersmeet.errors import QueryError

Int64s = NDArray[np.int64]

#: Instants beyond every real one. Times are refused outside ±MAX_TIME_US and lengths above MAX_LENGTH_US, so that sums
#: of a time and a few lengths never leave int64.
FOREVER_US = 2**62
MAX_TIME_US = 2**60
MAX_LENGTH_US = 2**59

#: Assumed age of a window without end when its state is estimated: a day.
LANDMARK_US = 86_400_000_000

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
class RowLimit:
    """Most rows of a stream, or of each partition of it, in a window: one row more pushes the oldest one out."""

    count: int
    partition_by: tuple[str, ...] = ()


class Window(ABC):
    """A window kind: the validity of its rows, its text, and the facts that planners and operators ask for.

    Nothing outside the algebra, the grammar and the oracle asks which kind a window is. So a new kind is a class here
    and a rule in `sql.clauses`. The defaults suit a kind whose rows end at instants that depend on their times.
    `every_us` is the interval of EVERY in an aggregation, None in joins and in aggregations without EVERY.
    """

    __slots__ = ()

    #: Name of the kind in JSON.
    kind: ClassVar[str]
    #: Whether rows store the last instant of their validity. False where `longest_validity_us` holds for every row, so
    #: that bounds between times express it.
    stores_ends: ClassVar[bool] = True
    #: Whether rows leave one by one, so that an aggregation handles every row twice: when it enters and when it leaves.
    slides: ClassVar[bool] = True

    @abstractmethod
    def __str__(self) -> str:
        """Return the SQL text between the brackets."""

    @abstractmethod
    def longest_validity_us(self, every_us: int | None) -> int:
        """Return how long after its time a row may still be in the window; FOREVER_US if nothing but rows end it."""

    @abstractmethod
    def row_ends_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        """Return the last instant at which each row is in the window."""

    def row_starts_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        """Return the first instant at which each row is in the window."""
        return times_us

    def last_instant_us(self, largest_us: int) -> int:
        """Return the last instant of EVERY when a finite input ends, given its largest time."""
        return largest_us

    def covering_window(self, every_us: int | None) -> Window:
        """Return the window of a join that finds all combinations of an aggregation, and maybe surplus ones."""
        return self

    @property
    def tile_us(self) -> int | None:
        """Length of the tiles that partition time; None if the window has none."""
        return None

    # --- columns and counted rows

    @property
    def row_limit(self) -> RowLimit | None:
        """Most rows of the window, if later rows push out earlier ones. Then rows wait for the watermark."""
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the stream that decide about the window, besides the time."""
        return ()

    def resolve_columns(self, resolve: Callable[[str], str]) -> Window:
        """Return the window with the columns as declared. `resolve` maps a name as written to the declared one."""
        return self

    # --- facts for plans and pages

    @property
    def fixed_length_us(self) -> int | None:
        """Length for which every row stays in the window; None where rows differ or never leave."""
        return None

    def mean_filled_us(self, kept_us: int, every_us: int | None) -> float:
        """Return the length of stream whose rows the window holds, averaged over the instants of evaluation.

        Rows are evicted `kept_us` after their time at the latest. Length 0 covers one instant, a microsecond: it has
        few rows, but the estimate is never zero.
        """
        return max(1, min(kept_us, self.longest_validity_us(every_us)))

    @property
    def size(self) -> int | None:
        """Number that a what-if question may change: rows with a `row_limit`, otherwise microseconds. None: nothing."""
        return None

    def resize(self, size: int) -> Window:
        """Return the window with another size."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the window as JSON values."""
        return {"kind": self.kind, **self._facts(), "text": str(self)}

    def _facts(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class RangeWindow(Window):
    """Rows of the last `length_us` microseconds: `t - length_us <= ts <= t`. With length 0, the rows of the instant."""

    length_us: int

    kind: ClassVar[str] = "range"
    stores_ends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_length(self.length_us)

    def __str__(self) -> str:
        return f"RANGE {format_sql_duration(self.length_us)}"

    def longest_validity_us(self, every_us: int | None) -> int:
        return self.length_us

    def row_ends_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        return times_us + self.length_us

    @property
    def fixed_length_us(self) -> int:
        return self.length_us

    @property
    def size(self) -> int:
        return self.length_us

    def resize(self, size: int) -> RangeWindow:
        return RangeWindow(size)

    def _facts(self) -> dict[str, Any]:
        return {"length_us": self.length_us}


@dataclass(frozen=True, slots=True)
class RowsWindow(Window):
    """The last `count` rows of the stream, or per value of `partition_by`, among those with `ts <= t`.

    A row ends just before the row that pushes it out (`operators.window_join.row_counter`).
    """

    count: int
    partition_by: tuple[str, ...] = ()

    kind: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        if not 1 <= self.count < 2**31:
            raise QueryError(f"a ROWS window holds between 1 and {2**31 - 1} rows, got {self.count}")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise QueryError("a column appears twice in PARTITION BY")

    def __str__(self) -> str:
        columns = ", ".join(quote_name(name) for name in self.partition_by)
        return f"PARTITION BY {columns} ROWS {self.count}" if columns else f"ROWS {self.count}"

    def longest_validity_us(self, every_us: int | None) -> int:
        return FOREVER_US

    def row_ends_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        return np.full(times_us.size, FOREVER_US, np.int64)

    @property
    def row_limit(self) -> RowLimit:
        return RowLimit(self.count, self.partition_by)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.partition_by

    def resolve_columns(self, resolve: Callable[[str], str]) -> RowsWindow:
        return RowsWindow(self.count, tuple(resolve(name) for name in self.partition_by))

    @property
    def size(self) -> int:
        return self.count

    def resize(self, size: int) -> RowsWindow:
        return RowsWindow(size, self.partition_by)

    def _facts(self) -> dict[str, Any]:
        return {"rows": self.count, "partition_by": list(self.partition_by)}


@dataclass(frozen=True, slots=True)
class TumbleWindow(Window):
    """Rows since the last multiple of `length_us`: `⌊t/length⌋·length <= ts <= t`.

    With EVERY, the window shows its finished tile: a row of tile k (`kT <= ts < (k + 1)T`) is valid during
    `[max(ts, kT + 1 µs), (k + 1)T]`. So the instant at which a tile ends sees all of that tile and nothing of the next.
    Otherwise, a row of tile k is valid during `[ts, (k + 1)T - 1 µs]`.

    >>> tiles, times_us = TumbleWindow(10), np.array([-10, 0, 5])
    >>> tiles.row_starts_us(times_us, every_us=10).tolist(), tiles.row_starts_us(times_us, every_us=None).tolist()
    ([-9, 1, 5], [-10, 0, 5])
    >>> tiles.row_ends_us(times_us, every_us=10).tolist(), tiles.row_ends_us(times_us, every_us=None).tolist()
    ([0, 10, 10], [-1, 9, 9])
    """

    length_us: int

    kind: ClassVar[str] = "tumble"
    slides: ClassVar[bool] = False

    @property
    def tile_us(self) -> int:
        return self.length_us

    def __post_init__(self) -> None:
        check_length(self.length_us)
        if self.length_us == 0:
            raise QueryError(
                "a TUMBLE window must be longer than zero", hint="[RANGE 0 SECONDS] contains the rows of one instant"
            )

    def __str__(self) -> str:
        return f"TUMBLE {format_sql_duration(self.length_us)}"

    def longest_validity_us(self, every_us: int | None) -> int:
        return self.length_us if every_us is not None else self.length_us - 1

    def row_ends_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        next_tile_us = (times_us // self.length_us + 1) * self.length_us
        return next_tile_us if every_us is not None else next_tile_us - 1

    def row_starts_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        return times_us if every_us is None else np.where(times_us % self.length_us == 0, times_us + 1, times_us)

    def last_instant_us(self, largest_us: int) -> int:
        """Return the end of the tile that contains the largest time.

        >>> TumbleWindow(10).last_instant_us(23), TumbleWindow(10).last_instant_us(30)
        (30, 40)
        """
        return (largest_us // self.length_us + 1) * self.length_us

    def covering_window(self, every_us: int | None) -> Window:
        """Return a range as long as a tile with EVERY, because a join of tiles leaves out the very end of a tile."""
        return self if every_us is None else RangeWindow(self.length_us)

    def mean_filled_us(self, kept_us: int, every_us: int | None) -> float:
        """Return the mean filled length of a tile: half of it, or, with EVERY, the mean over the evaluation instants.

        The instants fall equally often on the multiples of the greatest common divisor in the tile, its end included.

        >>> [TumbleWindow(60).mean_filled_us(FOREVER_US, every_us) for every_us in (None, 60, 20, 7)]
        [30.0, 60.0, 40.0, 30.5]
        """
        return (self.length_us + (0 if every_us is None else math.gcd(self.length_us, every_us))) / 2

    @property
    def size(self) -> int:
        return self.length_us

    def resize(self, size: int) -> TumbleWindow:
        return TumbleWindow(size)

    def _facts(self) -> dict[str, Any]:
        return {"length_us": self.length_us}


@dataclass(frozen=True, slots=True)
class LandmarkWindow(Window):
    """Every row so far: `ts <= t`. The caller requests unbounded state explicitly."""

    kind: ClassVar[str] = "landmark"
    stores_ends: ClassVar[bool] = False
    slides: ClassVar[bool] = False

    def __str__(self) -> str:
        return "LANDMARK"

    def longest_validity_us(self, every_us: int | None) -> int:
        return FOREVER_US

    def row_ends_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        return np.full(times_us.size, FOREVER_US, np.int64)

    def mean_filled_us(self, kept_us: int, every_us: int | None) -> float:
        return LANDMARK_US


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
