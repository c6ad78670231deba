"""Printers of the neutral tree: query text, JSON, Mermaid.

Query text is canonical: `parse(query_text(q)) == q` for every query `q`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import cast

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.names import name_text
from watersmeet.algebra.query import Query
from watersmeet.algebra.tree import Json, Node, expression_tree, query_tree, type_text
from watersmeet.algebra.windows import duration_text

__all__ = ["expression_text", "query_dict", "query_mermaid", "query_text", "type_text"]

_LONGEST_LABEL = 200


#: How tightly things bind; an operand is put in parentheses where it binds looser than its place asks for.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)

_NEGATED = {"in": "NOT IN", "between": "NOT BETWEEN", "like": "NOT LIKE", "is null": "IS NOT NULL"}
_AFFIRMED = {"in": "IN", "between": "BETWEEN", "like": "LIKE", "is null": "IS NULL"}


def expression_text(expr: Expr) -> str:
    """
    >>> from watersmeet.algebra.expressions import Arithmetic, Column
    >>> a, b, c = Column("a"), Column("b"), Column("c")
    >>> expression_text(Arithmetic("*", Arithmetic("+", a, b), c)), expression_text(Arithmetic("+", Arithmetic("*", a, b), c))
    ('(a + b) * c', 'a * b + c')
    """
    return node_text(expression_tree(expr))


def node_text(node: Node) -> str:
    return _printed(node)[0]


def condition_text(node: Node, between: str) -> str:
    """A condition; the parts of a conjunction are joined with `between`, which has an AND in it."""
    parts = node.parts if node.kind == "and" else (node,)
    return between.join(_operand(part, _AND + 1) if len(parts) > 1 else node_text(part) for part in parts)


def _operand(node: Node, tightness: int) -> str:
    text, own = _printed(node)
    return text if own >= tightness else f"({text})"


def _printed(node: Node) -> tuple[str, int]:
    """The text and how tightly it binds."""
    return _PRINTERS[node.kind](node)


def _chain(word: str, own: int) -> Callable[[Node], tuple[str, int]]:
    return lambda node: (f" {word} ".join(_operand(part, own + 1) for part in node.parts), own)


def _not(node: Node) -> tuple[str, int]:
    (arg,) = node.parts
    if arg.kind in _NEGATED:
        return _test(arg, _NEGATED[arg.kind]), _TEST
    return f"NOT {_operand(arg, _TEST)}", _NOT


def _comparison(node: Node) -> tuple[str, int]:
    left, right = node.parts
    return f"{_operand(left, _SUM)} {node.facts['op']} {_operand(right, _SUM)}", _TEST


def _arithmetic(node: Node) -> tuple[str, int]:
    left, right = node.parts
    own = _SUM if node.facts["op"] in {"+", "-"} else _PRODUCT
    return f"{_operand(left, own)} {node.facts['op']} {_operand(right, own + 1)}", own


def _negate(node: Node) -> tuple[str, int]:
    """A minus right before a number belongs to the number, and two minuses begin a comment: both get parentheses."""
    (arg,) = node.parts
    return f"-{_operand(arg, _ATOM + 1 if arg.kind == 'literal' else _ATOM)}", _SIGN


def _test(node: Node, word: str) -> str:
    subject = _operand(node.parts[0], _SUM)
    match node.kind:
        case "in":
            return f"{subject} {word} ({_args(node.parts[1:])})"
        case "between":
            return f"{subject} {word} {_operand(node.parts[1], _SUM)} AND {_operand(node.parts[2], _SUM)}"
        case "like":
            return f"{subject} {word} {_string(str(node.facts['pattern']))}"
        case _:
            return f"{subject} {word}"


def _literal(node: Node) -> tuple[str, int]:
    value, kind = node.facts["value"], str(node.facts["type"])
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value], _ATOM
    if isinstance(value, int | float):
        text = repr(value)
    else:
        show = _CONSTANTS.get(re.split(r"[\[(]", kind)[0], _cast_string)
        text = show(str(value), kind)
    return text, _SIGN if text.startswith("-") else _ATOM


def _cast_string(text: str, kind: str) -> str:
    return f"CAST({_string(text)} AS {kind})"


def _decimal(text: str, kind: str) -> str:
    """Whole numbers too large for BIGINT are decimals as they stand; all others have to say so."""
    is_plain = kind.endswith(", 0)") and not -(2**63) <= int(text) < 2**63
    return text if is_plain else _cast_string(text, kind)


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


#: How constants are written that JSON holds as text, by the word their type begins with.
_CONSTANTS: dict[str, Callable[[str, str], str]] = {
    "VARCHAR": lambda text, _: _string(text),
    "DATE": lambda text, _: f"DATE {_string(text)}",
    "TIMESTAMP": lambda text, _: f"TIMESTAMP {_string(text)}",
    "timestamp": lambda text, _: f"TIMESTAMP {_string(text)}",
    "duration": lambda text, _: f"INTERVAL {text}",
    "DECIMAL": _decimal,
}


def _args(nodes: Sequence[Node]) -> str:
    return ", ".join(node_text(node) for node in nodes)


def _column(node: Node) -> str:
    name, source = name_text(str(node.facts["name"])), node.facts["source"]
    return name if source is None else f"{name_text(str(source))}.{name}"


_ATOMS: dict[str, Callable[[Node], str]] = {
    "column": _column,
    "case": lambda node: f"CASE {' '.join(node_text(part) for part in node.parts)} END",
    "when": lambda node: f"WHEN {node_text(node.parts[0])} THEN {node_text(node.parts[1])}",
    "else": lambda node: f"ELSE {node_text(node.parts[0])}",
    "call": lambda node: f"{node.facts['name']}({_args(node.parts)})",
    "cast": lambda node: f"CAST({node_text(node.parts[0])} AS {node.facts['type']})",
    "aggregate": lambda node: f"{node.facts['function']}({_args(node.parts) or '*'})",
}

_PRINTERS: dict[str, Callable[[Node], tuple[str, int]]] = {
    "or": _chain("OR", _OR),
    "and": _chain("AND", _AND),
    "not": _not,
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "negate": _negate,
    "literal": _literal,
    **{kind: partial(lambda word, node: (_test(node, word), _TEST), word) for kind, word in _AFFIRMED.items()},
    **{kind: partial(lambda show, node: (show(node), _ATOM), show) for kind, show in _ATOMS.items()},
}


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


_NUMBER = ' style="text-align: right; font-variant-numeric: tabular-nums"'


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str | None = None) -> str:
    """Rows under heads; numbers, and text that begins with a digit, stand to the right.

    >>> table(["name"], [["<b>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(_cell(each) for each in row)}</tr>" for row in rows)
    above = "" if caption is None else f'<caption style="text-align: left"><b>{escape(caption)}</b></caption>'
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def code(text: str) -> str:
    """
    >>> code("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def paragraph(text: str, *, strong: bool = False) -> str:
    shown = escape(text)
    return f"<p><b>{shown}</b></p>" if strong else f"<p>{shown}</p>"


def _cell(value: object) -> str:
    text = escape(str(value))
    return f"<td{_NUMBER}>{text}</td>" if text[:1].isdecimal() else f"<td>{text}</td>"
