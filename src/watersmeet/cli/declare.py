"""Streams and relations as options of the command line: `NAME=PATH,time=COLUMN,lateness=5s,idle=1m`.

Settings are read from the right, so a path may have commas and equals signs in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import watersmeet as wm
from watersmeet.errors import InputError
from watersmeet.runtime.sources import Relation, Stream

_STREAM_SETTINGS = ("time", "lateness", "idle")
_SETTING = re.compile(r"(\w+)=(.*)", re.DOTALL)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(kB|MB|GB|TB|B)?", re.IGNORECASE)
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def declared_sources(streams: Iterable[str], relations: Iterable[str]) -> dict[str, Stream | Relation]:
    """All sources by name; a name given twice is refused."""
    found: dict[str, Stream | Relation] = {}
    for text in streams:
        _add(found, *declared_stream(text))
    for text in relations:
        _add(found, *declared_relation(text))
    return found


def declared_stream(text: str) -> tuple[str, Stream]:
    name, path, settings = split(text, "--stream", _STREAM_SETTINGS)
    if "time" not in settings:
        raise InputError(f'stream "{name}" has no time column', hint=f"say which column is its time: --stream {name}=PATH,time=COLUMN")
    return name, wm.stream(path, time=settings["time"], lateness=settings.get("lateness", 0), idle=settings.get("idle"))


def declared_relation(text: str) -> tuple[str, Relation]:
    name, path, _ = split(text, "--relation", ())
    return name, wm.relation(path)


def declared_budget(processors: float | None, headroom: float, memory: str | None) -> wm.Budget | None:
    """What the machine gives; None where nothing is said of it.

    >>> declared_budget(2.0, 0.25, "500 MB")
    Budget(processors=2.0, headroom=0.25, memory_bytes=500000000.0)
    """
    if processors is None and not headroom and memory is None:
        return None
    return wm.Budget(1.0 if processors is None else processors, headroom, None if memory is None else _size_bytes(memory))


def split(text: str, option: str, known: Sequence[str]) -> tuple[str, str, dict[str, str]]:
    """Name, path and settings of one option.

    >>> split("a=data/x=1,y.csv,time=ts,lateness=5s", "--stream", ("time", "lateness"))
    ('a', 'data/x=1,y.csv', {'time': 'ts', 'lateness': '5s'})
    """
    name, equals, rest = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f'{option} "{text[:80]}" does not name its source', hint=f"write {option} {_shape(known)}")
    path, settings = _without_settings(rest, known, name)
    if not path:
        raise InputError(f'{option} "{name}" has no path', hint=f"write {option} {_shape(known)}")
    _refuse_unknown(path, name, known)
    return name.strip(), path, settings


def _without_settings(rest: str, known: Sequence[str], name: str) -> tuple[str, dict[str, str]]:
    settings: dict[str, str] = {}
    path, comma, last = rest.rpartition(",")
    while comma and (setting := _SETTING.fullmatch(last)) and setting[1] in known:
        if setting[1] in settings:
            raise InputError(f'"{name}" has {setting[1]} twice')
        settings = {setting[1]: setting[2], **settings}
        rest = path
        path, comma, last = rest.rpartition(",")
    return rest, settings


def _refuse_unknown(path: str, name: str, known: Sequence[str]) -> None:
    """A path that is not there but ends like a setting is a setting spelled wrong."""
    setting = _SETTING.fullmatch(path.rpartition(",")[2])
    if "," in path and setting and not _exists(path):
        existing = f"existing settings: {', '.join(known)}" if known else "a relation has none"
        raise InputError(f'"{name}" has an unknown setting "{setting[1][:40]}"', hint=existing)


def _size_bytes(text: str) -> float:
    size = _SIZE.fullmatch(text.strip())
    if size is None:
        raise InputError(f'--memory "{text[:40]}" is not a size', hint="write 500MB, 2GB or a number of bytes")
    return float(size[1]) * _BYTES[(size[2] or "").upper()]


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def _shape(known: Sequence[str]) -> str:
    return "NAME=PATH" + ",time=COLUMN" * ("time" in known)


def _add(found: dict[str, Stream | Relation], name: str, source: Stream | Relation) -> None:
    if name in found:
        raise InputError(f'source "{name}" is declared twice')
    found[name] = source
