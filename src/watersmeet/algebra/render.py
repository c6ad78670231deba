"""Printers of the neutral tree: query text, JSON, Mermaid; and HTML for notebooks.

Query text is canonical: `parse(format_query(q)) == q` for every query `q`. It has no parenthesis that could be left
out.

HTML escapes everything that comes from outside. It has no script and no style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import cast

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.query import Query
from watersmeet.algebra.schema import quote_name
from watersmeet.algebra.tree import Json, TreeNode, build_expression_tree, build_query_tree, format_type
from watersmeet.algebra.windows import format_sql_duration

__all__ = ["format_expression", "format_query", "format_type", "query_to_dict", "query_to_mermaid"]

_LONGEST_LABEL = 200


#: Binding strength; an operand gets parentheses where it binds looser than its place requires.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)

_NEGATED = {"in": "NOT IN", "between": "NOT BETWEEN", "like": "NOT LIKE", "is null": "IS NOT NULL"}
_POSITIVE = {"in": "IN", "between": "BETWEEN", "like": "LIKE", "is null": "IS NULL"}


def format_expression(expr: Expr) -> str:
    """Return the text of an expression.

    >>> from watersmeet.algebra.expressions import Arithmetic, Column
    >>> a, b, c = Column("a"), Column("b"), Column("c")
    >>> format_expression(Arithmetic("*", Arithmetic("+", a, b), c))
    '(a + b) * c'
    >>> format_expression(Arithmetic("+", Arithmetic("*", a, b), c))
    'a * b + c'
    """
    return format_node(build_expression_tree(expr))


def format_node(node: TreeNode) -> str:
    return _format_with_binding(node)[0]


def format_condition(node: TreeNode, between: str) -> str:
    """Return the text of a condition; the parts of a conjunction are joined with `between`, which contains an AND."""
    parts = node.parts if node.kind == "and" else (node,)
    return between.join(_format_operand(part, _AND + 1) if len(parts) > 1 else format_node(part) for part in parts)


def _format_operand(node: TreeNode, tightness: int) -> str:
    text, own = _format_with_binding(node)
    return text if own >= tightness else f"({text})"


def _format_with_binding(node: TreeNode) -> tuple[str, int]:
    """Return the text and its binding strength."""
    return _PRINTERS[node.kind](node)


def _chain_printer(word: str, own: int) -> Callable[[TreeNode], tuple[str, int]]:
    return lambda node: (f" {word} ".join(_format_operand(part, own + 1) for part in node.parts), own)


def _not(node: TreeNode) -> tuple[str, int]:
    (arg,) = node.parts
    if arg.kind in _NEGATED:
        return _test(arg, _NEGATED[arg.kind]), _TEST
    return f"NOT {_format_operand(arg, _TEST)}", _NOT


def _comparison(node: TreeNode) -> tuple[str, int]:
    left, right = node.parts
    return f"{_format_operand(left, _SUM)} {node.facts['op']} {_format_operand(right, _SUM)}", _TEST


def _arithmetic(node: TreeNode) -> tuple[str, int]:
    left, right = node.parts
    own = _SUM if node.facts["op"] in {"+", "-"} else _PRODUCT
    return f"{_format_operand(left, own)} {node.facts['op']} {_format_operand(right, own + 1)}", own


def _negate(node: TreeNode) -> tuple[str, int]:
    """Return the text of a negation.

    A minus directly before a number belongs to the number, and two minuses begin a comment. Both get parentheses.
    """
    (arg,) = node.parts
    return f"-{_format_operand(arg, _ATOM + 1 if arg.kind == 'literal' else _ATOM)}", _SIGN


def _test(node: TreeNode, word: str) -> str:
    subject = _format_operand(node.parts[0], _SUM)
    match node.kind:
        case "in":
            return f"{subject} {word} ({_args(node.parts[1:])})"
        case "between":
            return f"{subject} {word} {_format_operand(node.parts[1], _SUM)} AND {_format_operand(node.parts[2], _SUM)}"
        case "like":
            return f"{subject} {word} {_string(str(node.facts['pattern']))}"
        case _:
            return f"{subject} {word}"


def _literal(node: TreeNode) -> tuple[str, int]:
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
    """Return the text of a decimal.

    An integer that is too large for BIGINT is a decimal without a CAST; all others need one.
    """
    is_plain = kind.endswith(", 0)") and not -(2**63) <= int(text) < 2**63
    return text if is_plain else _cast_string(text, kind)


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


#: Formats of the constants that JSON holds as text, by the first word of their type.
_CONSTANTS: dict[str, Callable[[str, str], str]] = {
    "VARCHAR": lambda text, _: _string(text),
    "DATE": lambda text, _: f"DATE {_string(text)}",
    "TIMESTAMP": lambda text, _: f"TIMESTAMP {_string(text)}",
    "timestamp": lambda text, _: f"TIMESTAMP {_string(text)}",
    "duration": lambda text, _: f"INTERVAL {text}",
    "DECIMAL": _decimal,
}


def _args(nodes: Sequence[TreeNode]) -> str:
    return ", ".join(format_node(node) for node in nodes)


def _column(node: TreeNode) -> str:
    name, source = quote_name(str(node.facts["name"])), node.facts["source"]
    return name if source is None else f"{quote_name(str(source))}.{name}"


def _aggregate(node: TreeNode) -> str:
    args = [part for part in node.parts if part.kind != "filter"]
    call = f"{node.facts['function']}({_args(tuple(args)) or '*'})"
    return " ".join([call, *(format_node(part) for part in node.parts if part.kind == "filter")])


_ATOMS: dict[str, Callable[[TreeNode], str]] = {
    "column": _column,
    "case": lambda node: f"CASE {' '.join(format_node(part) for part in node.parts)} END",
    "when": lambda node: f"WHEN {format_node(node.parts[0])} THEN {format_node(node.parts[1])}",
    "else": lambda node: f"ELSE {format_node(node.parts[0])}",
    "call": lambda node: f"{node.facts['name']}({_args(node.parts)})",
    "cast": lambda node: f"CAST({format_node(node.parts[0])} AS {node.facts['type']})",
    "aggregate": _aggregate,
    "filter": lambda node: f"FILTER (WHERE {format_node(node.parts[0])})",
}

_PRINTERS: dict[str, Callable[[TreeNode], tuple[str, int]]] = {
    "or": _chain_printer("OR", _OR),
    "and": _chain_printer("AND", _AND),
    "not": _not,
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "negate": _negate,
    "literal": _literal,
    **{kind: partial(lambda word, node: (_test(node, word), _TEST), word) for kind, word in _POSITIVE.items()},
    **{kind: partial(lambda show, node: (show(node), _ATOM), show) for kind, show in _ATOMS.items()},
}


def format_query(query: Query) -> str:
    """Return the query as SQL, one clause per line."""
    return "\n".join(_CLAUSES[clause.kind](clause) for clause in build_query_tree(query).parts)


def query_to_dict(query: Query) -> dict[str, Json]:
    """Return the tree as plain dicts, lists, strings and numbers."""
    return _dict(build_query_tree(query))


def query_to_mermaid(query: Query) -> str:
    """Return the tree as a Mermaid flowchart, with each expression as the text of one box."""
    lines = ["flowchart TD"]
    _draw(build_query_tree(query), lines)
    return "\n".join(lines)


# --- clauses


def _list_clause(word: str, between: str, show: Callable[[TreeNode], str]) -> Callable[[TreeNode], str]:
    """Return the printer of a clause whose parts are separated by `between`."""

    def clause(node: TreeNode) -> str:
        return f"{word} {between.join(show(part) for part in node.parts)}"

    return clause


def _condition_clause(word: str) -> Callable[[TreeNode], str]:
    between = "\n" + "AND ".rjust(len(word) + 1)
    return lambda clause: f"{word} {format_condition(clause.parts[0], between)}"


def _select_item(item: TreeNode) -> str:
    if item.kind == "star":
        return "*" if item.facts["source"] is None else f"{_name(item, 'source')}.*"
    alias = "" if item.facts["alias"] is None else f" AS {_name(item, 'alias')}"
    return format_node(item.parts[0]) + alias


def _source(source: TreeNode) -> str:
    window = cast("dict[str, Json] | None", source.facts["window"])
    brackets = "" if window is None else f" [{window['text']}]"
    alias = "" if source.facts["alias"] == source.facts["name"] else f" AS {_name(source, 'alias')}"
    return f"{_name(source, 'name')}{brackets}{alias}"


def _constraint(constraint: TreeNode) -> str:
    length = _length(constraint)
    if constraint.kind == "all pairs":
        return f"WINDOW = {length}"
    word = "DWINDOW" if constraint.facts["directed"] else "WINDOW"
    return f"{word} ({_name(constraint, 'first')}, {_name(constraint, 'second')}) = {length}"


def _constraints(node: TreeNode) -> str:
    return "\n  AND ".join(_constraint(part) for part in node.parts)


def _emission(node: TreeNode) -> str:
    return f"EMIT {str(node.facts['mode']).upper()}" + (" WITH OPERATIONS" if node.facts["operations"] else "")


def _name(node: TreeNode, fact: str) -> str:
    return quote_name(str(node.facts[fact]))


def _length(node: TreeNode) -> str:
    return format_sql_duration(cast("int", node.facts["length_us"]))


_CLAUSES: dict[str, Callable[[TreeNode], str]] = {
    "select": _list_clause("SELECT", ", ", _select_item),
    "from": _list_clause("FROM", ",\n     ", _source),
    "window": _constraints,
    "where": _condition_clause("WHERE"),
    "group by": _list_clause("GROUP BY", ", ", format_node),
    "having": _condition_clause("HAVING"),
    "every": lambda node: f"EVERY {_length(node)}",
    "emit": _emission,
}

# --- JSON and Mermaid


def _dict(node: TreeNode) -> dict[str, Json]:
    parts: list[Json] = [_dict(part) for part in node.parts]
    return {"kind": node.kind, **node.facts, **({"parts": parts} if parts else {})}


def _draw(node: TreeNode, lines: list[str]) -> str:
    """Add the node and all below it; return the node's id."""
    name = f"n{len(lines) - 1}"
    lines.append(f'    {name}["{_label(_caption(node))}"]')
    if node.kind in _BRANCHING:
        for part in node.parts:
            lines.append(f"    {name} --> {_draw(part, lines)}")
    return name


