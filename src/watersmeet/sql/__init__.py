"""The SQL front end: query text to `Query`, and a `Query` with schemas to `BoundQuery`."""

from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse
from watersmeet.sql.type_inference import type_of

__all__ = ["bind", "parse", "type_of"]
