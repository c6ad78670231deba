"""Late rows, batch by batch, by the definition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import pyarrow as pa

from tests.oracle.values import event_times_us

_BEFORE_EVERYTHING = -math.inf
_MILLISECOND_US = 1_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """Arrival of a stream: its batches in order, its lateness, and its idle timeout (None: no timeout).

    `unit` is the unit of integer times; None means microseconds.
    """

    time: str
    batches: Sequence[pa.Table]
    lateness_us: int = 0
    idle_us: int | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Result of the arrivals: per stream, the rows that are joined and the number of late rows.

    `watermarks_us` has the query's watermark at the start of each round, and finally the one after all rounds.
    """

    tables: dict[str, pa.Table]
    late: dict[str, int]
    watermarks_us: tuple[float, ...]


@dataclass(slots=True)
class _StreamProgress:
    """State of a stream after its earlier batches."""

    arrival: Arrival
    largest_us: int | None = None
    kept: list[pa.Table] = field(default_factory=list)
    late: int = 0

    @property
    def watermark_us(self) -> float:
        if self.largest_us is None:
            return _BEFORE_EVERYTHING
        return self.largest_us // _MILLISECOND_US * _MILLISECOND_US - self.arrival.lateness_us

    def times_us(self, batch: pa.Table) -> list[int]:
        return event_times_us(batch.column(self.arrival.time), self.arrival.unit)

    def take(self, batch: pa.Table, watermark_us: float) -> None:
        times_us = self.times_us(batch)
        on_time = [ts_us >= watermark_us for ts_us in times_us]
        self.kept.append(batch.filter(pa.array(on_time, pa.bool_())))
        self.late += len(times_us) - sum(on_time)
        self.largest_us = max((time for time in (self.largest_us, *times_us) if time is not None), default=None)


def admit(arrivals: Mapping[str, Arrival]) -> Admission:
    """Admit the rows of all arrivals.

    Round r brings the r-th batch of every stream. A row is late if its time is below the watermark at the start of its
    round.
    """
    streams = {name: _StreamProgress(arrival) for name, arrival in arrivals.items()}
    watermarks_us = [_BEFORE_EVERYTHING]
    began_us: int | None = None
    for batches in zip_longest(*(arrival.batches for arrival in arrivals.values())):
        brought = [
            (stream, batch) for stream, batch in zip(streams.values(), batches, strict=True) if batch is not None
        ]
        for stream, batch in brought:
            stream.take(batch, watermarks_us[-1])
        if began_us is None:
            began_us = min((time for stream, batch in brought for time in stream.times_us(batch)), default=None)
        watermarks_us.append(max(watermarks_us[-1], query_watermark_us(list(streams.values()), began_us)))
    return Admission(
        tables={name: pa.concat_tables(stream.kept) for name, stream in streams.items()},
        late={name: stream.late for name, stream in streams.items()},
        watermarks_us=tuple(watermarks_us),
    )


def query_watermark_us(streams: Sequence[_StreamProgress], began_us: int | None) -> float:
    """Return the smallest watermark of the streams that are not idle."""
    clock_us = max((stream.largest_us for stream in streams if stream.largest_us is not None), default=None)
    if clock_us is None or began_us is None:
        return _BEFORE_EVERYTHING
    return min(stream.watermark_us for stream in streams if not _is_idle(stream, clock_us, began_us))


def _is_idle(stream: _StreamProgress, clock_us: int, began_us: int) -> bool:
    """Return whether a stream is idle.

    A stream is idle if its last time is more than its timeout behind the largest event time of any stream. A stream
    without rows counts from the smallest time of the first round that brought any. The stream with the largest time is
    never idle, so at least one is not.
    """
    alive_us = began_us if stream.largest_us is None else stream.largest_us
    return stream.arrival.idle_us is not None and clock_us - alive_us > stream.arrival.idle_us
