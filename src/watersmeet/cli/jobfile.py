"""Job files: all options of a run in one TOML file, so that a job can be put under version control.

query = "query.sql"            # a file next to this one; or sql = "SELECT ..."
out = "joined"                 # a file, a directory, "console" or "memory"
format = "parquet"
follow = true
shed = false                   # whether rows may be dropped if the query cannot keep up
checkpoint = "checkpoint"

[budget]
processors = 2
memory = "4 GB"

[streams.orders]
path = "orders"
time = "ts"
unit = "ms"                    # of integer times; timestamps and dates need none
lateness = "5 seconds"

[streams.trades]               # any source that Spark reads itself, with --engine spark
format = "kafka"
options = { "kafka.bootstrap.servers" = "localhost:9092", subscribe = "trades" }
value = "json"
schema = { item = "string", price = "double", ts = "timestamp" }
time = "ts"

[relations.items]
path = "items.csv"

[spark]                        # settings of the session, with or without "spark." before them
jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"

Paths are relative to the job file, not to the current directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import watersmeet as wm
from watersmeet.api import Budget
from watersmeet.errors import InputError, listing
from watersmeet.files import read_toml_file

STREAM_SETTINGS = ("time", "unit", "lateness", "idle")

#: Settings of a stream that Spark reads itself, instead of a path.
FORMAT_SETTINGS = ("format", "options", "schema", "value")

_TEXT_KEYS = ("query", "sql", "out", "format", "checkpoint", "engine")
_SWITCH_KEYS = ("follow", "shed")
_BUDGET_KEYS = ("processors", "headroom", "memory")
_KEYS = (*_TEXT_KEYS, *_SWITCH_KEYS, "budget", "streams", "relations", "spark")


@dataclass(frozen=True)
class JobFile:
    """Content of a job file. A setting that the file omits is None or empty."""

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
    spark: Mapping[str, str] = field(default_factory=dict)


def read_job_file(place: Path) -> JobFile:
    """Read a job file and resolve its paths against the directory of the file."""
    content = read_toml_file(place, "job file")
    _refuse_unknown_settings(content, _KEYS, f"{place}")
    for key in _TEXT_KEYS:
        if key in content and not isinstance(content[key], str):
            raise InputError(f"{place}: {key} must be text")
    for key in _SWITCH_KEYS:
        if not isinstance(content.get(key, False), bool):
            raise InputError(f"{place}: {key} must be true or false")
    resolved: dict[str, str] = {
        key: str(place.parent / content[key]) for key in ("query", "checkpoint") if key in content
    }
    if "out" in content and content["out"] not in ("console", "memory"):
        resolved["out"] = str(place.parent / content["out"])
    streams = _read_sources(place, content, "streams", ("path", *STREAM_SETTINGS, *FORMAT_SETTINGS), ("path", "time"))
    relations = _read_sources(place, content, "relations", ("path",), ("path",))
    spark = {
        _full_setting_name(name): text
        for name, text in flatten_section(content.get("spark", {}), f"{place}: spark").items()
    }
    budget = _read_budget(content["budget"], f"{place}: budget") if "budget" in content else None
    known: dict[str, Any] = {
        **content,
        **resolved,
        "budget": budget,
        "streams": streams,
        "relations": relations,
        "spark": spark,
    }
    return JobFile(**known)


def _read_sources(
    place: Path, content: dict[str, Any], kind: str, known: tuple[str, ...], needed: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, settings in _require_section(content.get(kind, {}), f"{place}: {kind}").items():
        where = f"{place}: {kind}.{name}"
        _refuse_unknown_settings(_require_section(settings, where), known, where)
        read_by_spark = "format" in settings
        for key in needed:
            if not (read_by_spark and key == "path") and not isinstance(settings.get(key), str):
                raise InputError(
                    f"{where} needs its {key}, as text", hint=f'write {key} = "..." in the section [{kind}.{name}]'
                )
        found[name] = (
            _read_spark_settings(settings, where)
            if read_by_spark
            else {**settings, "path": str(place.parent / settings["path"])}
        )
    return found


def _read_spark_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    if "path" in settings:
        raise InputError(
            f"{where} has a path and a format",
            hint='write a path that Spark reads as an option: options = { path = "..." }',
        )
    sections = {key: flatten_section(settings.get(key, {}), f"{where}.{key}") for key in ("options", "schema")}
    return {**settings, **sections}


def flatten_section(values: object, where: str) -> dict[str, str]:
    """Flatten nested sections: join names with dots and turn values into the text that Spark accepts.

    >>> flatten_section({"jars": {"packages": "a"}, "sql.ansi.enabled": True}, "spark")
    {'jars.packages': 'a', 'sql.ansi.enabled': 'true'}
    """
    found: dict[str, str] = {}
    for name, value in _require_section(values, where).items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": text for inner, text in flatten_section(value, f"{where}.{name}").items()}
        elif isinstance(value, str | int | float):
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise InputError(f"{where}.{name} must be text, a number, true or false")
    return found


def _full_setting_name(setting: str) -> str:
    return setting if setting.startswith("spark.") else f"spark.{setting}"


def _read_budget(values: object, where: str) -> Budget | None:
    """Read the budget section. Memory is text with a unit, or a number of bytes."""
    settings = _require_section(values, where)
    _refuse_unknown_settings(settings, _BUDGET_KEYS, where)
    for key in ("processors", "headroom"):
        if isinstance(settings.get(key, 0), bool) or not isinstance(settings.get(key, 0), int | float):
            raise InputError(f"{where}: {key} must be a number")
    memory = settings.get("memory")
    return parse_budget(
        settings.get("processors"), settings.get("headroom", 0.0), None if memory is None else str(memory)
    )


def _require_section(values: object, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(f"{where} must be a section")
    return values


def _refuse_unknown_settings(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            raise InputError(f'{where}: there is no setting "{key[:60]}"', hint=f"existing settings: {listing(known)}")


_SIZE_PATTERN = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(kB|MB|GB|TB|B)?", re.IGNORECASE)
_BYTES_PER_UNIT = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_budget(processors: float | None, headroom: float, memory: str | None) -> wm.Budget | None:
    """Return the budget that the options declare, or None if they declare none.

    >>> parse_budget(2.0, 0.25, "500 MB")
    Budget(processors=2.0, headroom=0.25, memory_bytes=500000000.0, objective='cpu')
    """
    if processors is None and not headroom and memory is None:
        return None
    return wm.Budget(
        1.0 if processors is None else processors, headroom, None if memory is None else _parse_size_bytes(memory)
    )


def _parse_size_bytes(text: str) -> float:
    size = _SIZE_PATTERN.fullmatch(text.strip())
    if size is None:
        raise InputError(f'--memory "{text[:40]}" is not a size', hint="write 500MB, 2GB or a number of bytes")
    return float(size[1]) * _BYTES_PER_UNIT[(size[2] or "").upper()]
