"""Arrival times: the rows of a stream without a time column get the time at which their batch was read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from watersmeet.errors import InputError

#: Name of the column that holds the time of arrival.
ARRIVAL_COLUMN = "arrival_time"
ARRIVAL_FIELD = pa.field(ARRIVAL_COLUMN, pa.timestamp("us", "UTC"))
#: Expression by which Spark stamps the rows of a frame. A stream's replayed batch gets the same time again.
SPARK_STAMP = f"current_timestamp() AS {ARRIVAL_COLUMN}"


class ArrivalTime(Enum):
    """Type of `ARRIVAL`."""

    ARRIVAL = "ARRIVAL"


#: In place of a time column: rows are stamped on arrival.
ARRIVAL: Final = ArrivalTime.ARRIVAL


@dataclass
class ArrivalClock:
    """Clock of one stream, in microseconds since 1970. It never goes back, even if the machine's clock does."""

    latest_us: int = 0

    def read_us(self) -> int:
        self.latest_us = max(self.latest_us, time.time_ns() // 1_000)
        return self.latest_us


def add_arrival_field(schema: pa.Schema) -> pa.Schema:
    """Return the schema of stamped rows.

    >>> add_arrival_field(pa.schema({"item": pa.string()})).names
    ['item', 'arrival_time']
    """
    if ARRIVAL_COLUMN in schema.names:
        raise InputError(
            f'rows stamped on arrival get a column "{ARRIVAL_COLUMN}", but the source already has one',
            hint=f'rename the column, or use it as the event time: time="{ARRIVAL_COLUMN}"',
        )
    return schema.append(ARRIVAL_FIELD)


def stamp_rows(table: pa.Table, arrived_us: int) -> pa.Table:
    """Return the rows with the time at which they arrived.

    >>> stamp_rows(pa.table({"item": ["pen"]}), 1_000_000).column("arrival_time")[0].as_py().second
    1
    """
    schema = add_arrival_field(table.schema)
    stamp = pa.scalar(arrived_us, ARRIVAL_FIELD.type)
    return pa.table([*table.columns, pa.repeat(stamp, table.num_rows)], schema=schema)
