"""Ways in which a case's rows can arrive: cut into batches anywhere, out of order within the lateness, or too late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

import pyarrow as pa

from tests.oracle import Arrival
from tests.properties.generators.cases import QueryCase, SourceData

StreamArrivals = dict[str, Arrival]

_MS_US = 1_000


def arrive_in_any_batches(rng: Random, case: QueryCase) -> StreamArrivals:
    """Deliver the rows in any order and any batches; the lateness covers everything, so no row is late."""
    spread_us = _spread_us(case)
    return _arrive_each(case, lambda source: _build_arrival(rng, source, _shuffled_order(rng, source), spread_us))


def arrive_within_lateness(rng: Random, case: QueryCase) -> StreamArrivals:
    """Delay each row by at most its stream's lateness: none is late, but the watermark follows closely."""

    def arrival(source: SourceData) -> Arrival:
        lateness_us = rng.choice((0, 1, 3, _MS_US, 1_500_000, _spread_us(case)))
        due = [(time_us + rng.randint(0, lateness_us), n) for n, time_us in enumerate(source.times_us)]
        return _build_arrival(rng, source, [n for _, n in sorted(due)], lateness_us)

    return _arrive_each(case, arrival)


def arrive_with_late_rows(rng: Random, case: QueryCase) -> StreamArrivals:
    """Deliver some rows too late, let streams fall silent, and sometimes declare an idle timeout."""

    def arrival(source: SourceData) -> Arrival:
        lateness_us = rng.choice((0, 0, 1, 2, 999, _MS_US, 1_000_001, _spread_us(case) // 2))
        idle_us = rng.choice((None, None, 1, 3, _MS_US, 1_000_000, max(1, _spread_us(case) // 2)))
        return _build_arrival(rng, source, _nearly_sorted_order(rng, source), lateness_us, idle_us)

    return _arrive_each(case, arrival)


def _arrive_each(case: QueryCase, arrival: Callable[[SourceData], Arrival]) -> StreamArrivals:
    return {name: arrival(source) for name, source in case.streams.items()}


def _build_arrival(
    rng: Random, source: SourceData, order: Sequence[int], lateness_us: int, idle_us: int | None = None
) -> Arrival:
    assert source.time is not None
    table = source.table.take(pa.array(order, pa.int64()))
    return Arrival(source.time, cut_into_batches(rng, table), lateness_us, idle_us, source.unit)


def cut_into_batches(rng: Random, table: pa.Table) -> list[pa.Table]:
    """Cut the table anywhere, with empty batches in between; return at least one batch."""
    most = 5 if table.num_rows < 50 else 30
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.choice((0, 1, 2, 3, most))))
    bounds = [0, *cuts, table.num_rows]
    return [table.slice(start, stop - start) for start, stop in pairwise(bounds)]


def _shuffled_order(rng: Random, source: SourceData) -> list[int]:
    order = list(range(source.table.num_rows))
    rng.shuffle(order)
    return order


def _nearly_sorted_order(rng: Random, source: SourceData) -> list[int]:
    times_us = source.times_us
    order = sorted(range(len(times_us)), key=times_us.__getitem__)
    for _ in range(rng.randrange(4) if len(order) > 1 else 0):
        i, j = rng.sample(range(len(order)), 2)
        order[i], order[j] = order[j], order[i]
    return order


def _spread_us(case: QueryCase) -> int:
    times_us = [time_us for source in case.streams.values() for time_us in source.times_us]
    return max(times_us) - min(times_us) if times_us else 0
