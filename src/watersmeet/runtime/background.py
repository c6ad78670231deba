"""Background threads that cannot fail silently.

Python prints the exception of a thread and continues. Here a failure is stored, passed to a callback that can stop the
dependent work, and raised again where the caller waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from watersmeet.errors import WatersmeetError


class BackgroundError(WatersmeetError):
    """A background thread failed; the message names the thread and the exception."""


def _do_nothing() -> None:
    pass


@dataclass
class BackgroundThread:
    """Daemon thread that runs `work`.

    `name` completes the sentence "… failed". `on_failure` stops the work that depends on the thread.
    """

    name: str
    work: Callable[[], None]
    on_failure: Callable[[], None] = _do_nothing
    failure: BackgroundError | None = field(default=None, init=False)

    def start(self) -> BackgroundThread:
        """Start the thread and return this object."""
        self._thread = threading.Thread(target=self._run, name=f"watersmeet: {self.name}", daemon=True)
        self._thread.start()
        return self

    def join(self) -> None:
        """Wait until the thread has ended. The thread itself does not wait."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def raise_failure(self) -> None:
        """Raise the thread's failure, if it has failed."""
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            # SystemExit is included: a server that cannot start exits, and Python ignores that in a thread.
            self.failure = BackgroundError(f"{self.name} failed: {type(error).__name__}: {error}")
            self.failure.__cause__ = error
            self.on_failure()
