"""Two families of errors: mistakes of the caller and bugs of Watersmeet.

A `WatersmeetError` names the problem, its position in the query text (with a caret) and the remedy or the existing
names. An `InternalError` means that an invariant of Watersmeet was violated. No user should ever see one.

Messages quote names and values from outside: `abbreviate` bounds them, and `escape_controls` makes them harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

_MAX_LINE_LENGTH = 160
#: Maximum characters of a message and of a hint. Names, types and values come from outside: a nested type alone can
#: have 50,000 characters.
_MAX_PART_LENGTH = 1_000


@dataclass(frozen=True, slots=True)
class Span:
    """Range of query text: characters `start` (included) to `end` (excluded)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise InternalError(f"a span cannot run from {self.start} to {self.end}")

    def to(self, other: Span | None) -> Span:
        """Return the smallest span that covers this one and the other."""
        return self if other is None else Span(min(self.start, other.start), max(self.end, other.end))


class WatersmeetError(Exception):
    """Mistake of the caller: the problem, its position and the remedy. Long messages are abbreviated.

    >>> print(QueryError('no column "prize"', span=Span(7, 12), text="SELECT prize FROM bids", hint="existing: price"))
    no column "prize"
    <BLANKLINE>
    1 | SELECT prize FROM bids
               ^^^^^
    existing: price
    """

    def __init__(self, message: str, *, span: Span | None = None, text: str | None = None, hint: str | None = None):
        message = abbreviate(message, _MAX_PART_LENGTH)
        super().__init__(message)
        self.message = message
        self.span = span
        self.text = text
        self.hint = None if hint is None else abbreviate(hint, _MAX_PART_LENGTH)

    def within(self, text: str) -> Self:
        """Return this error with the text that its span points into."""
        if self.text is None:
            self.text = text
        return self

    def __str__(self) -> str:
        parts = [self.message]
        if self.span is not None and self.text is not None:
            parts += ["", caret(self.text, self.span)]
        if self.hint is not None:
            parts.append(self.hint)
        return "\n".join(parts)


class QueryError(WatersmeetError):
    """Query text or query value that is invalid."""


class InputError(WatersmeetError):
    """Data, file or declared stream that does not fit the query."""


class PlanError(WatersmeetError):
    """Pinned plan that cannot run the query, or a query that no plan can run."""


class WatersmeetWarning(UserWarning):
    """Setting that makes a query much slower than necessary, with the change to make."""


class InternalError(Exception):
    """Violated invariant of Watersmeet: a bug, never the caller's fault."""

    def __init__(self, message: str = "") -> None:
        super().__init__(abbreviate(message, _MAX_PART_LENGTH))


def abbreviate(text: str, most: int = 80) -> str:
    """Shorten a text to about `most` characters, keeping its start and its end.

    Every error message passes through here, so no input can flood a terminal or a log.

    >>> abbreviate("short"), abbreviate("x" * 5_000 + "y", most=12)
    ('short', 'xxxxxxxx… (4,989 characters omitted) …xxxy')
    """
    if len(text) <= most:
        return text
    head, tail = most - most // 3, most // 3
    return f"{text[:head]}… ({len(text) - head - tail:,} characters omitted) …{text[-tail:]}"


def caret(text: str, span: Span) -> str:
    """Return the line in which the span starts, with its number, and carets under the span.

    >>> print(caret("SELECT a\\nFROM b", Span(14, 15)))
    2 | FROM b
             ^
    """
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : line_end if line_end >= 0 else len(text)].replace("\t", " ")
    number = text.count("\n", 0, line_start) + 1
    column = start - line_start
    width = max(1, min(span.end, line_start + len(line)) - start)
    line, column = _cut_around(line, column)
    width = max(1, min(width, len(line) - column))
    prefix = f"{number} | "
    line = "".join(each if each.isprintable() else "�" for each in line)  # no control sequence reaches the terminal
    return f"{prefix}{line}\n{' ' * (len(prefix) + column)}{'^' * width}"


def _cut_around(line: str, column: int) -> tuple[str, int]:
    """Return a piece of a very long line around the column, so that hostile text cannot flood a terminal."""
    if len(line) <= _MAX_LINE_LENGTH:
        return line, column
    left = max(0, column - _MAX_LINE_LENGTH // 2)
    return line[left : left + _MAX_LINE_LENGTH], column - left


def listing(names: list[str] | tuple[str, ...], most: int = 20) -> str:
    """Join names for a hint; shorten a long list.

    >>> listing(["price", "ts"])
    'price, ts'
    """
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in names[:most]]
    more = f", … ({len(names) - most} more)" if len(names) > most else ""
    return (", ".join(shown) + more) or "none"


def escape_controls(text: str) -> str:
    """Return the text with every control character escaped, so that it cannot steer a terminal.

    >>> escape_controls("a\\x1b[31m")
    'a\\\\x1b[31m'
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


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