_BRANCHING = {"query", *_CLAUSES}
_CAPTIONS: dict[str, Callable[[TreeNode], str]] = {
    "item": _select_item,
    "star": _select_item,
    "source": _source,
    "all pairs": _constraint,
    "pair": _constraint,
    "every": _CLAUSES["every"],
    "emit": _CLAUSES["emit"],
}


def _caption(node: TreeNode) -> str:
    if node.kind in _CAPTIONS:
        return _CAPTIONS[node.kind](node)
    return node.kind.upper() if node.kind in _BRANCHING else format_node(node)


def _label(text: str) -> str:
    """Escape everything but letters, digits and a few signs as Mermaid's character codes.

    So no name can end the label.

    >>> _label('a"]<b>')
    'a#34;#93;#60;b#62;'
    """
    cut = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return re.sub(r"[^\w .,:=*/%+…-]", lambda sign: f"#{ord(sign[0])};", cut)


_NUMBER = ' style="text-align: right; font-variant-numeric: tabular-nums"'


def html_table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str | None = None) -> str:
    """Return rows under heads; numbers, and text that begins with a digit, are right-aligned.

    >>> html_table(["name"], [["<b>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(_cell(each) for each in row)}</tr>" for row in rows)
    above = "" if caption is None else f'<caption style="text-align: left"><b>{escape(caption)}</b></caption>'
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_code(text: str) -> str:
    """Return preformatted text.

    >>> html_code("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def html_paragraph(text: str, *, strong: bool = False) -> str:
    shown = escape(text)
    return f"<p><b>{shown}</b></p>" if strong else f"<p>{shown}</p>"


def _cell(value: object) -> str:
    text = escape(str(value))
    return f"<td{_NUMBER}>{text}</td>" if text[:1].isdecimal() else f"<td>{text}</td>"
