"""SQL that other engines know and this one refuses: the reason, and what to write instead."""

from __future__ import annotations

from watersmeet.errors import QueryError
from watersmeet.sql.tokens import Token, TokenKind

_NO_ORDER = "results are a stream and have no order"
_ONE_SELECT = "a query is one SELECT"
_PARAMETER = ("parameters are not supported", "write the value itself")

#: Symbols that are refused wherever they are unexpected: the reason and a hint.
_REFUSED: dict[str, tuple[str, str | None]] = {
    "ALL": ("ALL is not supported", 'if it is a name, write it in quotes: "all"'),
    "CLUSTER BY": (f"CLUSTER BY is not supported: {_NO_ORDER}", None),
    "DISTINCT": ("DISTINCT is not supported", "group by the columns instead: SELECT a.x FROM … GROUP BY a.x"),
    "DISTRIBUTE BY": ("DISTRIBUTE BY is not supported", None),
    "EXCEPT": ("EXCEPT is not supported", None),
    "INTERSECT": (f"INTERSECT is not supported: {_ONE_SELECT}", None),
    "LATERAL": ("LATERAL is not supported: FROM takes streams and relations by name", None),
    "LIMIT": (
        "LIMIT is not supported: a continuous query has no last row",
        'if it is a name, write it in quotes: "limit"',
    ),
    "ORDER BY": (f"ORDER BY is not supported: {_NO_ORDER}", None),
    "QUALIFY": ("QUALIFY is not supported: there are no window functions", None),
    "SELECT": ("a query inside a query is not supported", "name the streams in FROM themselves"),
    "SORT BY": (f"SORT BY is not supported: {_NO_ORDER}", None),
    "TABLESAMPLE": ("TABLESAMPLE is not supported", "set a drop rate for the stream in the plan"),
    "UNION": (f"UNION is not supported: {_ONE_SELECT}", None),
    "USING": ("USING is not supported", "write the equality out: ON a.item = b.item"),
    "WITH": (f"WITH is not supported: {_ONE_SELECT} over streams and relations", None),
    "<<": ("<< is not supported", None),
    ">>": (">> is not supported", None),
    "::": (":: is not supported", "write CAST(x AS BIGINT)"),
    **dict.fromkeys(("?", "@", ":", "$"), _PARAMETER),
}

#: The same for a symbol directly after another one.
_REFUSED_AFTER: dict[tuple[str, str], tuple[str, str | None]] = {
    ("(", "DISTINCT"): ("DISTINCT inside an aggregate is not supported", None),
    ("*", "EXCEPT"): ("* EXCEPT is not supported", "name the columns"),
}

OUTER_JOINS = ("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "ASOF", "NATURAL")

#: Words after a call that belong to window functions and the like.
CALL_SUFFIXES: dict[str, str | None] = {
    "FILTER": "put the condition inside: SUM(CASE WHEN … THEN … END)",
    "OVER": "there are no window functions; windows follow the sources in FROM",
    "WITHIN": None,
}

_NO_PATTERNS = "regular expressions are not supported; LIKE, STARTS_WITH, ENDS_WITH and CONTAINS are"
_HINTS = {
    "ILIKE": "ILIKE is not supported; compare LOWER(x) LIKE 'a%'",
    "RLIKE": _NO_PATTERNS,
    "REGEXP": _NO_PATTERNS,
    "WINDOW": "WINDOW constraints belong between FROM and WHERE",
    "DWINDOW": "DWINDOW constraints belong between FROM and WHERE",
    "DIV": "write FLOOR(a / b)",
}


def find_refusal(token: Token, previous: Token) -> QueryError | None:
    """Return the error for a token that begins unsupported SQL, None for every other one."""
    if token.kind is not TokenKind.SYMBOL:
        return None
    reason = _REFUSED_AFTER.get((previous.text, token.text)) or _REFUSED.get(token.text)
    return None if reason is None else QueryError(reason[0], span=token.span, hint=reason[1])


def find_hint(token: Token, previous: Token) -> str | None:
    """Return what to write instead of an unexpected token."""
    if token.is_symbol("=") and previous.is_symbol("="):
        return "equality is a single ="
    return _HINTS.get(token.text.upper()) if token.kind in (TokenKind.NAME, TokenKind.SYMBOL) else None


def outer_join_error(token: Token) -> QueryError:
    return QueryError(
        f"{token.text} joins are not supported",
        span=token.span,
        hint="JOIN … ON, CROSS JOIN and commas are; a row without a partner gives no result",
    )
