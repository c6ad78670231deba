"""The sources of a query by name: bind a query to their schemas, read the finite ones."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.errors import InputError
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

Sources = Mapping[str, Stream | Relation]


def bind_query(query: Query | str, sources: Sources) -> BoundQuery:
    """Bind the query to the schemas that its sources declare."""
    parsed = parse(query) if isinstance(query, str) else query
    for name, source in sources.items():
        if not isinstance(source, Stream | Relation):
            raise undeclared_source_error(name, source)
    return bind(parsed, {name: source.to_schema(name) for name, source in sources.items()})


def undeclared_source_error(name: str, source: object) -> InputError:
    """Return the error for a source that is neither a stream nor a relation."""
    return InputError(
        f'source "{name}" is a {type(source).__name__}',
        hint="declare it with wm.stream(source, time=...) or wm.relation(source)",
    )


def read_all_rows(source: Stream | Relation) -> pa.Table:
    """Read a finite source into one table."""
    return pa.concat_tables(source.batches())
