"""Seeded workloads: a window join and its rows. The same seed gives the same rows on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet_lab.bench.portable_joins import PortableJoin, SlidingWindow

ALIASES = "abcdefgh"
TIME_COLUMNS = frozenset({"ts", "expires", "as_of"})
SECOND_US = 1_000_000
MIN_BATCHES = 3
#: Streams start long after the epoch, because Spark and Flink treat rows at the epoch as late.
START_US = 1_000 * SECOND_US


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """A join over streams that arrive in time order; batch n of every stream covers about the same time.

    Times are microseconds. `make` returns the rows of a stream by its name. `note` is a remark on the comparison for
    the reader.
    """

    name: str
    join: PortableJoin
    make: Callable[[str], pa.Table]
    batches: int
    seed: int = 0
    note: str = ""
    excluded_peers: Mapping[str, str] = field(default_factory=dict)  # peers that do not run, and the reason

    def __post_init__(self) -> None:
        if self.batches < MIN_BATCHES:
            raise InputError(
                f"{self.name}: at least {MIN_BATCHES} batches are needed because the first one warms up, got "
                f"{self.batches}"
            )

    def tables(self) -> dict[str, pa.Table]:
        return {name: self.make(name) for name in self.join.streams}


def first_rows(tables: Mapping[str, pa.Table], rows: int) -> dict[str, pa.Table]:
    """Return the first `rows` rows of the longest stream, and the rows of the others up to about the same time."""
    most = max(table.num_rows for table in tables.values())
    return {name: table.slice(0, rows * table.num_rows // max(rows, most)) for name, table in tables.items()}


@dataclass(frozen=True, slots=True)
class RandomStream:
    """A stream at uniformly random times, in order.

    `columns` gives each column its number of values. A column with n values holds random integers from 0 to n − 1. `id`
    holds the row number. `hot_share` of the rows have 0 in every column: the hot key.
    """

    rows: int
    rows_per_s: int
    columns: Mapping[str, int]
    hot_share: float = 0.0

    def table(self, seed: int, number: int) -> pa.Table:
        rng = np.random.default_rng([seed, number])
        times = START_US + np.sort(rng.integers(0, self.rows * SECOND_US // self.rows_per_s, self.rows))
        columns = {name: rng.integers(0, count, self.rows) for name, count in self.columns.items()}
        if self.hot_share:
            hot = rng.random(self.rows) < self.hot_share
            columns = {name: np.where(hot, 0, values) for name, values in columns.items()}
        columns = {"ts": times, **columns, "id": np.arange(self.rows)}
        return pa.table({name: pa.array(values) for name, values in columns.items()})


def stream_tables(streams: Mapping[str, RandomStream], seed: int = 0) -> Callable[[str], pa.Table]:
    """Return a function that generates the rows of a stream by its name."""
    numbers = {name: number for number, name in enumerate(streams)}
    return lambda name: streams[name].table(seed, numbers[name])


@dataclass(frozen=True, slots=True)
class CommonKeyStreams:
    """Streams of three int64 columns (`ts`, `k`, `id`) in time order.

    They join on `k` over equal RANGE windows of `window_s`, or of `window_us` if that is not 0.
    """

    stream_count: int = 2
    rows: int = 4_000_000
    keys: int = 500_000
    rows_per_s: int = 50_000
    window_s: int = 10
    seed: int = 0
    hot_share: float = 0.0
    window_us: int = 0

    @property
    def aliases(self) -> str:
        return ALIASES[: self.stream_count]

    def tables(self) -> dict[str, pa.Table]:
        return {alias: self.table(alias) for alias in self.aliases}

    def table(self, alias: str) -> pa.Table:
        return RandomStream(self.rows, self.rows_per_s, {"k": self.keys}, self.hot_share).table(
            self.seed, self.aliases.index(alias)
        )

    def join(self) -> PortableJoin:
        """Return the join on `k` that outputs `k` of the first stream, and `ts` and `id` of every stream."""
        outputs = (
            ("a.k", "k"),
            *((f"{alias}.{name}", f"{alias}_{name}") for alias in self.aliases for name in ("ts", "id")),
        )
        window = SlidingWindow(self.window_us or self.window_s * SECOND_US)
        return PortableJoin(
            {alias: alias for alias in self.aliases},
            window,
            outputs,
            tuple(("a.k", f"{alias}.k") for alias in self.aliases[1:]),
        )

    def query(self) -> str:
        return self.join().to_watersmeet_sql()

    def workload(self, name: str, batches: int, note: str = "") -> JoinWorkload:
        return JoinWorkload(name, self.join(), self.table, batches, self.seed, note)
