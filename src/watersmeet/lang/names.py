"""Finding a name among those that exist: as written, else whatever its case, if that leaves one."""

from __future__ import annotations

from collections.abc import Iterable


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
