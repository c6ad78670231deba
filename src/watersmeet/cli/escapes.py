"""Control characters in text from outside: names, values, paths, messages."""

from __future__ import annotations


def escape_controls(text: str) -> str:
    """Return the text with every control character escaped, so that it cannot steer a terminal.

    >>> escape_controls("a\\x1b[31m")
    'a\\\\x1b[31m'
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )
