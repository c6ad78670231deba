"""The public surface: what a caller types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from watersmeet.algebra.plan import DEFAULT_CLEANUP_ROWS, Index, Plan, tree_of
from watersmeet.algebra.query import Query
from watersmeet.lang import bind, parse
from watersmeet.optimizer.explain import Budget, Explanation
from watersmeet.runtime import embedded
from watersmeet.runtime.embedded import EmbeddedRun, Sources
from watersmeet.runtime.planning import explanation
from watersmeet.runtime.sources import Duration, Relation, Stream, parse_duration_us, relation, stream
from watersmeet.runtime.statistics import schema_of_stats
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.stats.stream_stats import stats as declare_stats

__all__ = ["Budget", "collect", "declare_stats", "explain", "plan", "relation", "run", "sql", "stream"]


def sql(text: str) -> Query:
    """A query from its text. Names are resolved later, against the streams it is run on."""
    return parse(text)


def collect(query: Query | str, streams: Sources, plan: Plan | Mapping[str, Any] | None = None) -> pa.Table:
    """Runs the query in this process over finite data and returns all its rows; `plan` pins how, else the cheapest plan is chosen.

    `table.schema.metadata[b"watersmeet"]` holds, as JSON, the ledger of rows arrived, kept, shed and late per stream.
    """
    return embedded.start(query, streams, _plan(plan)).collect()


def run(query: Query | str, streams: Sources, plan: Plan | Mapping[str, Any] | None = None) -> EmbeddedRun:
    """The query under way in this process: iterate over its `batches()`, look at its `ledger`, or feed it with `advance`."""
    return embedded.start(query, streams, _plan(plan))


def plan(
    algorithm: str = "runs",
    *,
    order: Sequence[str] | Mapping[str, Sequence[str]] = (),
    indexes: Mapping[str, str | Index] | None = None,
    evaluate: Duration = 0,
    expire: Duration = 0,
    cleanup_rows: int = DEFAULT_CLEANUP_ROWS,
    tree: Any = None,
    early: Sequence[str] = (),
    drop: Mapping[str, float] | None = None,
    drop_seed: int = 0,
) -> Plan:
    """A plan to pin: an algorithm by its name, and its knobs.

    `order` is one order for all origins, or an order per origin; `indexes` one of list, hash(b), btree(n), ttree(n) per source;
    `evaluate` and `expire` are intervals, 0 for eager; `tree` nests sources in pairs, `early` names sources to aggregate before the join,
    `drop` is the share of each stream to shed.

    >>> plan("eager-hash", order=["a", "b"], indexes={"a": "hash(5)"}).index("a")
    Index(kind='hash', size=5)
    """
    per_origin = order if isinstance(order, Mapping) else {}
    return Plan(
        algorithm=algorithm,
        global_order=() if isinstance(order, Mapping) else tuple(order),
        orders=tuple((origin, tuple(others)) for origin, others in per_origin.items()),
        indexes=tuple((alias, Index.parse(index)) for alias, index in (indexes or {}).items()),
        evaluate_us=parse_duration_us(evaluate, "the evaluation interval"),
        expire_us=parse_duration_us(expire, "the expiration interval"),
        cleanup_rows=cleanup_rows,
        tree=tree_of(tree),
        early=tuple(early),
        drop=tuple((drop or {}).items()),
        drop_seed=drop_seed,
    )


def _plan(pinned: Plan | Mapping[str, Any] | None) -> Plan | None:
    return Plan.from_dict(pinned) if isinstance(pinned, Mapping) else pinned


def explain(
    query: Query | str,
    streams: Mapping[str, Stream | Relation | StreamStats],
    *,
    stats: Mapping[str, StreamStats] | None = None,
    plan: Plan | Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    all_plans: bool = False,
    engine: str = "embedded",
) -> Explanation:
    """What would run, what it would cost and what the other plans would: before anything runs.

    A stream may be declared by its statistics alone (`wm.stats`); `stats` overrides what would be measured from the data.

    >>> about = explain(
    ...     "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    ...     {"a": declare_stats(rate=1000, distinct={"k": 500}), "b": declare_stats(rate=1000, distinct={"k": 500})},
    ... )
    >>> about.chosen.cost.rows_out_per_s
    40000.0
    """
    parsed = parse(query) if isinstance(query, str) else query
    schemas = {
        name: schema_of_stats(parsed, name, source) if isinstance(source, StreamStats) else source.declared(name)
        for name, source in streams.items()
    }
    bound = bind(parsed, schemas)
    return explanation(bound, streams, declared=stats, plan=_plan(plan), budget=budget, all_plans=all_plans, engine=engine)
