"""The NEXMark benchmark: a generator of the auction site's events, and its queries over joins.

Of 50 events, 1 is a new person, 3 are new auctions and 46 are bids. Half of the bids go to one hot auction among the
latest; three quarters come from one hot bidder; the others spread over the open auctions. Event times advance by `1 /
events_per_s` per event.

Each query is a window join that Watersmeet, Spark, Flink and DuckDB answer with the same rows. NEXMark's own queries 9,
20 and 23 join without any window and never evict a row; here a bid looks back a bounded time. Watersmeet has no
subqueries, so all systems skip what NEXMark does to the join's result afterwards, and `note` names it.

References: P. Tucker, K. Tufte, V. Papadimos, D. Maier, "NEXMark: a benchmark for queries over data streams", 2002;
queries 20 and 23 come from the benchmark's version for Flink.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet_lab.bench.join_workloads import MIN_BATCHES, SECOND_US, START_US, JoinWorkload
from watersmeet_lab.bench.portable_joins import JoinAggregate, LookBackWindow, PortableJoin, TumblingTile

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PEOPLE + AUCTIONS + BIDS
FIRST_PERSON, FIRST_AUCTION, FIRST_CATEGORY = 1_000, 1_000, 10
CATEGORIES = 5
ACTIVE_PEOPLE, OPEN_AUCTIONS = 1_000, 100
_NAMES = ("Ada", "Boris", "Chen", "Dana", "Emil", "Fatou", "Goran", "Hana")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
WINDOW_US = 10 * SECOND_US
TILE_US = SECOND_US
#: Look-back for auctions of the bidder. It is short because the hot seller opens most auctions.
LISTING_WINDOW_US = 1_000

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NexmarkSite:
    """The three streams of `events` events. Equal fields give equal rows on every machine.

    >>> site = NexmarkSite(events=100)
    >>> site.people().num_rows, site.auctions().num_rows, site.bids().num_rows
    (2, 6, 92)
    """

    events: int = 5_000_000
    events_per_s: int = 50_000
    seed: int = 0
    offset_us: int = 0  # time of the first event

    def tables(self) -> dict[str, pa.Table]:
        return {name: self.table(name) for name in ("person", "auction", "bid")}

    def table(self, name: str) -> pa.Table:
        return {"person": self.people, "auction": self.auctions, "bid": self.bids}[name]()

    def people(self) -> pa.Table:
        at = np.flatnonzero(self._kind < PEOPLE)
        rng = np.random.default_rng([self.seed, 1])
        number = np.arange(at.size)
        return pa.table(
            {
                "ts": pa.array(self._times(at)),
                "id": pa.array(FIRST_PERSON + number),
                "name": _choose_words(_NAMES, rng, at.size),
                "state": _choose_words(_STATES, rng, at.size),
            }
        )

    def auctions(self) -> pa.Table:
        at = np.flatnonzero((self._kind >= PEOPLE) & (self._kind < PEOPLE + AUCTIONS))
        rng = np.random.default_rng([self.seed, 2])
        times = self._times(at)
        newest_person = self._people_before(at)
        return pa.table(
            {
                "ts": pa.array(times),
                "id": pa.array(FIRST_AUCTION + np.arange(at.size)),
                "seller": pa.array(
                    FIRST_PERSON + _choose_recent(rng, newest_person, ACTIVE_PEOPLE, hot_share=0.75, hot_every=100)
                ),
                "category": pa.array(FIRST_CATEGORY + rng.integers(0, CATEGORIES, at.size)),
                "reserve": pa.array(rng.integers(100, 10_000, at.size)),
                "expires": pa.array(times + rng.integers(1, 2 * self._open_us, at.size)),
            }
        )

    def bids(self) -> pa.Table:
        at = np.flatnonzero(self._kind >= PEOPLE + AUCTIONS)
        rng = np.random.default_rng([self.seed, 3])
        return pa.table(
            {
                "ts": pa.array(self._times(at)),
                "auction": pa.array(
                    FIRST_AUCTION
                    + _choose_recent(rng, self._auctions_before(at), OPEN_AUCTIONS, hot_share=0.5, hot_every=100)
                ),
                "bidder": pa.array(
                    FIRST_PERSON
                    + _choose_recent(rng, self._people_before(at), ACTIVE_PEOPLE, hot_share=0.75, hot_every=100)
                ),
                "price": pa.array(np.exp(rng.uniform(np.log(100), np.log(1_000_000), at.size)).astype(np.int64)),
            }
        )

    @cached_property
    def _kind(self) -> Ints:
        return np.arange(self.events) % EVENTS

    @property
    def _open_us(self) -> int:
        """Mean time an auction stays open: the time in which `OPEN_AUCTIONS` auctions open."""
        return OPEN_AUCTIONS * EVENTS // AUCTIONS * 1_000_000 // self.events_per_s

    def _times(self, at: Ints) -> Ints:
        return at * 1_000_000 // self.events_per_s + self.offset_us

    def _people_before(self, at: Ints) -> Ints:
        """Return the number of the newest person at each event.

        The very first events may name the first person before that person registers.
        """
        return at // EVENTS * PEOPLE

    def _auctions_before(self, at: Ints) -> Ints:
        return at // EVENTS * AUCTIONS + AUCTIONS - 1


def _choose_recent(rng: np.random.Generator, newest: Ints, active: int, *, hot_share: float, hot_every: int) -> Ints:
    """Choose one of the last `active` numbers up to the newest.

    With probability `hot_share`, choose the latest multiple of `hot_every`.
    """
    hot = newest // hot_every * hot_every
    spread = newest - np.minimum(rng.integers(0, active, newest.size), newest)
    return np.where(rng.random(newest.size) < hot_share, hot, spread)


def _choose_words(words: tuple[str, ...], rng: np.random.Generator, rows: int) -> pa.Array[Any]:
    return pa.DictionaryArray.from_arrays(rng.integers(0, len(words), rows).astype(np.int32), pa.array(words)).cast(
        pa.string()
    )


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """The join of a query, the number of events it reads, and what it omits from NEXMark's query."""

    join: PortableJoin
    events: int
    note: str
    batches: int = 4


