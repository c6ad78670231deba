"""Where things stand in the query text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from watersmeet.errors import QueryError, Span


def token_span(token: Token) -> Span:
    return Span(token.start, token.end + 1)


def node_span(node: exp.Expr) -> Span | None:
    """The stretch of text the parser noted on the node (`end` is the last character, sqlglot's habit)."""
    start, end = node.meta_get("start"), node.meta_get("end")
    return None if start is None or end is None else Span(start, end + 1)


@contextmanager
def errors_at(span: Span | None) -> Iterator[None]:
    """Errors that know no place of their own get this one."""
    try:
        yield
    except QueryError as error:
        if error.span is None:
            error.span = span
        raise


def attach_text(error: QueryError, text: str | None) -> None:
    """Lets the error know the text its span points into.

    Names and text come from outside and errors go to terminals and logs: characters that do something there are shown
    as `�`.
    """
    error.message = _visible(error.message)
    error.hint = None if error.hint is None else _visible(error.hint)
    error.text = text if text is None else _visible(text)


def _visible(text: str) -> str:
    """
    >>> _visible("bell \\a")
    'bell �'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "�" for sign in text.replace("\r", " "))
