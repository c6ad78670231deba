"""The query language: text to `Query`, and a `Query` against schemas to `BoundQuery`."""

from watersmeet.lang.binder import bind
from watersmeet.lang.parsing import parse
from watersmeet.lang.typing import type_of

__all__ = ["bind", "parse", "type_of"]
