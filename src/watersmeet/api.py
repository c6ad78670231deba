"""The public surface: what a caller types."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from watersmeet.algebra.query import Query
from watersmeet.lang import parse
from watersmeet.operators.meet.config import meet_config
from watersmeet.optimizer.explain import Explanation
from watersmeet.runtime import embedded
from watersmeet.runtime.embedded import EmbeddedRun, Sources, bound_query
from watersmeet.runtime.sources import relation, stream

__all__ = ["collect", "explain", "relation", "run", "sql", "stream"]


def sql(text: str) -> Query:
    """A query from its text. Names are resolved later, against the streams it is run on."""
    return parse(text)


def collect(query: Query | str, streams: Sources) -> pa.Table:
    """Runs the query in this process over finite data and returns all its rows.

    `table.schema.metadata[b"watersmeet"]` holds, as JSON, the ledger of rows arrived, kept, shed and late per stream.
    """
    return embedded.start(query, streams).collect()


def run(query: Query | str, streams: Sources) -> EmbeddedRun:
    """The query under way in this process: iterate over its `batches()`, look at its `ledger`, or feed it with `advance`."""
    return embedded.start(query, streams)


def results(query: Query | str, streams: Sources) -> Iterator[pa.RecordBatch]:
    """The rows of the query, as they come."""
    for batches in run(query, streams).batches():
        yield from batches


def explain(query: Query | str, streams: Sources) -> Explanation:
    """What would run, before it runs."""
    bound = bound_query(query, streams)
    return Explanation(bound, meet_config(bound))
