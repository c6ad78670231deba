"""Watersmeet: continuous queries that join several data streams over sliding windows.

import watersmeet as wm

query = wm.sql('''
    SELECT a.item, b.price
    FROM sales [RANGE 1 HOUR] AS a, quotes [RANGE 1 HOUR] AS b
    WHERE a.item = b.item
''')
streams = {"sales": wm.stream(sales, time="ts"), "quotes": wm.stream(quotes, time="ts")}
table = wm.collect(query, streams)

`import watersmeet` loads neither Arrow nor Numba. A public name loads its module when it is first used (PEP 562).
To add a public name, define it in `watersmeet.api`, and add it to the imports for type checkers and to `__all__` below.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import TYPE_CHECKING

from watersmeet.errors import InputError, InternalError, PlanError, QueryError, WatersmeetError, WatersmeetWarning
from watersmeet.version import VERSION

if TYPE_CHECKING:
    from watersmeet.algebra.plan import Index, Plan
    from watersmeet.algebra.query import Query
    from watersmeet.api import (
        BatchMetrics,
        Budget,
        CostedPlan,
        Decision,
        Explanation,
        Job,
        Ledger,
        OperatorCost,
        PlanCost,
        Run,
        SheddingDecision,
        SheddingPolicy,
        allocate,
        collect,
        explain,
        job,
        keep_up,
        on_spark,
        plan,
        plan_within,
        read_messages,
        relation,
        run,
        session,
        sql,
        start,
        stream,
    )
    from watersmeet.runtime.spark.running_query import RunningQuery
    from watersmeet.sources.declarations import Relation, Stream
    from watersmeet.sources.times import ARRIVAL, ArrivalTime
    from watersmeet.stats.stream_stats import StreamStats, stats

    Wishes = SheddingPolicy

__version__ = VERSION

__all__ = [
    "ARRIVAL",
    "ArrivalTime",
    "BatchMetrics",
    "Budget",
    "CostedPlan",
    "Decision",
    "Explanation",
    "Index",
    "InputError",
    "InternalError",
    "Job",
    "Ledger",
    "OperatorCost",
    "Plan",
    "PlanCost",
    "PlanError",
    "Query",
    "QueryError",
    "Relation",
    "Run",
    "RunningQuery",
    "SheddingDecision",
    "SheddingPolicy",
    "Stream",
    "StreamStats",
    "WatersmeetError",
    "WatersmeetWarning",
    "allocate",
    "collect",
    "explain",
    "job",
    "keep_up",
    "on_spark",
    "plan",
    "plan_within",
    "read_messages",
    "relation",
    "run",
    "session",
    "sql",
    "start",
    "stats",
    "stream",
]

#: Modules of the public names that `watersmeet.api` does not define.
_HOMES = {
    "ARRIVAL": "watersmeet.sources.times",
    "ArrivalTime": "watersmeet.sources.times",
    "Index": "watersmeet.algebra.plan",
    "Plan": "watersmeet.algebra.plan",
    "Query": "watersmeet.algebra.query",
    "Relation": "watersmeet.sources.declarations",
    "RunningQuery": "watersmeet.runtime.spark.running_query",
    "Stream": "watersmeet.sources.declarations",
    "StreamStats": "watersmeet.stats.stream_stats",
    "stats": "watersmeet.stats.stream_stats",
}

#: Public names of earlier versions by their present name.
_RENAMED = {"Wishes": "SheddingPolicy"}

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every misspelled name
    # Importing a package binds its name here. `wm.sql` and `wm.stats` are functions with the names of packages, so both
    # packages are imported first, and their names are removed. No later import binds them again.
    from watersmeet import sql, stats

    del sql, stats

    def __getattr__(name: str) -> object:
        """Load a public name from its module."""
        if name in _RENAMED:
            warnings.warn(f"wm.{name} is now wm.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[__name__], _RENAMED[name])
        if name not in __all__:
            raise AttributeError(f'module "watersmeet" has no attribute "{name}"', name=name, obj=sys.modules[__name__])
        globals()[name] = value = getattr(importlib.import_module(_HOMES.get(name, "watersmeet.api")), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
