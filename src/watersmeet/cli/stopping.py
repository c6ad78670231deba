"""Ctrl-C as a wish to stop: the batch under way is finished and committed. A second one ends at once: safe, but the
batch is wasted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stopped(KeyboardInterrupt):
    """The query was stopped on request, cleanly."""


@contextmanager
def stopping(event: threading.Event | None = None) -> Iterator[threading.Event]:
    """Yield an event, a given one or a new one, that Ctrl-C or SIGTERM sets. Outside the main thread signals are left
    alone.
    """
    stop = event or threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def wish(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before: dict[signal.Signals, Any] = {each: signal.signal(each, wish) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
