"""Watersmeet: continuous queries that join several data streams over sliding windows.

import watersmeet as wm

query = wm.sql('''
    SELECT a.item, b.price
    FROM sales [RANGE 1 HOUR] AS a, quotes [RANGE 1 HOUR] AS b
    WHERE a.item = b.item
''')
streams = {"sales": wm.stream(sales, time="ts"), "quotes": wm.stream(quotes, time="ts")}
table = wm.collect(query, streams)
"""

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.query import Query
from watersmeet.api import (
    Budget,
    SheddingPolicy,
    allocate,
    collect,
    explain,
    keep_up,
    on_spark,
    plan,
    plan_within,
    relation,
    run,
    session,
    sql,
    stream,
)
from watersmeet.errors import InputError, InternalError, PlanError, QueryError, WatersmeetError, WatersmeetWarning
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.stats.stream_stats import StreamStats, stats
from watersmeet.version import VERSION

__version__ = VERSION

#: Earlier name of `SheddingPolicy`.
Wishes = SheddingPolicy

__all__ = [
    "Budget",
    "Index",
    "InputError",
    "InternalError",
    "Plan",
    "PlanError",
    "Query",
    "QueryError",
    "Relation",
    "SheddingPolicy",
    "Stream",
    "StreamStats",
    "WatersmeetError",
    "WatersmeetWarning",
    "Wishes",
    "allocate",
    "collect",
    "explain",
    "keep_up",
    "on_spark",
    "plan",
    "plan_within",
    "relation",
    "run",
    "session",
    "sql",
    "stats",
    "stream",
]
