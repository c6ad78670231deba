"""Values as HTML for notebooks. Everything that comes from outside is escaped; there is no script and no style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

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
