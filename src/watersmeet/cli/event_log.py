"""Events of a run on stderr (`--verbose`) and as JSON lines in a file (`--log`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from watersmeet.cli.escapes import escape_controls
from watersmeet.errors import InputError, InternalError, WatersmeetError
from watersmeet.metrics.events import LOGGER, JsonLineFormatter, log_event


@contextmanager
def write_events(*, verbose: bool, log: Path | None) -> Iterator[None]:
    """Write the events of the block. A failure is an event as well."""
    handlers = [*([_StderrHandler()] if verbose else []), *([_open_log(log)] if log is not None else [])]
    level = LOGGER.level
    for handler in handlers:
        LOGGER.addHandler(handler)
    if handlers:
        LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    except (WatersmeetError, InternalError, OSError) as error:
        if log is not None:  # stderr gets the error itself
            log_event(logging.ERROR, "run_failed", str(error), error=type(error).__name__)
        raise
    finally:
        LOGGER.setLevel(level)
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()


class _StderrHandler(logging.Handler):
    """Prints the time and the sentence of an event. It looks up stderr every time, because a live view replaces it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(escape_controls(self.format(record)), err=True)


def _open_log(path: Path) -> logging.Handler:
    """Open a log file. Lines are appended, so that a resumed run continues its log."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f'log file "{path}" cannot be written: {error.strerror or error}',
            hint="name a file in an existing directory",
        ) from error
    handler.setFormatter(JsonLineFormatter())
    return handler
