"""Queries of the simulator, the rows that arrive, and the rows that an uninterrupted run emits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import pyarrow as pa

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.runtime.embedded.run import start_bound_run
from watersmeet.sources.declarations import Sources, bind_query

MS_US = 1_000
LATENESS_US = 2 * MS_US
#: Tables of rows that arrive one after another. A batch consists of one or more of them.
ARRIVALS = 4

Rows = Counter[tuple[Any, ...]]
#: Numbers of the arrivals that each batch consists of.
BatchArrivals = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class SimulatedQuery:
    """A query and the plans that a host may run it by. `sheds` means that the first plan sheds rows throughout.

    `shed_rates` are plans with other shed rates, between which only a plan log may change.
    """

    text: str
    plans: tuple[Plan, ...]
    shed_rates: tuple[Plan, ...] = ()
    sheds: bool = False


_EARLY = (wm.plan(), wm.plan(early=["a"]), wm.plan(early=["b"]))
_SHED_RATES = (wm.plan(drop={"a": 0.5}), wm.plan(drop={"a": 0.3, "b": 0.4}))

QUERIES = (
    SimulatedQuery(
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 12 MILLISECONDS], b [RANGE 8 MILLISECONDS] WHERE a.k = b.k",
        (wm.plan(), wm.plan("eager-nlj"), wm.plan("eager-hash")),
        _SHED_RATES,
    ),
    SimulatedQuery(
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 9 MILLISECONDS], b [RANGE 7 MILLISECONDS] WHERE a.v < b.v",
        (wm.plan(), wm.plan("eager-nlj")),
        _SHED_RATES,
    ),
    SimulatedQuery(
        "SELECT a.id AS a, b.id AS b FROM a [ROWS 5], b [RANGE 10 MILLISECONDS] WHERE a.k = b.k",
        (wm.plan(), wm.plan("eager-nlj")),
    ),
    SimulatedQuery(
        "SELECT a.id AS a, b.id AS b, c.id AS c FROM a [RANGE 15 MILLISECONDS], b [RANGE 9 MILLISECONDS], "
        "c [TUMBLE 10 MILLISECONDS] WHERE a.k = b.k AND b.k = c.k",
        (wm.plan(), wm.plan("eager-nlj", order=["c", "a", "b"])),
    ),
    SimulatedQuery(
        "SELECT a.k, COUNT(*) AS n, MAX(b.v) AS most FROM a [RANGE 12 MILLISECONDS], b [RANGE 9 MILLISECONDS] "
        "WHERE a.k = b.k GROUP BY a.k EVERY 4 MILLISECONDS",
        _EARLY,
    ),
    SimulatedQuery(
        "SELECT COUNT(*) AS n, SUM(a.v) AS total FROM a [RANGE 12 MILLISECONDS], b [TUMBLE 10 MILLISECONDS] "
        "WHERE a.v < b.v",
        _EARLY,
    ),
    SimulatedQuery(
        "SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total FROM a [RANGE 15 MILLISECONDS], b [RANGE 12 MILLISECONDS] "
        "WHERE a.k = b.k GROUP BY a.k EVERY 5 MILLISECONDS",
        (wm.plan(drop={"a": 0.3, "b": 0.2}), wm.plan(drop={"a": 0.1, "b": 0.6})),
        sheds=True,
    ),
    SimulatedQuery(
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 12 MILLISECONDS], b [RANGE 12 MILLISECONDS] WHERE a.k = b.k",
        (wm.plan(drop={"a": 0.4}), wm.plan(drop={"b": 0.5})),
        sheds=True,
    ),
    SimulatedQuery(
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 14 MILLISECONDS], b [RANGE 11 MILLISECONDS] "
        "WHERE a.v BETWEEN b.v - 1 AND b.v + 1",
        (wm.plan(), wm.plan("sorted-ranges")),
        _SHED_RATES,
    ),
)


@dataclass(frozen=True)
class Scenario:
    """A query and rows that arrive for it."""

    query: SimulatedQuery
    seed: int
    _expected: dict[tuple[Any, ...], list[Rows]] = field(default_factory=dict)

    @cached_property
    def arrivals(self) -> list[dict[str, pa.Table]]:
        """Rows in the order of arrival. Some are late, and keys repeat."""
        rng = Random(self.seed)
        return [{name: _generate_rows(rng, number) for name in self.streams} for number in range(ARRIVALS)]

    @cached_property
    def streams(self) -> list[str]:
        return [name for name in "abc" if f" {name} [" in self.query.text]

    @cached_property
    def sources(self) -> Sources:
        empty = _generate_rows(Random(0), 0).slice(0, 0)
        return {name: wm.stream([empty], time="ts", lateness=f"{LATENESS_US} microseconds") for name in self.streams}

    @cached_property
    def known_sources(self) -> Sources:
        """Sources whose rows are known at the start, from which boundaries between ranges of values are chosen."""
        rows = self.join_arrivals(range(ARRIVALS))
        return {name: wm.stream([rows[name]], time="ts", lateness=f"{LATENESS_US} microseconds") for name in rows}

    @cached_property
    def bound(self) -> BoundQuery:
        return bind_query(self.query.text, self.sources)

    def join_arrivals(self, numbers: Sequence[int]) -> dict[str, pa.Table]:
        """Return the tables of a batch that consists of these arrivals."""
        return {name: pa.concat_tables([self.arrivals[number][name] for number in numbers]) for name in self.streams}

    def expect_rows(self, batches: BatchArrivals, plans: Sequence[Plan]) -> list[Rows]:
        """Return the rows that an uninterrupted run emits, by batch. It runs each batch by its plan."""
        key = (tuple(batches), tuple(plan.drop for plan in plans))  # results depend on no other part of a plan
        if key not in self._expected:
            self._expected[key] = self._run_uninterrupted(batches, [wm.plan(drop=dict(plan.drop)) for plan in plans])
        return self._expected[key]

    def _run_uninterrupted(self, batches: BatchArrivals, plans: Sequence[Plan]) -> list[Rows]:
        run, rows = start_bound_run(self.bound, self.sources, plans[0]), []
        for numbers, before, plan in zip(batches, [plans[0], *plans], plans, strict=False):
            if plan != before:
                run.replan(plan)
            rows.append(count_rows(run.advance(self.join_arrivals(numbers)), run.result))
        return rows


def count_rows(results: Sequence[pa.RecordBatch], schema: pa.Schema) -> Rows:
    return as_multiset(table_rows(pa.Table.from_batches(list(results), schema)))


def _generate_rows(rng: Random, number: int) -> pa.Table:
    rows = rng.randint(2, 5)
    times = [number * 6 * MS_US + rng.randint(-4 * MS_US, 6 * MS_US) for _ in range(rows)]
    columns: Mapping[str, list[int]] = {
        "ts": times,
        "k": [rng.randint(0, 2) for _ in range(rows)],
        "v": [rng.randint(0, 9) for _ in range(rows)],
        "id": [rng.getrandbits(40) for _ in range(rows)],
    }
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
