"""Expressions as text: canonical, with no parenthesis that could be left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.names import name_text
from watersmeet.algebra.tree import Node, expression_tree

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
