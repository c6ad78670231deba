"""Output on a terminal: tables of rows, and sentences about late and shed rows.

Names and values come from outside. They are printed as text, never as markup or as a control sequence.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from watersmeet.errors import escape_controls
from watersmeet.units import pluralize

_MAX_CELL_WIDTH = 60
_WIDTH_WITHOUT_TERMINAL = 160

LATE_SENTENCE = "late rows dropped from"
SHED_SENTENCE = "rows shed to keep up from"


def make_console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or of a fixed width if the output is no terminal."""
    screen = Console(stderr=stderr, highlight=False)
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def render_rows(rows: pa.Table, limit: int) -> Table:
    """Render the first `limit` rows, one line each."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in rows.schema:
        table.add_column(
            Text(escape_controls(column.name)),
            justify="right" if _is_number(column.type) else "left",
            no_wrap=True,
        )
    for row in zip(*(column.to_pylist() for column in rows.slice(0, limit).columns), strict=True):
        table.add_row(*(Text(format_cell(value)) for value in row))
    return table


def describe_row_count(rows: pa.Table, limit: int) -> str:
    """Say how many rows there are, and how many of them are shown.

    >>> describe_row_count(pa.table({"a": range(30)}), 20)
    '30 rows, the first 20 shown'
    """
    return pluralize(rows.num_rows, "row") + (f", the first {limit:,} shown" if rows.num_rows > limit else "")


def describe_late_rows(rows: pa.Table) -> list[str]:
    """Return a sentence for every stream with late rows."""
    return _describe_ledger(rows, "late", LATE_SENTENCE)


def describe_shed_rows(rows: pa.Table) -> list[str]:
    """Return a sentence for every stream with shed rows."""
    return _describe_ledger(rows, "shed", SHED_SENTENCE)


def _describe_ledger(rows: pa.Table, entry_key: str, sentence: str) -> list[str]:
    about = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
    return [
        describe_dropped_rows(sentence, name, entry[entry_key], entry["arrived"])
        for name, entry in about.get("ledger", {}).items()
        if entry[entry_key]
    ]


def describe_dropped_rows(sentence: str, name: str, dropped: int, arrived: int) -> str:
    """Return the sentence with its counts.

    >>> describe_dropped_rows("late rows dropped from", "a", 3, 1000)
    '3 late rows dropped from a, of 1,000 that arrived'
    """
    return f"{dropped:,} {sentence} {escape_controls(name)}, of {arrived:,} that arrived"


def format_cell(value: Any) -> str:
    """Format a value on one line.

    >>> import datetime as dt
    >>> format_cell(dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)), format_cell(None), format_cell("a\\x1b[31m")
    ('2013-01-01 10:15:00+00:00', 'NULL', 'a\\\\x1b[31m')
    """
    if value is None:
        return "NULL"
    text = escape_controls(str(value))
    return text if len(text) <= _MAX_CELL_WIDTH else text[: _MAX_CELL_WIDTH - 1] + "…"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
