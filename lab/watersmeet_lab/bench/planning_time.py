"""Planning time. Statistics are declared, so that only the search is measured."""

from __future__ import annotations

import time

import watersmeet as wm

#: Limit of planning time in seconds, by the number of streams.
MAX_PLANNING_S = {2: 0.1, 4: 0.1, 6: 0.1, 8: 2.0, 12: 2.0}


def measure_planning_s(streams: int, repeats: int = 3) -> float:
    """Return the best of a few repeats for a query over `streams` streams on a common key.

    Each stream has a different rate.
    """
    names = "abcdefghijkl"[:streams]
    sources = ", ".join(f"{name} [RANGE 10 SECONDS]" for name in names)
    equal = " AND ".join(f"a.k = {name}.k" for name in names[1:])
    query = wm.sql(f"SELECT a.k FROM {sources} WHERE {equal}")
    stats = {
        name: wm.stats(rate=10 * (number + 1), distinct={"k": 1000 * (number + 1)}) for number, name in enumerate(names)
    }
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        wm.explain(query, stats)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
