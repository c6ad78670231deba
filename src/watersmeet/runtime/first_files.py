"""First files of growing directories: a query can start only when they show its columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from watersmeet.errors import InputError
from watersmeet.events import log_waiting_for_files

#: Interval between two listings of a directory that has no new files.
POLL_S = 0.25


class GrowingSource(Protocol):
    """Source whose first file may not exist yet."""

    @property
    def path(self) -> Path: ...

    @property
    def is_ready(self) -> bool: ...


def refuse_empty_sources(sources: Mapping[str, GrowingSource]) -> None:
    """Refuse a source without files, for a run that does not wait for them."""
    for name, source in sources.items():
        if not source.is_ready:
            raise InputError(
                f'directory "{source.path}" of stream "{name}" has no data files', hint="--follow waits for them"
            )


def wait_for_first_files(
    sources: Mapping[str, GrowingSource], stop: threading.Event, on_wait: Callable[[list[str]], None]
) -> list[str]:
    """Wait until every source has a file, or until `stop` is set; return the names of the sources without one.

    `on_wait` gets the names of the sources that
    are missing, each time that they change.
    """
    missing: list[str] = []
    while True:
        before, missing = missing, [name for name, source in sources.items() if not source.is_ready]
        if not missing or stop.is_set():
            return missing
        if missing != before:
            log_waiting_for_files(missing)
            on_wait(missing)
        stop.wait(POLL_S)
