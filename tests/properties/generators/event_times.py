"""Times at the starts and ends of windows."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias, cast

import pyarrow as pa

_DAY_US = 86_400_000_000
_UNIT_WORDS = {1: "MICROSECOND", 1_000: "MILLISECOND", 1_000_000: "SECOND", 60_000_000: "MINUTE", _DAY_US: "DAY"}
_FAR_US = 2**50


@dataclass(frozen=True, slots=True)
class CountedTime:
    """Integer times in a declared unit."""

    type: pa.DataType
    unit: str


TimeKind: TypeAlias = "pa.DataType | CountedTime"

_EXACT_TYPES: tuple[TimeKind, ...] = (
    CountedTime(pa.int64(), "us"),
    CountedTime(pa.int64(), "ns"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us", "America/New_York"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
)
_PER_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class EventTimeline:
    """Times of `base_us` plus up to `steps` units; windows have lengths in the same unit, so edges are common.

    `jitter` moves some times by one microsecond, `far` moves some by decades.
    """

    base_us: int
    unit_us: int
    steps: int
    jitter: bool
    far: bool
    types: tuple[TimeKind, ...]

    @property
    def unit(self) -> str:
        return _UNIT_WORDS[self.unit_us]

    def length(self, rng: Random) -> str:
        """Return a window length as the query writes it: like the length of a tile, or sometimes 0."""
        return self._length(rng, zero_share=0.08)

    def tile(self, rng: Random) -> str:
        """Return the length of a TUMBLE window: a few units, sometimes one microsecond off, or very long."""
        return self._length(rng, zero_share=0.0)

    def _length(self, rng: Random, zero_share: float) -> str:
        count = rng.choice((1, 1, 2, 2, 3, 4, 6))
        draw = rng.random()
        if draw < 0.05:
            return "5000 WEEKS"
        if draw < 0.15 and self.unit_us > 1:
            return f"{count * self.unit_us + rng.choice((-1, 1))} MICROSECONDS"
        if 0.15 <= draw < 0.15 + zero_share:
            return f"0 {self.unit}S"
        return f"{count} {self.unit}{'S' if count > 1 and draw < 0.6 else ''}"

    def time_us(self, rng: Random) -> int:
        time_us = self.base_us + rng.randrange(self.steps) * self.unit_us
        if self.jitter and rng.random() < 0.3:
            time_us += rng.choice((-1, 1))
        if self.far and rng.random() < 0.2:
            time_us += rng.choice((-_FAR_US, _FAR_US))
        return time_us

    def column(self, rng: Random, rows: int) -> tuple[pa.Array[Any], str | None]:
        """Return a time column in one of the timeline's types, with its unit if it has integers.

        A time that the type cannot hold is rounded down.
        """
        kind = rng.choice(self.types)
        counts = [_count(rng, self.time_us(rng), kind) for _ in range(rows)]
        return (
            (pa.array(counts, kind.type), kind.unit)
            if isinstance(kind, CountedTime)
            else (from_counts(counts, kind), None)
        )


def choose_event_timeline(rng: Random, crowd: int = 1) -> EventTimeline:
    """Choose a timeline for tables `crowd` times as long as usual."""
    unit_us = rng.choices((1, 1_000, 1_000_000, 60_000_000, _DAY_US), (6, 2, 3, 1, 1))[0]
    types: tuple[TimeKind, ...] = _EXACT_TYPES
    if unit_us >= 1_000:
        types += (pa.timestamp("ms"), pa.timestamp("ms", "UTC"), CountedTime(pa.int64(), "ms"))
    if unit_us >= 1_000_000:
        types += (pa.timestamp("s"), CountedTime(pa.int64(), "s"))
    if unit_us == _DAY_US:
        types += (pa.date32(), pa.date64())
    base_us = rng.choice((0, 0, 0, 7, -3 * unit_us, -5, 1_700_000_000_000_000))
    far = rng.random() < 0.1
    if unit_us == 1 and abs(base_us) < 100 and not far:
        types += (CountedTime(pa.int32(), "us"), CountedTime(pa.int16(), "us"))
    return EventTimeline(
        base_us=base_us,
        unit_us=unit_us,
        steps=rng.choice((1, 3, 6, 6, 10, 20)) * crowd,
        jitter=rng.random() < 0.5,
        far=far,
        types=types if rng.random() < 0.5 else (rng.choice(types),),
    )


def _count(rng: Random, time_us: int, kind: TimeKind) -> int:
    """Return the number a time column stores for a time; nanosecond columns get random extra nanoseconds."""
    if not isinstance(kind, CountedTime) and pa.types.is_date32(kind):
        return time_us // _DAY_US
    if not isinstance(kind, CountedTime) and pa.types.is_date64(kind):
        return time_us // _DAY_US * 86_400_000
    unit = kind.unit if isinstance(kind, CountedTime) else cast("pa.TimestampType[Any, Any]", kind).unit
    if unit == "ns":
        return time_us * 1_000 + rng.choice((0, 0, 1, 999))
    return time_us // _PER_UNIT_US[unit]


def from_counts(counts: list[int], kind: pa.DataType) -> pa.Array[Any]:
    """Build a time column from the numbers it stores."""
    return pa.array(counts, _storage(kind)).cast(kind)


def to_counts(column: pa.Array[Any]) -> list[int]:
    counts: pa.Array[Any] = column.cast(_storage(column.type))
    return cast("list[int]", counts.to_pylist())


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()
