"""Tables on a terminal. What comes out of data is text, never markup and never a control sequence."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDEST_CELL = 60
_WIDTH_WITHOUT_TERMINAL = 160


def console(*, stderr: bool = False) -> Console:
    """Where to print: as wide as the terminal, or wide enough when there is none."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def rows_as_table(rows: pa.Table, limit: int) -> Table:
    """The first `limit` rows, one line each."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for field in rows.schema:
        shown.add_column(
            Text(printable(field.name)), justify="right" if _is_number(field.type) else "left", no_wrap=True
        )
    for row in zip(*(column.to_pylist() for column in rows.slice(0, limit).columns), strict=True):
        shown.add_row(*(Text(cell(value)) for value in row))
    return shown


def counted(rows: pa.Table, limit: int) -> str:
    """
    >>> counted(pa.table({"a": range(30)}), 20)
    '30 rows, the first 20 shown'
    """
    return several(rows.num_rows, "row") + (f", the first {limit:,} shown" if rows.num_rows > limit else "")


def several(count: int, noun: str) -> str:
    """
    >>> several(1, "row"), several(2000, "row"), several(2, "batch")
    ('1 row', '2,000 rows', '2 batches')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def late_rows(rows: pa.Table) -> list[str]:
    """A sentence for every stream some of whose rows came too late to be joined."""
    return _said_of(rows, "late", "came late and were left out")


def shed_rows(rows: pa.Table) -> list[str]:
    """A sentence for every stream some of whose rows were dropped to keep up."""
    return _said_of(rows, "shed", "were shed to keep up")


def _said_of(rows: pa.Table, fate: str, words: str) -> list[str]:
    about = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
    return [
        f"{entry[fate]:,} of {entry['arrived']:,} rows of {printable(name)} {words}"
        for name, entry in about.get("ledger", {}).items()
        if entry[fate]
    ]


def cell(value: Any) -> str:
    """A value on one line.

    >>> import datetime as dt
    >>> cell(dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)), cell(None), cell("a\\x1b[31m")
    ('2013-01-01 10:15:00+00:00', 'NULL', 'a\\\\x1b[31m')
    """
    if value is None:
        return "NULL"
    words = printable(str(value))
    return words if len(words) <= _WIDEST_CELL else words[: _WIDEST_CELL - 1] + "…"


def printable(text: str) -> str:
    """The text with every character that could steer a terminal spelled out."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "backslashreplace").decode() for sign in text
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
