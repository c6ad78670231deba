"""CPU time of one call: the least of a few repeats, because everything that disturbs a measurement makes it longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_REPEAT_S = 0.003
_MOST_RUNS = 200
_SMALL_WORDS = 32


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """What a call gave, and the least CPU time it took."""

    result: T
    seconds: float


def timed(call: Callable[[], T], repeats: int) -> Timed[T]:
    """Runs the call once to warm up and then `repeats` times; a short one as often as fits into a few milliseconds for
    each repeat.

    Every run finds its small arrays elsewhere in memory: where they lie side by side in a bad way, loops can take half
    as long again, and without new places all runs of one process would share the good or bad luck.
    """
    result = call()
    least, total, runs = float("inf"), 0.0, 0
    elsewhere: list[
        list[NDArray[np.int64]]
    ] = []  # held until the end, so that no run gets the places of the one before
    while runs < repeats or (total < repeats * _REPEAT_S and runs < _MOST_RUNS):
        elsewhere.append([np.empty(words, np.int64) for words in range(1, _SMALL_WORDS)])
        start = time.process_time()
        result = call()
        seconds = time.process_time() - start
        least, total, runs = min(least, seconds), total + seconds, runs + 1
    return Timed(result, least)
