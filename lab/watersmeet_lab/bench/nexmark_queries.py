"""NEXMark's queries over joins, each as a window join that ours, Spark, Flink and DuckDB all answer with the same rows.

NEXMark's own 9, 20 and 23 join without any window and keep every row for ever; here a bid looks back a bounded time.
Ours has no query inside a query, so what NEXMark does to the join's result afterwards is left out for all systems
alike, and `said` tells what.

References: P. Tucker, K. Tufte, V. Papadimos, D. Maier, "NEXMark: a benchmark for queries over data streams", 2002;
queries 20 and 23 are additions of the benchmark's version for Flink.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet_lab.bench.joins import After, Aggregate, Tile, WindowJoin
from watersmeet_lab.bench.nexmark import FIRST_CATEGORY, Nexmark
from watersmeet_lab.bench.workloads import FEWEST_BATCHES, SECOND_US, START_US, Workload

WINDOW_US = 10 * SECOND_US
TALLY_US = SECOND_US
#: So many auctions of one seller are open within it as a person's bid is to meet; the hot seller opens most of them.
LISTED_US = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A query's join, how many events of the site it is asked about, and what it leaves out of NEXMark's."""

    join: WindowJoin
    events: int
    said: str
    batches: int = 4


def _named(alias: str, *columns: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{alias}.{column}", f"{alias}_{column}") for column in columns)


QUERIES = {
    4: Asked(
        WindowJoin(
            {"b": "bid", "a": "auction"},
            Tile(TALLY_US),
            (("a.category", "category"),),
            equal=(("b.auction", "a.id"),),
            where=("b.ts >= a.ts", "b.ts <= a.expires"),
            aggregates=(Aggregate("AVG", "b.price", "price"), Aggregate("MAX", "b.price", "highest")),
        ),
        5_000_000,
        "average and highest bid per category and tumbling window of a second, over bids on auctions opened in the same window; NEXMark"
        " first takes the highest bid of each auction, and has no window",
    ),
    7: Asked(
        WindowJoin(
            {"b": "bid"},
            Tile(TALLY_US),
            (),
            aggregates=(Aggregate("MAX", "b.price", "price"), Aggregate("COUNT", "b.price", "bids")),
        ),
        10_000_000,
        "the highest price and the number of bids per tumbling window of a second; NEXMark joins the price back to the bids that made it",
    ),
    8: Asked(
        WindowJoin(
            {"a": "auction", "p": "person"},
            Tile(WINDOW_US),
            (("p.id", "person"), ("p.name", "name"), *_named("a", "id", "ts")),
            equal=(("a.seller", "p.id"),),
        ),
        100_000_000,
        "people with each auction they opened in the tumbling window of ten seconds in which they registered; NEXMark names each once",
    ),
    9: Asked(
        WindowJoin(
            {"b": "bid", "a": "auction"},
            After({"a": WINDOW_US}),
            (
                *_named("a", "id", "seller", "category", "reserve", "ts", "expires"),
                *_named("b", "bidder", "price", "ts"),
            ),
            equal=(("b.auction", "a.id"),),
            where=("b.ts <= a.expires",),
        ),
        20_000_000,
        "every bid made while its auction was open, at most ten seconds after it opened; NEXMark keeps the highest of each auction",
    ),
    20: Asked(
        WindowJoin(
            {"b": "bid", "a": "auction"},
            After({"a": WINDOW_US}),
            (
                *_named("b", "auction", "bidder", "price", "ts"),
                *_named("a", "seller", "category", "reserve", "ts", "expires"),
            ),
            equal=(("b.auction", "a.id"),),
            where=(f"a.category = {FIRST_CATEGORY}",),
        ),
        40_000_000,
        "bids with their auction where its category is one of five, at most ten seconds after it opened; NEXMark has no window",
        batches=6,
    ),
    23: Asked(
        WindowJoin(
            {"b": "bid", "a": "auction", "p": "person"},
            After({"a": LISTED_US, "p": WINDOW_US}),
            (
                *_named("b", "auction", "price", "ts"),
                *_named("p", "id", "name", "state"),
                *_named("a", "id", "category", "reserve", "expires"),
            ),
            equal=(("b.bidder", "a.seller"), ("b.bidder", "p.id")),
        ),
        5_000_000,
        "bids of people with an auction they opened at most a millisecond before, at most ten seconds after they registered; NEXMark has no"
        " window",
    ),
}


def nexmark(number: int, scale: float = 1.0) -> Workload:
    """A query over the site's events. Half an event's distance keeps every time off the instants between two windows,
    and the epoch, whose rows Spark and Flink take for late, is long past.
    """
    asked = QUERIES[number]
    site = Nexmark(events=max(5_000, round(asked.events * scale)), offset_us=START_US + 10)
    batches = max(FEWEST_BATCHES, round(asked.batches * min(1.0, scale)))
    return Workload(f"nexmark-{number}", asked.join, site.table, batches, site.seed, asked.said)
