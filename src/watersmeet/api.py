"""The public surface: what a caller types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from watersmeet.algebra.plan import DEFAULT_CLEANUP_ROWS, Index, Plan
from watersmeet.algebra.query import Query
from watersmeet.lang import parse
from watersmeet.operators.meet.config import meet_config
from watersmeet.optimizer.explain import Explanation
from watersmeet.runtime import embedded
from watersmeet.runtime.embedded import EmbeddedRun, Sources, bound_query
from watersmeet.runtime.sources import Duration, parse_duration_us, relation, stream

__all__ = ["collect", "explain", "plan", "relation", "run", "sql", "stream"]


def sql(text: str) -> Query:
    """A query from its text. Names are resolved later, against the streams it is run on."""
    return parse(text)


def collect(query: Query | str, streams: Sources, plan: Plan | Mapping[str, Any] | None = None) -> pa.Table:
    """Runs the query in this process over finite data and returns all its rows; `plan` pins how.

    `table.schema.metadata[b"watersmeet"]` holds, as JSON, the ledger of rows arrived, kept, shed and late per stream.
    """
    return embedded.start(query, streams, _plan(plan)).collect()


def run(query: Query | str, streams: Sources, plan: Plan | Mapping[str, Any] | None = None) -> EmbeddedRun:
    """The query under way in this process: iterate over its `batches()`, look at its `ledger`, or feed it with `advance`."""
    return embedded.start(query, streams, _plan(plan))


def results(query: Query | str, streams: Sources) -> Iterator[pa.RecordBatch]:
    """The rows of the query, as they come."""
    for batches in run(query, streams).batches():
        yield from batches


def plan(
    algorithm: str = "runs",
    *,
    order: Sequence[str] | Mapping[str, Sequence[str]] = (),
    indexes: Mapping[str, str | Index] | None = None,
    evaluate: Duration = 0,
    expire: Duration = 0,
    cleanup_rows: int = DEFAULT_CLEANUP_ROWS,
) -> Plan:
    """A plan to pin: an algorithm by its name, and its knobs.

    `order` is one order for all origins, or an order per origin; `indexes` one of list, hash(b), btree(n), ttree(n) per source;
    `evaluate` and `expire` are intervals, 0 for eager.

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
    )


def _plan(pinned: Plan | Mapping[str, Any] | None) -> Plan | None:
    return Plan.from_dict(pinned) if isinstance(pinned, Mapping) else pinned


def explain(query: Query | str, streams: Sources) -> Explanation:
    """What would run, before it runs."""
    bound = bound_query(query, streams)
    return Explanation(bound, meet_config(bound))
