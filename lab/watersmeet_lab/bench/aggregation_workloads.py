"""Realistic aggregations over joins, each with two formulations for DuckDB.

The running formulation is what an expert writes by hand. It finds every combination once, adds it to its group where it
becomes valid, subtracts it where it expires, and takes running sums. The plain formulation joins and groups the windows
of every evaluation on its own. All streams are in time order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet_lab.bench.join_workloads import SECOND_US

_MINUTE_US = 60 * SECOND_US
_NEVER_US = 1 << 60


@dataclass(frozen=True, slots=True)
class AggregationWorkload:
    """A query, its inputs, and the same query for DuckDB.

    `every_us` is the evaluation interval. `pairs` selects the group key `g`, the columns `value_columns`, and the first
    and last instant of each combination. `windows` selects the same columns of the combinations inside their windows
    at the instant `t.instant`. `outputs` has the aggregates of a group
    over the running sums of `n` (combinations) and of the value columns.
    """

    name: str
    query: str
    tables: Callable[[float], Mapping[str, pa.Table]]
    every_us: int
    key: str
    pairs: str
    windows: str
    value_columns: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("n",)
    plain_outputs: tuple[str, ...] = ("count(*) AS n",)
    having: str = "true"
    plain_having: str = "true"
    relations: tuple[str, ...] = ()
    running: str = "sum"
    seed: int = 0

    def to_running_sql(self, last_us: int) -> str:
        """Return the running formulation, up to an instant."""
        at_start, at_end = (
            f"(start_us + {self.every_us - 1}) // {self.every_us} * {self.every_us}",
            f"(end_us // {self.every_us} + 1) * {self.every_us}",
        )
        signed = ", ".join(("1 AS n", *self.value_columns))
        expired = ", ".join(("-1 AS n", *(f"-{column} AS {column}" for column in self.value_columns)))
        leaves = (
            ""
            if self.running != "sum"
            else f" UNION ALL SELECT g, {at_end} AS instant, {expired} FROM pairs WHERE end_us < {_NEVER_US}"
        )
        columns = ("n", *self.value_columns)
        totals = {column: "sum" if column == "n" else self.running for column in columns}
        deltas = ", ".join(f"{totals[column]}({column}) AS {column}" for column in columns)
        running = ", ".join(f"{totals[column]}({column}) OVER w AS {column}" for column in columns)
        names = [output.rpartition(" ")[2] for output in self.outputs]
        changed = " OR ".join(f"{name} IS DISTINCT FROM was_{name}" for name in names)
        before = ", ".join(f"lag({name}) OVER w AS was_{name}" for name in ("n_rows", "shown", *names))
        return f"""
            WITH pairs AS ({self.pairs}),
            events AS (SELECT g, {at_start} AS instant, {signed} FROM pairs{leaves}),
            deltas AS (SELECT g, instant, {deltas} FROM events GROUP BY g, instant),
            totals AS (SELECT g, instant, {running} FROM deltas WINDOW w AS (PARTITION BY g ORDER BY instant)),
            shown_rows AS (SELECT g, instant, n AS n_rows, n > 0 AND ({self.having}) AS shown, {", ".join(self.outputs)}
                     FROM totals),
            compared AS (SELECT *, {before} FROM shown_rows WINDOW w AS (PARTITION BY g ORDER BY instant))
            SELECT g AS {self.key}, {", ".join(names)}, instant AS as_of FROM compared
            WHERE instant <= {last_us} AND (shown AND ((was_shown IS NOT TRUE) OR {changed})
                                       OR (was_shown AND n_rows = 0))"""

    def to_plain_sql(self, first_us: int, last_us: int) -> str:
        """Return the plain formulation for the evaluations of a time range: all groups at each of them."""
        return f"""
            WITH t AS (SELECT unnest(range({first_us}, {last_us} + 1, {self.every_us})) AS instant),
            combinations AS ({self.windows})
            SELECT g AS {self.key}, {", ".join(self.plain_outputs)}, instant AS as_of FROM combinations
            GROUP BY g, instant HAVING {self.plain_having}"""


def _random_rows(rows: int, seconds: int, seed: int, **columns: int) -> pa.Table:
    """Return rows in time order with uniform integers below a limit in each column."""
    rng = np.random.default_rng([5, seed])
    times = np.sort(rng.integers(0, seconds * SECOND_US, rows))
    return pa.table(
        {"ts": pa.array(times), **{name: pa.array(rng.integers(0, limit, rows)) for name, limit in columns.items()}}
    )


def _revenue_tables(scale: float) -> Mapping[str, pa.Table]:
    """Return orders and their payments, which follow within two hours."""
    rows, seconds = round(1_000_000 * scale), round(43_200 * scale)
    orders = _random_rows(rows, seconds, 1, region=20, amount=10_000)
    rng = np.random.default_rng([5, 2])
    number, times = np.arange(rows), orders.column("ts").to_numpy() + rng.integers(0, 7_200 * SECOND_US, rows)
    order = np.argsort(times, kind="stable")
    payments = pa.table({"ts": pa.array(times[order]), "order_id": pa.array(number[order])})
    return {"orders": orders.append_column("id", pa.array(number)), "payments": payments}


def _campaign_tables(scale: float) -> Mapping[str, pa.Table]:
    seconds = round(7_200 * scale)
    users = max(1, round(20_000 * min(1.0, scale)))
    return {
        "impressions": _random_rows(round(700_000 * scale), seconds, 3, user_id=users, campaign=100),
        "clicks": _random_rows(round(200_000 * scale), seconds, 4, user_id=users),
        "purchases": _random_rows(round(100_000 * scale), seconds, 5, user_id=users, amount=10_000),
    }


def _trade_tables(scale: float) -> Mapping[str, pa.Table]:
    seconds, symbols = round(3_600 * scale), 500
    return {
        "trades": _random_rows(round(500_000 * scale), seconds, 6, symbol=symbols, size=1_000),
        "quotes": _random_rows(round(1_000_000 * scale), seconds, 7, symbol=symbols, price=100_000),
        "companies": pa.table({"symbol": pa.array(np.arange(symbols)), "sector": pa.array(np.arange(symbols) % 11)}),
    }


def _bid_tables(scale: float) -> Mapping[str, pa.Table]:
    seconds, auctions = round(3_600 * scale), round(50_000 * scale)
    opened = _random_rows(auctions, seconds, 8, category=50)
    bids = _random_rows(round(950_000 * scale), seconds, 9, auction_id=auctions, price=1_000_000_000)
    return {"auctions": opened.append_column("id", pa.array(np.arange(auctions))), "bids": bids}


def _view_tables(scale: float) -> Mapping[str, pa.Table]:
    seconds = round(3_600 * scale)
    return {
        "views": _random_rows(round(1_500_000 * scale), seconds, 10, user_id=20_000, page=100),
        "clicks": _random_rows(round(500_000 * scale), seconds, 11, user_id=20_000),
    }


def _login_tables(scale: float) -> Mapping[str, pa.Table]:
    return {"logins": _random_rows(round(500_000 * scale), round(7_200 * scale), 12, user_id=2_000, city=50)}


def _range_pairs(select: str, first: str, second: str, window_us: int, on: str) -> str:
    """Select pairs of two streams with the same window, with their first and last instants."""
    return f"""SELECT {select}, greatest({first}.ts, {second}.ts) AS start_us,
            least({first}.ts, {second}.ts) + {window_us} AS end_us
        FROM {first} JOIN {second} ON {on}
            AND {second}.ts BETWEEN {first}.ts - {window_us} AND {first}.ts + {window_us}"""


def _window_of(alias: str, window_us: int) -> str:
    return f"{alias}.ts BETWEEN t.instant - {window_us} AND t.instant"


_HOUR_US, _TEN_MINUTES_US = 3_600 * SECOND_US, 600 * SECOND_US

AGGREGATION_WORKLOADS: dict[str, AggregationWorkload] = {
    each.name: each
    for each in (
        AggregationWorkload(
            "revenue-per-region",
            """SELECT orders.region, COUNT(*) AS n, SUM(orders.amount) AS revenue
            FROM orders [RANGE 1 HOUR], payments [RANGE 1 HOUR] WHERE orders.id = payments.order_id
            GROUP BY orders.region EVERY 1 MINUTE""",
            _revenue_tables,
            _MINUTE_US,
            "region",
            _range_pairs("region AS g, amount", "orders", "payments", _HOUR_US, "orders.id = payments.order_id"),
            f"""SELECT region AS g, instant, amount FROM t JOIN orders ON {_window_of("orders", _HOUR_US)}
            JOIN payments ON id = order_id AND {_window_of("payments", _HOUR_US)}""",
            value_columns=("amount",),
            outputs=("n", "amount AS revenue"),
            plain_outputs=("count(*) AS n", "sum(amount) AS revenue"),
        ),
        AggregationWorkload(
            "purchases-per-campaign",
            """SELECT i.campaign, COUNT(*) AS n, SUM(p.amount) AS amount
            FROM impressions [RANGE 10 MINUTES] AS i, clicks [RANGE 10 MINUTES] AS c,
                 purchases [RANGE 10 MINUTES] AS p
            WHERE i.user_id = c.user_id AND c.user_id = p.user_id GROUP BY i.campaign EVERY 1 MINUTE""",
            _campaign_tables,
            _MINUTE_US,
            "campaign",
            f"""SELECT campaign AS g, amount, greatest(i.ts, c.ts, p.ts) AS start_us,
                least(i.ts, c.ts, p.ts) + {_TEN_MINUTES_US} AS end_us
            FROM purchases AS p
            JOIN clicks AS c ON c.user_id = p.user_id
                AND c.ts BETWEEN p.ts - {_TEN_MINUTES_US} AND p.ts + {_TEN_MINUTES_US}
            JOIN impressions AS i ON i.user_id = p.user_id
                AND i.ts BETWEEN p.ts - {_TEN_MINUTES_US} AND p.ts + {_TEN_MINUTES_US}
                AND i.ts BETWEEN c.ts - {_TEN_MINUTES_US} AND c.ts + {_TEN_MINUTES_US}""",
            f"""SELECT campaign AS g, instant, amount FROM t
            JOIN purchases AS p ON {_window_of("p", _TEN_MINUTES_US)}
            JOIN clicks AS c ON c.user_id = p.user_id AND {_window_of("c", _TEN_MINUTES_US)}
            JOIN impressions AS i ON i.user_id = p.user_id AND {_window_of("i", _TEN_MINUTES_US)}""",
            value_columns=("amount",),
            outputs=("n", "amount"),
            plain_outputs=("count(*) AS n", "sum(amount) AS amount"),
        ),
        AggregationWorkload(
            "trades-with-quotes",
            """SELECT c.sector, COUNT(*) AS n, SUM(t.size) AS size, SUM(q.price) AS price
            FROM trades [RANGE 30 SECONDS] AS t, quotes [RANGE 10 SECONDS] AS q, companies AS c
            WHERE t.symbol = q.symbol AND q.symbol = c.symbol GROUP BY c.sector EVERY 10 SECONDS""",
            _trade_tables,
            10 * SECOND_US,
            "sector",
            f"""SELECT sector AS g, size, price, greatest(x.ts, q.ts) AS start_us,
                least(x.ts + {30 * SECOND_US}, q.ts + {10 * SECOND_US}) AS end_us
            FROM trades AS x JOIN quotes AS q ON x.symbol = q.symbol
                AND q.ts BETWEEN x.ts - {10 * SECOND_US} AND x.ts + {30 * SECOND_US}
            JOIN companies AS c ON c.symbol = q.symbol""",
            f"""SELECT sector AS g, instant, size, price FROM t
            JOIN trades AS x ON {_window_of("x", 30 * SECOND_US)}
            JOIN quotes AS q ON x.symbol = q.symbol AND {_window_of("q", 10 * SECOND_US)}
            JOIN companies AS c ON c.symbol = q.symbol""",
            value_columns=("size", "price"),
            outputs=("n", "size", "price"),
            plain_outputs=("count(*) AS n", "sum(size) AS size", "sum(price) AS price"),
            relations=("companies",),
        ),
        AggregationWorkload(
            "highest-bid-so-far",
            """SELECT a.category, COUNT(*) AS n, MAX(b.price) AS highest
            FROM auctions [LANDMARK] AS a, bids [LANDMARK] AS b WHERE a.id = b.auction_id
            GROUP BY a.category EVERY 1 MINUTE""",
            _bid_tables,
            _MINUTE_US,
            "category",
            f"""SELECT category AS g, price, greatest(auctions.ts, bids.ts) AS start_us, {_NEVER_US} AS end_us
            FROM auctions JOIN bids ON id = auction_id""",
            """SELECT category AS g, instant, price FROM t
            JOIN auctions ON auctions.ts <= t.instant JOIN bids ON id = auction_id AND bids.ts <= t.instant""",
            value_columns=("price",),
            outputs=("n", "price AS highest"),
            plain_outputs=("count(*) AS n", "max(price) AS highest"),
            running="max",
        ),
        AggregationWorkload(
            "tumbling-clicks",
            """SELECT v.page, COUNT(*) AS n
            FROM views [TUMBLE 1 MINUTE] AS v, clicks [TUMBLE 1 MINUTE] AS c WHERE v.user_id = c.user_id
            GROUP BY v.page EVERY 1 MINUTE""",
            _view_tables,
            _MINUTE_US,
            "page",
            f"""SELECT page AS g, (views.ts // {_MINUTE_US} + 1) * {_MINUTE_US} AS start_us,
                (views.ts // {_MINUTE_US} + 1) * {_MINUTE_US} AS end_us
            FROM views JOIN clicks ON views.user_id = clicks.user_id
                AND views.ts // {_MINUTE_US} = clicks.ts // {_MINUTE_US}""",
            f"""SELECT page AS g, instant FROM t
            JOIN views ON views.ts >= t.instant - {_MINUTE_US} AND views.ts < t.instant
            JOIN clicks ON views.user_id = clicks.user_id AND clicks.ts >= t.instant - {_MINUTE_US}
                AND clicks.ts < t.instant""",
        ),
        AggregationWorkload(
            "logins-from-many-cities",
            """SELECT a.user_id, COUNT(*) AS n
            FROM logins [RANGE 5 MINUTES] AS a, logins [RANGE 5 MINUTES] AS b
            WHERE a.user_id = b.user_id AND a.city <> b.city
            GROUP BY a.user_id HAVING COUNT(*) > 150 EVERY 1 MINUTE""",
            _login_tables,
            _MINUTE_US,
            "user_id",
            f"""SELECT a.user_id AS g, greatest(a.ts, b.ts) AS start_us, least(a.ts, b.ts) + {5 * _MINUTE_US} AS end_us
            FROM logins AS a JOIN logins AS b ON a.user_id = b.user_id AND a.city <> b.city
                AND b.ts BETWEEN a.ts - {5 * _MINUTE_US} AND a.ts + {5 * _MINUTE_US}""",
            f"""SELECT a.user_id AS g, instant FROM t JOIN logins AS a ON {_window_of("a", 5 * _MINUTE_US)}
            JOIN logins AS b ON a.user_id = b.user_id AND a.city <> b.city
                AND {_window_of("b", 5 * _MINUTE_US)}""",
            having="n > 150",
            plain_having="count(*) > 150",
        ),
    )
}
