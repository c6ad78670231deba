"""Two families of errors: the caller's mistakes and our own bugs.

A `WatersmeetError` says what is wrong, where (with a caret, when the place is known) and what to do or what exists.
An `InternalError` means an invariant of ours broke; nobody should ever see one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

_WIDEST_LINE = 160
#: Characters of a message and of a hint. Names, types and values come from outside: a nested type alone can have 50,000
#: characters.
_LONGEST_PART = 1_000


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of query text: characters `start` (included) to `end` (excluded)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise InternalError(f"a span cannot run from {self.start} to {self.end}")

    def to(self, other: Span | None) -> Span:
        """The stretch from the start of this one to the end of the other."""
        return self if other is None else Span(min(self.start, other.start), max(self.end, other.end))


class WatersmeetError(Exception):
    """Mistake of the caller: what is wrong, where, and what to do about it. Long messages are abbreviated.

    >>> print(QueryError('no column "prize"', span=Span(7, 12), text="SELECT prize FROM bids", hint="existing: price"))
    no column "prize"
    <BLANKLINE>
    1 | SELECT prize FROM bids
               ^^^^^
    existing: price
    """

    def __init__(self, message: str, *, span: Span | None = None, text: str | None = None, hint: str | None = None):
        message = abbreviate(message, _LONGEST_PART)
        super().__init__(message)
        self.message = message
        self.span = span
        self.text = text
        self.hint = None if hint is None else abbreviate(hint, _LONGEST_PART)

    def within(self, text: str) -> Self:
        """The same error, knowing the text its span points into."""
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
    """The query text, or a query value, does not mean anything."""


class InputError(WatersmeetError):
    """Data, a file or a declared stream is not what the query needs."""


class PlanError(WatersmeetError):
    """A pinned plan cannot run this query, or no plan can."""


class WatersmeetWarning(UserWarning):
    """A query runs, but a setting makes it much slower than it has to be: what to change."""


class InternalError(Exception):
    """Broken invariant of Watersmeet itself: a bug, never the caller's fault."""

    def __init__(self, message: str = "") -> None:
        super().__init__(abbreviate(message, _LONGEST_PART))


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
    """The line the span starts in, with its number, and carets under the span.

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
    line = "".join(sign if sign.isprintable() else "�" for sign in line)  # nothing that steers a terminal
    return f"{prefix}{line}\n{' ' * (len(prefix) + column)}{'^' * width}"


def _cut_around(line: str, column: int) -> tuple[str, int]:
    """A piece of a very long line that shows the column, so that hostile text cannot flood a terminal."""
    if len(line) <= _WIDEST_LINE:
        return line, column
    left = max(0, column - _WIDEST_LINE // 2)
    return line[left : left + _WIDEST_LINE], column - left


def listing(names: list[str] | tuple[str, ...], most: int = 20) -> str:
    """Names for a hint, cut where the list is long.

    >>> listing(["price", "ts"])
    'price, ts'
    """
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in names[:most]]
    more = f", … ({len(names) - most} more)" if len(names) > most else ""
    return (", ".join(shown) + more) or "none"
