"""Names in SQL text: reserved words and quoting."""

from __future__ import annotations

import re

# fmt: off
#: Keywords, and words that begin unsupported SQL: as names they need quotes, except after a dot.
RESERVED = frozenset(
    (
        "ALL", "AND", "ANTI", "AS", "ASOF", "BETWEEN", "CASE", "CROSS", "DISTINCT", "DWINDOW", "ELSE", "END",
        "EVERY", "EXCEPT", "FALSE", "FROM", "FULL", "HAVING", "IN", "INNER", "INTERSECT", "INTERVAL", "IS",
        "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NULL", "ON", "OR", "OUTER", "QUALIFY",
        "RIGHT", "SELECT", "SEMI", "TABLESAMPLE", "THEN", "TRUE", "UNION", "USING", "WHEN", "WHERE", "WINDOW",
        "WITH",
    )
)
# fmt: on

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quote_name(name: str) -> str:
    """Return the name, in double quotes if it could not be parsed without them.

    >>> print(quote_name("price"), quote_name("unit price"), quote_name("select"), quote_name('a"b'))
    price "unit price" "select" "a""b"
    """
    if _PLAIN.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'
