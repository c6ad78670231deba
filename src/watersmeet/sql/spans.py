"""Positions in the query text, and errors that point at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.errors import QueryError, Span


@contextmanager
def errors_at(span: Span | None) -> Iterator[None]:
    """Give this span to errors that have none."""
    try:
        yield
    except QueryError as error:
        if error.span is None:
            error.span = span
        raise


def attach_text(error: QueryError, text: str | None) -> None:
    """Attach the text that the error's span points into.

    Names and text come from outside, and errors go to terminals and logs. Characters that have an effect there are
    shown as `�`.
    """
    error.message = _escape_unprintable(error.message)
    error.hint = None if error.hint is None else _escape_unprintable(error.hint)
    error.text = text if text is None else _escape_unprintable(text)


def _escape_unprintable(text: str) -> str:
    r"""Replace unprintable characters.

    >>> _escape_unprintable("bell \a")
    'bell �'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "�" for sign in text.replace("\r", " "))
