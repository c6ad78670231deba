"""Batches of whichever stream has one: a silent stream does not stop the others.

Each stream has a thread that reads one batch ahead. A round is the batches that are ready when the previous round is
done, at most one per stream, and at least one. Which batches form a round depends on when they arrive, so only the
default, rounds of one batch per stream, is the same in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass
class ReadyBatches:
    """Batches that threads have read and the run has not taken yet, at most one per stream."""

    readers: Mapping[str, Iterator[pa.Table]]
    _batches: dict[str, pa.Table] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    _failures: list[BaseException] = field(default_factory=list)
    _is_closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def rounds(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the batches that are ready, until every stream has ended. Raise the error of a stream at once.

        A thread that waits for its stream ends with the process, or when the stream delivers again.
        """
        self._open = set(self.readers)
        for name in self.readers:
            threading.Thread(target=self._read, args=(name,), name=f"watersmeet: read {name}", daemon=True).start()
        try:
            while (ready := self._take()) is not None:
                yield ready
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()

    def _take(self) -> dict[str, pa.Table] | None:
        """Wait until a batch is ready and return all that are; None if every stream has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._failures or not self._open)
            if self._failures:
                raise self._failures[0]
            ready, self._batches = self._batches, {}
            self._changed.notify_all()
            return ready or None

    def _read(self, name: str) -> None:
        try:
            for batch in self.readers[name]:
                with self._changed:
                    self._changed.wait_for(lambda: name not in self._batches or self._is_closed)
                    if self._is_closed:
                        return
                    self._batches[name] = batch
                    self._changed.notify_all()
        except BaseException as error:  # it is raised again where the batches are taken
            with self._changed:
                self._failures.append(error)
        finally:
            with self._changed:
                self._open.discard(name)
                self._changed.notify_all()
