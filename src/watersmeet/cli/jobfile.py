"""Job files: all options of a run in one TOML file, so that a job can be put under version control.

query = "query.sql"            # a file next to this one; or sql = "SELECT ..."
out = "joined"                 # a file, a directory, "console" or "memory"
format = "parquet"
follow = true
max_batch = "auto"             # rows of a batch of a growing input: a number, or those that fit its time and memory
shed = false                   # whether rows may be dropped if the query cannot keep up, or a section, see below
checkpoint = "checkpoint"
plan = "plan.json"             # pins a plan: a file of `explain --json`, or a section with the options of a plan
stats = "stats.toml"           # declared statistics; a source's own section `stats` takes precedence

[budget]
processors = 2
memory = "4 GB"
objective = "memory"           # the resource to minimize, by default "cpu"

[shed]                         # instead of shed = true: rows/s to keep at least, and weights of parts of the output
least = { orders = 100 }
weights = { orders = 2 }

[streams.orders]
path = "orders"
time = "ts"
unit = "ms"                    # of integer times; timestamps and dates need none
lateness = "5 seconds"

[streams.orders.stats]         # declared statistics, as in a statistics file
rate = 5000
predicates = { "orders.item = trades.item" = 0.001, "orders.note LIKE '%x%'" = { selectivity = 0.1, cost_us = 3 } }

[streams.trades]               # any source that Spark reads itself, with --engine spark
format = "kafka"
options = { "kafka.bootstrap.servers" = "localhost:9092", subscribe = "trades" }
value = "json"
schema = { item = "string", price = "double", ts = "timestamp" }
time = "ts"
on_error = "divert"            # messages that cannot be read: "stop" (the default), "skip" or "divert"
diverted = "diverted"          # directory of diverted messages

[relations.items]
path = "items.csv"
stats = { rows = 20000 }

[spark]                        # settings of the session, with or without "spark." before them
jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"

Paths are relative to the job file, not to the current directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.api import Budget
from watersmeet.errors import InputError, listing
from watersmeet.files import read_text_file, read_toml_file
from watersmeet.planner.models.ayad_drops import SheddingPolicy
from watersmeet.runtime.batch_limit import check_max_batch
from watersmeet.stats.stream_stats import StreamStats, parse_stats, read_stats

STREAM_SETTINGS = ("time", "unit", "lateness", "idle")

#: Settings of a stream that Spark reads itself, instead of a path.
FORMAT_SETTINGS = ("format", "options", "schema", "value", "on_error", "diverted")

_TEXT_KEYS = ("query", "sql", "out", "format", "checkpoint", "engine")
_BUDGET_KEYS = ("processors", "headroom", "memory", "objective")
_SHED_KEYS = ("least", "weights")
_KEYS = (*_TEXT_KEYS, "follow", "max_batch", "shed", "plan", "stats", "budget", "streams", "relations", "spark")


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
    max_batch: int | str | None = None
    shed: bool | SheddingPolicy = False
    plan: Plan | None = None
    budget: Budget | None = None
    stats: Mapping[str, StreamStats] = field(default_factory=dict)
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
    if not isinstance(content.get("follow", False), bool):
        raise InputError(f"{place}: follow must be true or false")
    check_max_batch(content.get("max_batch"))
    resolved: dict[str, str] = {
        key: str(place.parent / content[key]) for key in ("query", "checkpoint") if key in content
    }
    if "out" in content and content["out"] not in ("console", "memory"):
        resolved["out"] = str(place.parent / content["out"])
    stats = _read_stats_file(place, content.get("stats"))
    known_settings = ("path", *STREAM_SETTINGS, *FORMAT_SETTINGS)
    streams = _read_sources(place, content, "streams", known_settings, ("path", "time"), stats)
    relations = _read_sources(place, content, "relations", ("path",), ("path",), stats)
    spark = {
        _full_setting_name(name): text
        for name, text in flatten_section(content.get("spark", {}), f"{place}: spark").items()
    }
    budget = _read_budget(content["budget"], f"{place}: budget") if "budget" in content else None
    known: dict[str, Any] = {
        **content,
        **resolved,
        "shed": _read_shed(content.get("shed", False), f"{place}: shed"),
        "plan": _read_plan(place, content.get("plan")),
        "stats": stats,
        "budget": budget,
        "streams": streams,
        "relations": relations,
        "spark": spark,
    }
    return JobFile(**known)


def _read_sources(
    place: Path,
    content: dict[str, Any],
    kind: str,
    known: tuple[str, ...],
    needed: tuple[str, ...],
    stats: dict[str, StreamStats],
) -> dict[str, dict[str, Any]]:
    """Read the sections of streams or relations, and add their declared statistics to `stats`."""
    found: dict[str, dict[str, Any]] = {}
    for name, settings in _require_section(content.get(kind, {}), f"{place}: {kind}").items():
        where = f"{place}: {kind}.{name}"
        _refuse_unknown_settings(_require_section(settings, where), (*known, "stats"), where)
        if "stats" in settings:
            stats[name] = parse_stats(settings.pop("stats"), f"{where}.stats")
        read_by_spark = "format" in settings
        for key in needed:
            if not (read_by_spark and key == "path") and not isinstance(settings.get(key), str):
                raise InputError(
                    f"{where} needs its {key}, as text", hint=f'write {key} = "..." in the section [{kind}.{name}]'
                )
        found[name] = (
            _read_spark_settings(place, settings, where)
            if read_by_spark
            else {**settings, "path": str(place.parent / settings["path"])}
        )
    return found


def _read_spark_settings(place: Path, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    if "path" in settings:
        raise InputError(
            f"{where} has a path and a format",
            hint='write a path that Spark reads as an option: options = { path = "..." }',
        )
    sections = {key: flatten_section(settings.get(key, {}), f"{where}.{key}") for key in ("options", "schema")}
    for key in ("on_error", "diverted"):
        if not isinstance(settings.get(key, ""), str):
            raise InputError(f"{where}: {key} must be text")
    placed = {"diverted": str(place.parent / settings["diverted"])} if "diverted" in settings else {}
    return {**settings, **sections, **placed}


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
        settings.get("processors"),
        settings.get("headroom", 0.0),
        None if memory is None else str(memory),
        settings.get("objective"),
    )


def _read_shed(value: object, where: str) -> bool | SheddingPolicy:
    if isinstance(value, bool):
        return value
    settings = _require_section(value, where)
    _refuse_unknown_settings(settings, _SHED_KEYS, where)
    least, weights = (_read_numbers(settings.get(key, {}), f"{where}.{key}") for key in _SHED_KEYS)
    return SheddingPolicy(least, weights)


def _read_numbers(values: object, where: str) -> dict[str, float]:
    section = _require_section(values, where)
    for name, value in section.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{where}.{name} must be a number")
    return section


def _read_stats_file(place: Path, value: object) -> dict[str, StreamStats]:
    if value is None:
        return {}
    if not isinstance(value, str):
        raise InputError(f"{place}: stats must be the name of a file")
    return dict(read_stats(place.parent / value))


def _read_plan(place: Path, value: object) -> Plan | None:
    if value is None:
        return None
    return read_plan_file(place.parent / value) if isinstance(value, str) else parse_plan(value, f"{place}: plan")


def read_plan_file(path: Path) -> Plan:
    """Read a plan from a JSON file: the output of `explain --json`, or the plan in it alone."""
    try:
        content = json.loads(read_text_file(path, "plan file"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", hint="write it with `watersmeet explain --json`") from error
    return parse_plan(content["plan"] if isinstance(content, dict) and "plan" in content else content, f"{path}")


def parse_plan(values: object, where: str) -> Plan:
    """Return the plan with these options, named as in `explain --json`."""
    if not isinstance(values, dict):
        raise InputError(f"{where} is not a plan", hint='a plan has options: { algorithm = "eager-hash" }')
    try:
        return Plan.from_dict(values)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where} is not a plan: {error}", hint="compare it with `watersmeet explain --json`"
        ) from error


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


def parse_budget(
    processors: float | None, headroom: float, memory: str | None, objective: str | None = None
) -> wm.Budget | None:
    """Return the budget that the options declare, or None if they declare none.

    >>> parse_budget(2.0, 0.25, "500 MB")
    Budget(processors=2.0, headroom=0.25, memory_bytes=500000000.0, objective='cpu', delay_s=0.0)
    """
    if processors is None and not headroom and memory is None and objective is None:
        return None
    return wm.Budget(
        1.0 if processors is None else processors,
        headroom,
        None if memory is None else _parse_size_bytes(memory),
        objective or "cpu",
    )


def _parse_size_bytes(text: str) -> float:
    size = _SIZE_PATTERN.fullmatch(text.strip())
    if size is None:
        raise InputError(f'--memory "{text[:40]}" is not a size', hint="write 500MB, 2GB or a number of bytes")
    return float(size[1]) * _BYTES_PER_UNIT[(size[2] or "").upper()]
