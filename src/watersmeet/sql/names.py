"""Finding a name among those that exist: as written, else whatever its case, if that leaves one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watersmeet.errors import QueryError, Span, listing


def matches(name: str, existing: Iterable[str]) -> list[str]:
    """The names meant: none, one, or several where only their case differs.

    >>> matches("Price", ["price", "ts"]), matches("price", ["Price", "price"]), matches("PRICE", ["Price", "price"])
    (['price'], ['price'], ['Price', 'price'])
    """
    names = list(existing)
    if name in names:
        return [name]
    folded = name.casefold()
    return [candidate for candidate in names if candidate.casefold() == folded]


def not_in_scope(source: str, span: Span | None, in_scope: Sequence[str]) -> QueryError:
    """Build the error for a JOIN condition that names a source which FROM lists later."""
    return QueryError(
        f'source "{source}" is not in scope here: it is joined later',
        span=span,
        hint=f"sources in scope: {listing(list(in_scope))}; put the condition into WHERE or into the ON of a later JOIN",
    )
