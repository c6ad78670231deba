"""How a command ends: with an error, or because the user stopped it.

An error is one message on stderr and an exit code, never a stack trace. The first Ctrl-C finishes and commits the
running batch. The second one exits at once. That is safe, but the work of the batch is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

import typer

from watersmeet.errors import InternalError, WatersmeetError, WatersmeetWarning, abbreviate, escape_controls

INTERRUPTED = 130


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Report errors as one message on stderr and exit with code 1; report our warnings as one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", WatersmeetWarning)
            warnings.showwarning = _show_warning
            yield
    except WatersmeetError as error:
        _print_error(str(error))
        raise typer.Exit(1) from error
    except InternalError as error:
        _print_error(f"{error}\nthis is a bug in Watersmeet, not a mistake in your query or data")
        raise typer.Exit(1) from error
    except BrokenPipeError:
        raise  # the reader of our output has exited: `main` exits quietly
    except OSError as error:  # a full disk, a name that is too long, a directory without permission
        place = "" if error.filename is None else f'"{abbreviate(os.fsdecode(error.filename), 200)}": '
        _print_error(f"{place}{error.strerror or error}\ncheck the path, the disk and its permissions")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(INTERRUPTED) from interrupt


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of ours as one line, and any other in Python's form."""
    if issubclass(category, WatersmeetWarning):
        _print_error(f"warning: {message}")
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file or sys.stderr, end="")


def _print_error(message: str) -> None:
    typer.echo("watersmeet: " + "\n".join(escape_controls(line) for line in message.split("\n")), err=True)


class StoppedByUser(KeyboardInterrupt):
    """The user stopped the query, and it committed its last batch."""


@contextmanager
def stop_on_signals(event: threading.Event | None = None) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets. Outside the main thread, signals keep their handlers."""
    stop = event or threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before: dict[signal.Signals, Any] = {
        each: signal.signal(each, request_stop) for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
