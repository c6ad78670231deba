"""What a query shows of a group: its keys, its aggregates, and expressions over both."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from watersmeet.algebra.expressions import Aggregate, Column, Expr, walk
from watersmeet.algebra.query import BoundQuery, Output

#: The alias under which a group's keys and aggregates stand in its row; no source can be called so.
GROUP = ""


@dataclass(frozen=True, slots=True)
class GroupOutputs:
    """Outputs and HAVING over the columns `key 0, key 1, …` and `aggregate 0, …` of a group's row."""

    keys: tuple[Expr, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    having: Expr | None


def build_group_outputs(bound: BoundQuery) -> GroupOutputs:
    """The outputs of an aggregation query, with every key and every aggregate replaced by its column."""
    written = [*(output.expr for output in bound.outputs), *([] if bound.having is None else [bound.having])]
    aggregates = tuple(dict.fromkeys(node for expr in written for node in walk(expr) if isinstance(node, Aggregate)))
    columns: dict[Expr, Expr] = {key: Column(key_name(number), GROUP) for number, key in enumerate(bound.group_by)}
    columns |= {aggregate: Column(aggregate_name(number), GROUP) for number, aggregate in enumerate(aggregates)}
    return GroupOutputs(
        keys=bound.group_by,
        aggregates=aggregates,
        outputs=tuple(Output(output.name, _replace_by_columns(output.expr, columns)) for output in bound.outputs),
        having=None if bound.having is None else _replace_by_columns(bound.having, columns),
    )


def key_name(number: int) -> str:
    return f"key {number}"


def aggregate_name(number: int) -> str:
    return f"aggregate {number}"


def _replace_by_columns(expr: Expr, columns: dict[Expr, Expr]) -> Expr:
    """From the outside in: a key may be an expression whose parts are keys themselves."""
    if expr in columns:
        return columns[expr]
    changed = {
        part.name: _replace_inside(getattr(expr, part.name), columns) for part in fields(expr) if part.name != "span"
    }
    return replace(expr, **changed)


def _replace_inside(value: Any, columns: dict[Expr, Expr]) -> Any:
    if isinstance(value, Expr):
        return _replace_by_columns(value, columns)
    if isinstance(value, tuple):
        return tuple(_replace_inside(part, columns) for part in value)
    return value
