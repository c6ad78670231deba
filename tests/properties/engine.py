"""The engine under test, and comparisons of its result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import watersmeet
from tests.oracle import Arrival, as_multiset, join_rows, table_rows
from tests.properties.generators.cases import QueryCase, SourceData, shrink
from watersmeet.algebra.plan import Plan

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The rows of a run, and the ledger of every stream."""

    rows: Rows
    ledger: dict[str, dict[str, int]]


def collect(case: QueryCase, plan: Plan | None = None) -> EngineAnswer:
    """Run the case with each table as one batch, so no row is late."""
    streams = {source.name: declare_source(source) for source in case.sources}
    return _run(case, streams, plan)


def declare_source(source: SourceData) -> watersmeet.Stream | watersmeet.Relation:
    """Declare the table as a stream or a relation."""
    if source.time is None:
        return watersmeet.relation(source.table)
    return watersmeet.stream(source.table, time=source.time, unit=source.unit)


def collect_arriving(case: QueryCase, arrivals: Mapping[str, Arrival], plan: Plan | None = None) -> EngineAnswer:
    """Run the case with its streams in batches and its relations as one table."""
    streams: dict[str, Any] = {
        source.name: watersmeet.relation(source.table) for source in case.sources if source.time is None
    }
    for name, arrival in arrivals.items():
        streams[name] = watersmeet.stream(
            list(arrival.batches),
            time=arrival.time,
            unit=arrival.unit,
            lateness=_duration(arrival.lateness_us),
            idle=None if arrival.idle_us is None else _duration(arrival.idle_us),
        )
    return _run(case, streams, plan)


def expected_rows(case: QueryCase) -> Rows:
    """Return the oracle's rows."""
    return as_multiset(join_rows(case.bound, case.tables))


def assert_same(
    case: QueryCase, actual: Rows, expected: Rows, fails: Callable[[QueryCase], bool] | None = None
) -> None:
    """Fail with the lost and the extra rows, and with the smallest case that still fails."""
    if actual == expected:
        return
    report = [
        f"lost: {sorted(map(str, (expected - actual).elements()))[:5]}",
        f"extra: {sorted(map(str, (actual - expected).elements()))[:5]}",
    ]
    report.append(str(case if fails is None else shrink(case, fails)))
    raise AssertionError("\n".join([f"seed {case.seed}", case.text, *report]))


@contextmanager
def add_failure_note(note: str) -> Iterator[None]:
    """Add a note to any error inside the context."""
    try:
        yield
    except Exception as error:
        error.add_note(note)
        raise


def _run(case: QueryCase, streams: dict[str, Any], plan: Plan | None) -> EngineAnswer:
    table = watersmeet.collect(watersmeet.sql(case.text), streams, plan=plan)
    assert table.column_names == [output.name for output in case.bound.outputs], case.text
    return _read_answer(table)


def _read_answer(table: pa.Table) -> EngineAnswer:
    metadata = table.schema.metadata or {}
    return EngineAnswer(
        as_multiset(table_rows(table)), json.loads(metadata.get(b"watersmeet", b"{}")).get("ledger", {})
    )


def _duration(length_us: int) -> str:
    return f"{length_us} microseconds"
