"""How long each operator of a meet worked: seconds of CPU, to be held against the predicted ones.

Nothing a meet computes depends on it. The operators are those of the cost model: rows are taken in, kept (selected,
coded, put into their window), probed by origin, and put out. An access path is made when it is first probed, so that
work counts with the probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from watersmeet.operators.parallel import cpu_seconds

Item = TypeVar("Item")

INGEST, STORE, PROBE, EMIT = "ingest", "store", "probe", "emit"

#: In place of an input's number, for work that belongs to no single one.
ALL_INPUTS = -1


@dataclass
class OperatorTimer:
    """Seconds by operator and input.

    >>> ticks = iter([0.0, 2.0])
    >>> timer = Watch(lambda: next(ticks))
    >>> with timer.measure(TAKE_IN, 1):
    ...     pass
    >>> timer.spent_s
    {('ingest', 1): 2.0}
    """

    clock: Callable[[], float] = cpu_seconds
    spent_s: dict[tuple[str, int], float] = field(default_factory=dict)

    @contextmanager
    def measure(self, operator: str, number: int = ALL_INPUTS) -> Iterator[None]:
        started = self.clock()
        try:
            yield
        finally:
            self._spend(operator, number, self.clock() - started)

    def measure_items(self, operator: str, items: Iterable[Item], number: int = ALL_INPUTS) -> Iterator[Item]:
        """The same items; what counts is the time it takes to make them, not what is done with them in between."""
        made = iter(items)
        while True:
            started = self.clock()
            try:
                item = next(made)
            except StopIteration:
                return
            finally:
                self._spend(operator, number, self.clock() - started)
            yield item

    def add(self, other: OperatorTimer) -> None:
        for (operator, number), seconds in other.spent_s.items():
            self._spend(operator, number, seconds)

    def _spend(self, operator: str, number: int, seconds: float) -> None:
        self.spent_s[operator, number] = self.spent_s.get((operator, number), 0.0) + seconds


@dataclass
class WorkCounters:
    """Work done so far: by origin and target, and by window. Zero where a tactic does not count.

    `tested` are the matches, partial or whole, that predicates were evaluated on outside of the kernels, by origin.
    """

    inputs: int
    timer: OperatorTimer = field(default_factory=OperatorTimer)
    comparisons: NDArray[np.int64] = field(init=False)
    probes: NDArray[np.int64] = field(init=False)
    touched: NDArray[np.int64] = field(init=False)
    inserts: NDArray[np.int64] = field(init=False)
    expirations: NDArray[np.int64] = field(init=False)
    tested: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        pair, single = (self.inputs, self.inputs), (self.inputs,)
        self.comparisons, self.probes, self.touched = (np.zeros(pair, np.int64) for _ in range(3))
        self.inserts, self.expirations, self.tested = (np.zeros(single, np.int64) for _ in range(3))

    def add(self, other: WorkCounters) -> None:
        for name in ("comparisons", "probes", "touched", "inserts", "expirations", "tested"):
            mine = getattr(self, name)
            mine += getattr(other, name)
        self.timer.add(other.timer)
