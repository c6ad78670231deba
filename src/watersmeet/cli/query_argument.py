"""The query of a command: the name of a file that holds it, or its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from watersmeet.errors import InputError, abbreviate
from watersmeet.files import find_similar_path, read_text_file

_STARTS_LIKE_SQL = re.compile(r"\s*(select|with)\b(?!\.)", re.IGNORECASE)
#: `SELECT x FROM y` has four words. A file name of as many words still ends with a suffix.
_LEAST_WORDS = 4
_SUFFIXES = (".sql", ".txt")


@dataclass(frozen=True, slots=True)
class QueryText:
    """Text of a query, and the title under which views show it."""

    title: str
    text: str


def read_query(argument: str) -> QueryText:
    """Return the query of an existing file, or the argument itself if it looks like SQL."""
    path = Path(argument)
    if not _is_present(path) and looks_like_sql(argument):
        return QueryText(abbreviate(" ".join(argument.split()), 60), argument)
    try:
        return QueryText(path.name, read_text_file(path, "query file"))
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            error.hint = _suggest(path)
        raise


def looks_like_sql(argument: str) -> bool:
    """Return whether an argument is a query rather than the name of a file.

    >>> [looks_like_sql(text) for text in ("SELECT a.k FROM a", "SELEC k FROM a", "select.sql", "my own old query.sql")]
    [True, True, False, False]
    """
    if _STARTS_LIKE_SQL.match(argument):
        return True
    return len(argument.split()) >= _LEAST_WORDS and not argument.endswith(_SUFFIXES)


def _is_present(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than any name, or with a zero byte in it
        return False


def _suggest(path: Path) -> str:
    """Name a similar file in the same directory, and the other way to pass a query."""
    inline = 'To pass the query itself, write watersmeet run "SELECT ..." --stream ...'
    if not _is_present(path.parent):
        return f'there is no directory "{abbreviate(str(path.parent), 200)}". {inline}'
    similar = find_similar_path(path)
    return inline if similar is None else f"did you mean {similar}? {inline}"
