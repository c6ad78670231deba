"""CPU time of one call: the least of a few repeats, because everything that disturbs a measurement makes it longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_REPEAT_S = 0.003
_MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """What a call gave, and the least CPU time it took."""

    result: T
    seconds: float


def timed(call: Callable[[], T], repeats: int) -> Timed[T]:
    """Runs the call once to warm up and then `repeats` times; a short one as often as fits into a few milliseconds for each repeat."""
    result = call()
    least, total, runs = float("inf"), 0.0, 0
    while runs < repeats or (total < repeats * _REPEAT_S and runs < _MOST_RUNS):
        start = time.process_time()
        result = call()
        seconds = time.process_time() - start
        least, total, runs = min(least, seconds), total + seconds, runs + 1
    return Timed(result, least)
