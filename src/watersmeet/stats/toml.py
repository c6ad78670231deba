"""Declared statistics in a TOML file.

[streams.bids]
rate = 5000
row_bytes = 48
distinct = { auction = 100 }

[streams.bids.hot]
auction = 0.2
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError, listing
from watersmeet.files import read_toml_file
from watersmeet.stats.estimate import shown
from watersmeet.stats.stream_stats import StreamStats, stats

_KEYS = ("rate", "distinct", "row_bytes", "hot")


def read_stats(path: str | os.PathLike[str]) -> dict[str, StreamStats]:
    """The statistics of every stream in the file, by the stream's name."""
    place = Path(path)
    content = read_toml_file(place, "statistics file")
    _check_keys(content, ("streams",), f"{place}")
    streams = _table(content.get("streams", {}), f"{place}: streams")
    if not streams:
        raise InputError(f"{place} declares no stream", hint="begin a section with [streams.NAME]")
    return {name: _stream(values, f"{place}: streams.{name}") for name, values in streams.items()}


def _stream(values: object, where: str) -> StreamStats:
    known = _table(values, where)
    _check_keys(known, _KEYS, where)
    try:
        return stats(**known)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", hint=error.hint) from error


def _table(values: object, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(f"{where} must be a section, got {shown(values)}")
    return values


def _check_keys(values: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            raise InputError(f'{where}: there is no setting "{key[:60]}"', hint=f"existing settings: {listing(known)}")