def _alias_columns(alias: str, *columns: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{alias}.{column}", f"{alias}_{column}") for column in columns)


QUERIES = {
    4: NexmarkQuery(
        PortableJoin(
            {"b": "bid", "a": "auction"},
            TumblingTile(TILE_US),
            (("a.category", "category"),),
            equal=(("b.auction", "a.id"),),
            where=("b.ts >= a.ts", "b.ts <= a.expires"),
            aggregates=(JoinAggregate("AVG", "b.price", "price"), JoinAggregate("MAX", "b.price", "highest")),
        ),
        5_000_000,
        "average and highest bid per category and second, over bids on auctions opened in the same second; NEXMark "
        "first takes the highest bid of each auction, and has no window",
    ),
    7: NexmarkQuery(
        PortableJoin(
            {"b": "bid"},
            TumblingTile(TILE_US),
            (),
            aggregates=(JoinAggregate("MAX", "b.price", "price"), JoinAggregate("COUNT", "b.price", "bids")),
        ),
        10_000_000,
        "highest price and number of bids per tumbling window of one second; NEXMark joins the price back to its bids",
    ),
    8: NexmarkQuery(
        PortableJoin(
            {"a": "auction", "p": "person"},
            TumblingTile(WINDOW_US),
            (("p.id", "person"), ("p.name", "name"), *_alias_columns("a", "id", "ts")),
            equal=(("a.seller", "p.id"),),
        ),
        100_000_000,
        "people with each auction they opened in the ten-second tumbling window in which they registered; NEXMark "
        "lists each person once",
    ),
    9: NexmarkQuery(
        PortableJoin(
            {"b": "bid", "a": "auction"},
            LookBackWindow({"a": WINDOW_US}),
            (
                *_alias_columns("a", "id", "seller", "category", "reserve", "ts", "expires"),
                *_alias_columns("b", "bidder", "price", "ts"),
            ),
            equal=(("b.auction", "a.id"),),
            where=("b.ts <= a.expires",),
        ),
        20_000_000,
        "every bid on an open auction, at most ten seconds after it opened; NEXMark keeps the highest of each auction",
    ),
    20: NexmarkQuery(
        PortableJoin(
            {"b": "bid", "a": "auction"},
            LookBackWindow({"a": WINDOW_US}),
            (
                *_alias_columns("b", "auction", "bidder", "price", "ts"),
                *_alias_columns("a", "seller", "category", "reserve", "ts", "expires"),
            ),
            equal=(("b.auction", "a.id"),),
            where=(f"a.category = {FIRST_CATEGORY}",),
        ),
        40_000_000,
        "bids with their auction, for one of five categories, at most ten seconds after it opened; NEXMark has no "
        "window",
        batches=6,
    ),
    23: NexmarkQuery(
        PortableJoin(
            {"b": "bid", "a": "auction", "p": "person"},
            LookBackWindow({"a": LISTING_WINDOW_US, "p": WINDOW_US}),
            (
                *_alias_columns("b", "auction", "price", "ts"),
                *_alias_columns("p", "id", "name", "state"),
                *_alias_columns("a", "id", "category", "reserve", "expires"),
            ),
            equal=(("b.bidder", "a.seller"), ("b.bidder", "p.id")),
        ),
        5_000_000,
        "bids of people with an auction they opened at most one millisecond before, at most ten seconds after they"
        " registered; NEXMark has no window",
    ),
}


def nexmark_workload(number: int, scale: float = 1.0) -> JoinWorkload:
    """Build a query over the site's events.

    Times are offset by half the distance of two events, so that none falls on the instant between two windows. They
    start long after the epoch, because Spark and Flink treat rows at the epoch as late.
    """
    query = QUERIES[number]
    site = NexmarkSite(events=max(5_000, round(query.events * scale)), offset_us=START_US + 10)
    batches = max(MIN_BATCHES, round(query.batches * min(1.0, scale)))
    return JoinWorkload(f"nexmark-{number}", query.join, site.table, batches, site.seed, query.note)
