"""Work of a window join: counters of comparisons and probes, and CPU seconds by operator.

The measurements are compared with the predictions; no result depends on them. The operators are those of the cost
model. Ingest admits rows. Store selects them, encodes their keys and adds them to their window. Probe finds matches, by
origin. Emit builds the results. A tactic builds an access path at its first probe, so that work counts as probing.
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

#: Replaces the input number for work that belongs to no single input.
ALL_INPUTS = -1


@dataclass
class OperatorTimer:
    """CPU seconds by operator and input.

    >>> ticks = iter([0.0, 2.0])
    >>> timer = OperatorTimer(lambda: next(ticks))
    >>> with timer.measure(INGEST, 1):
    ...     pass
    >>> timer.spent_s
    {('ingest', 1): 2.0}
    """

    clock: Callable[[], float] = cpu_seconds
    spent_s: dict[tuple[str, int], float] = field(default_factory=dict)

    @contextmanager
    def measure(self, operator: str, number: int = ALL_INPUTS) -> Iterator[None]:
        """Add the time spent in the `with` block to an operator."""
        started = self.clock()
        try:
            yield
        finally:
            self._spend(operator, number, self.clock() - started)

    def measure_items(self, operator: str, items: Iterable[Item], number: int = ALL_INPUTS) -> Iterator[Item]:
        """Yield the same items and measure the time it takes to produce them, not the time the consumer takes."""
        producer = iter(items)
        while True:
            started = self.clock()
            try:
                item = next(producer)
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
    """Work done so far, by (origin, target) or by window. Zero where a tactic does not count.

    `tested` counts the matches, partial or complete, on which predicates were evaluated outside the kernels, by origin.
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
