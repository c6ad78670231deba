"""Printers of the neutral tree: query text, JSON, Mermaid.

Query text is canonical: `parse(query_text(q)) == q` for every query `q`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from watersmeet.algebra.expression_text import condition_text, expression_text, node_text
from watersmeet.algebra.names import name_text
from watersmeet.algebra.query import Query
from watersmeet.algebra.tree import Json, Node, query_tree, type_text
from watersmeet.algebra.windows import duration_text

__all__ = ["expression_text", "query_dict", "query_mermaid", "query_text", "type_text"]

_LONGEST_LABEL = 200


def query_text(query: Query) -> str:
    """The query in its own language, a clause a line."""
    return "\n".join(_CLAUSES[clause.kind](clause) for clause in query_tree(query).parts)


def query_dict(query: Query) -> dict[str, Json]:
    """The tree as plain dicts, lists, strings and numbers."""
    return _dict(query_tree(query))


def query_mermaid(query: Query) -> str:
    """The tree as a Mermaid flowchart, expressions as the text of one box."""
    lines = ["flowchart TD"]
    _draw(query_tree(query), lines)
    return "\n".join(lines)


# --- clauses
# ----------------------------------------------------------------------------------------------------------------------------


def _listed(word: str, between: str, show: Callable[[Node], str]) -> Callable[[Node], str]:
    """A clause whose parts stand below one another where `between` says so."""

    def clause(node: Node) -> str:
        return f"{word} {between.join(show(part) for part in node.parts)}"

    return clause


def _condition(word: str) -> Callable[[Node], str]:
    between = "\n" + "AND ".rjust(len(word) + 1)
    return lambda clause: f"{word} {condition_text(clause.parts[0], between)}"


def _select_item(item: Node) -> str:
    if item.kind == "star":
        return "*" if item.facts["source"] is None else f"{_name(item, 'source')}.*"
    alias = "" if item.facts["alias"] is None else f" AS {_name(item, 'alias')}"
    return node_text(item.parts[0]) + alias


def _source(source: Node) -> str:
    window = cast("dict[str, Json] | None", source.facts["window"])
    brackets = "" if window is None else f" [{window['text']}]"
    alias = "" if source.facts["alias"] == source.facts["name"] else f" AS {_name(source, 'alias')}"
    return f"{_name(source, 'name')}{brackets}{alias}"


def _constraint(constraint: Node) -> str:
    length = _length(constraint)
    if constraint.kind == "all pairs":
        return f"WINDOW = {length}"
    word = "DWINDOW" if constraint.facts["directed"] else "WINDOW"
    return f"{word} ({_name(constraint, 'first')}, {_name(constraint, 'second')}) = {length}"


def _constraints(node: Node) -> str:
    return "\n  AND ".join(_constraint(part) for part in node.parts)


def _name(node: Node, fact: str) -> str:
    return name_text(str(node.facts[fact]))


def _length(node: Node) -> str:
    return duration_text(cast("int", node.facts["length_us"]))


_CLAUSES: dict[str, Callable[[Node], str]] = {
    "select": _listed("SELECT", ", ", _select_item),
    "from": _listed("FROM", ",\n     ", _source),
    "window": _constraints,
    "where": _condition("WHERE"),
    "group by": _listed("GROUP BY", ", ", node_text),
    "having": _condition("HAVING"),
    "every": lambda node: f"EVERY {_length(node)}",
}

# --- JSON and pictures
# ------------------------------------------------------------------------------------------------------------------


def _dict(node: Node) -> dict[str, Json]:
    parts: list[Json] = [_dict(part) for part in node.parts]
    return {"kind": node.kind, **node.facts, **({"parts": parts} if parts else {})}


def _draw(node: Node, lines: list[str]) -> str:
    """Adds the node and all below it; the node's id."""
    name = f"n{len(lines) - 1}"
    lines.append(f'    {name}["{_label(_caption(node))}"]')
    if node.kind in _BRANCHING:
        for part in node.parts:
            lines.append(f"    {name} --> {_draw(part, lines)}")
    return name


_BRANCHING = {"query", *_CLAUSES}
_CAPTIONS: dict[str, Callable[[Node], str]] = {
    "item": _select_item,
    "star": _select_item,
    "source": _source,
    "all pairs": _constraint,
    "pair": _constraint,
    "every": _CLAUSES["every"],
}


def _caption(node: Node) -> str:
    if node.kind in _CAPTIONS:
        return _CAPTIONS[node.kind](node)
    return node.kind.upper() if node.kind in _BRANCHING else node_text(node)


def _label(text: str) -> str:
    """Letters, digits and a few signs as they are, everything else as Mermaid's character codes, so that no name can
    end the label.

    >>> _label('a"]<b>')
    'a#34;#93;#60;b#62;'
    """
    cut = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return re.sub(r"[^\w .,:=*/%+…-]", lambda sign: f"#{ord(sign[0])};", cut)
