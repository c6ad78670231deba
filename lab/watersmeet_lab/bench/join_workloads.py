"""Seeded workloads: a window join and the rows it is asked about. The same number gives the same rows on every machine."""

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
#: Streams start long after the epoch: Spark and Flink take rows at it for late.
START_US = 1_000 * SECOND_US


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """A join over streams that come in so many batches, all of them in time order and in step with each other.

    Times are microseconds; `make` gives the rows of a stream by its name. `note` is what a reader has to know about the
    comparison.
    """

    name: str
    join: PortableJoin
    make: Callable[[str], pa.Table]
    batches: int
    seed: int = 0
    note: str = ""
    excluded_peers: Mapping[str, str] = field(default_factory=dict)  # peers that are not asked, and why

    def __post_init__(self) -> None:
        if self.batches < MIN_BATCHES:
            raise InputError(
                f"{self.name}: the first batch warms up, so there have to be at least {MIN_BATCHES}, not {self.batches}"
            )

    def tables(self) -> dict[str, pa.Table]:
        return {name: self.make(name) for name in self.join.streams}

    def instants_out(self) -> tuple[str, ...]:
        """The columns of a result that are times."""
        return (
            "as_of",
            *(name for expression, name in self.join.outputs if expression.partition(".")[2] in TIME_COLUMNS),
        )


def first_rows(tables: Mapping[str, pa.Table], rows: int) -> dict[str, pa.Table]:
    """The first few rows of each stream, all of them up to about the same time."""
    most = max(table.num_rows for table in tables.values())
    return {name: table.slice(0, rows * table.num_rows // max(rows, most)) for name, table in tables.items()}


@dataclass(frozen=True, slots=True)
class RandomStream:
    """A stream at uniformly random times, in order: whole numbers below a count in each column, and the row's number in
    `id`.

    `hot_share` of the rows have 0 in every column, which is the key that half of everything may go to.
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
        return pa.table({"ts": times, **columns, "id": np.arange(self.rows)})


def stream_tables(streams: Mapping[str, RandomStream], seed: int = 0) -> Callable[[str], pa.Table]:
    """The rows of each stream by its name."""
    numbers = {name: number for number, name in enumerate(streams)}
    return lambda name: streams[name].table(seed, numbers[name])


@dataclass(frozen=True, slots=True)
class CommonKeyStreams:
    """Streams of three int64 columns (`ts`, `k`, `id`) that arrive in time order and join on `k` over equal RANGE
    windows.
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
        """Every column of every stream once; the key of the first stands for all."""
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
