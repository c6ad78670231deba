"""Everything of a run in one TOML file, so that a job is one file under version control.

query = "query.sql"            # a file beside this one; or sql = "SELECT ..."
out = "joined"                 # a file, a directory, "console" or "memory"
format = "parquet"
follow = true
shed = false                   # whether rows may be dropped if it cannot keep up
checkpoint = "checkpoint"

[budget]
processors = 2
memory = "4 GB"

[streams.orders]
path = "orders"
time = "ts"
lateness = "5 seconds"

[relations.items]
path = "items.csv"

Paths are beside the file, wherever the command is called from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watersmeet.api import Budget
from watersmeet.cli.budget import declared_budget
from watersmeet.errors import InputError, listing

STREAM_SETTINGS = ("time", "lateness", "idle")

_TEXT = ("query", "sql", "out", "format", "checkpoint", "engine")
_SWITCHES = ("follow", "shed")
_BUDGET = ("processors", "headroom", "memory")
_KEYS = (*_TEXT, *_SWITCHES, "budget", "streams", "relations")


@dataclass(frozen=True)
class JobFile:
    """What the file says; what it leaves out is None or empty."""

    query: str | None = None
    sql: str | None = None
    out: str | None = None
    format: str | None = None
    checkpoint: str | None = None
    engine: str | None = None
    follow: bool = False
    shed: bool = False
    budget: Budget | None = None
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    relations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_job(place: Path) -> JobFile:
    """The job in a file, every path in it made one that holds from here."""
    content = _content(place)
    _check(content, _KEYS, f"{place}")
    for key in _TEXT:
        if key in content and not isinstance(content[key], str):
            raise InputError(f"{place}: {key} must be text")
    for key in _SWITCHES:
        if not isinstance(content.get(key, False), bool):
            raise InputError(f"{place}: {key} must be true or false")
    beside: dict[str, str] = {key: str(place.parent / content[key]) for key in ("query", "checkpoint") if key in content}
    if "out" in content and content["out"] not in ("console", "memory"):
        beside["out"] = str(place.parent / content["out"])
    streams = _sources(place, content, "streams", ("path", *STREAM_SETTINGS), ("path", "time"))
    relations = _sources(place, content, "relations", ("path",), ("path",))
    budget = _budget(content["budget"], f"{place}: budget") if "budget" in content else None
    known: dict[str, Any] = {**content, **beside, "budget": budget, "streams": streams, "relations": relations}
    return JobFile(**known)


def _content(place: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f'job file "{place}" cannot be read: {error.strerror or error}') from error
    except (ValueError, RecursionError) as error:
        raise InputError(f'job file "{place}" is not TOML: {str(error)[:200]}') from error


def _sources(place: Path, content: dict[str, Any], kind: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, settings in _section(content.get(kind, {}), f"{place}: {kind}").items():
        where = f"{place}: {kind}.{name}"
        _check(_section(settings, where), known, where)
        for key in needed:
            if not isinstance(settings.get(key), str):
                raise InputError(f"{where} needs its {key}, as text", hint=f'write {key} = "..." in the section [{kind}.{name}]')
        found[name] = {**settings, "path": str(place.parent / settings["path"])}
    return found


def _budget(values: object, where: str) -> Budget | None:
    """What the machine gives; a size of memory is written as text with its unit, or as a number of bytes."""
    settings = _section(values, where)
    _check(settings, _BUDGET, where)
    for key in ("processors", "headroom"):
        if isinstance(settings.get(key, 0), bool) or not isinstance(settings.get(key, 0), int | float):
            raise InputError(f"{where}: {key} must be a number")
    memory = settings.get("memory")
    return declared_budget(settings.get("processors"), settings.get("headroom", 0.0), None if memory is None else str(memory))


def _section(values: object, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(f"{where} must be a section")
    return values


def _check(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            raise InputError(f'{where}: there is no setting "{key[:60]}"', hint=f"existing settings: {listing(known)}")
