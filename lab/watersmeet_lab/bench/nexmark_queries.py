"""NEXMark's queries over joins, each as a window join that ours, Spark, Flink and DuckDB all answer with the same rows.

NEXMark's own 9, 20 and 23 join without any window and keep every row for ever; here a bid looks back a bounded time.
Ours has no query inside a query, so what NEXMark does to the join's result afterwards is left out for all systems
alike, and `said` tells what.

References: P. Tucker, K. Tufte, V. Papadimos, D. Maier, "NEXMark: a benchmark for queries over data streams", 2002;
queries 20 and 23 are additions of the benchmark's version for Flink.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet_lab.bench.joins import JoinAggregate, LookBackWindow, PortableJoin, TumblingTile
from watersmeet_lab.bench.nexmark import FIRST_CATEGORY, NexmarkSite
from watersmeet_lab.bench.workloads import MIN_BATCHES, SECOND_US, START_US, JoinWorkload

WINDOW_US = 10 * SECOND_US
TILE_US = SECOND_US
#: So many auctions of one seller are open within it as a person's bid is to meet; the hot seller opens most of them.
LISTING_WINDOW_US = 1_000


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query's join, how many events of the site it is asked about, and what it leaves out of NEXMark's."""

    join: PortableJoin
    events: int
    said: str
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
        "average and highest bid per category and tumbling window of a second, over bids on auctions opened in the same window; NEXMark"
        " first takes the highest bid of each auction, and has no window",
    ),
    7: NexmarkQuery(
        PortableJoin(
            {"b": "bid"},
            TumblingTile(TILE_US),
            (),
            aggregates=(JoinAggregate("MAX", "b.price", "price"), JoinAggregate("COUNT", "b.price", "bids")),
        ),
        10_000_000,
        "the highest price and the number of bids per tumbling window of a second; NEXMark joins the price back to the bids that made it",
    ),
    8: NexmarkQuery(
        PortableJoin(
            {"a": "auction", "p": "person"},
            TumblingTile(WINDOW_US),
            (("p.id", "person"), ("p.name", "name"), *_alias_columns("a", "id", "ts")),
            equal=(("a.seller", "p.id"),),
        ),
        100_000_000,
        "people with each auction they opened in the tumbling window of ten seconds in which they registered; NEXMark names each once",
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
        "every bid made while its auction was open, at most ten seconds after it opened; NEXMark keeps the highest of each auction",
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
        "bids with their auction where its category is one of five, at most ten seconds after it opened; NEXMark has no window",
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
        "bids of people with an auction they opened at most a millisecond before, at most ten seconds after they registered; NEXMark has no"
        " window",
    ),
}


def nexmark_workload(number: int, scale: float = 1.0) -> JoinWorkload:
    """A query over the site's events. Half an event's distance keeps every time off the instants between two windows,
    and the epoch, whose rows Spark and Flink take for late, is long past.
    """
    asked = QUERIES[number]
    site = NexmarkSite(events=max(5_000, round(asked.events * scale)), offset_us=START_US + 10)
    batches = max(MIN_BATCHES, round(asked.batches * min(1.0, scale)))
    return JoinWorkload(f"nexmark-{number}", asked.join, site.table, batches, site.seed, asked.said)
