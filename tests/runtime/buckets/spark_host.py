"""The Spark host without Spark: its parts are called in this process, in the way Spark calls them.

The parts are packing tasks, buckets, state stores and workers. Several tasks pack the streams of a batch, and any
worker may run a bucket. An attempt may fail after it wrote, and a batch may be replayed. A state store is
transactional, like Spark's: a failed attempt leaves nothing in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from watersmeet.algebra.plan import Plan
from watersmeet.framing import decode_frame
from watersmeet.runtime.buckets import bucket_grid, state_store
from watersmeet.runtime.buckets.execution_plan import SparkExecutionPlan, build_execution_plan
from watersmeet.runtime.buckets.packets import Packet, decode_packets
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.buckets.state_store import HEADER_FRAME, StatefulStep, StateStore
from watersmeet.sources.declarations import bind_query

BUCKETS = PARTITIONS = 4
WORKERS = 3
BATCHES = 4
ROWS = 40
LATENESS_US = 2_000

EQUI_JOIN = "SELECT a.id AS a, b.id AS b FROM a [RANGE 40 MILLISECONDS], b [RANGE 25 MILLISECONDS] WHERE a.k = b.k"
THETA = "SELECT a.id AS a, b.id AS b FROM a [RANGE 20 MILLISECONDS], b [RANGE 15 MILLISECONDS] WHERE a.k < b.k"
GROUPED = """
    SELECT a.k, COUNT(*) AS n, MAX(b.id) AS most FROM a [RANGE 40 MILLISECONDS], b [RANGE 25 MILLISECONDS]
    WHERE a.k = b.k GROUP BY a.k EVERY 5 MILLISECONDS
"""


class Attempt(StrEnum):
    """Outcome of an attempt to run a batch."""

    SUCCEEDS = "succeeds"
    FAILS_BEFORE_IT_WRITES = "fails before it writes"
    FAILS_AFTER_IT_WROTE = "fails after it wrote"


@dataclass
class FakeValueState:
    """A value in a state store."""

    content: Any = None

    def get(self) -> Any:
        return self.content

    def update(self, newValue: Any) -> None:  # noqa: N803 # Spark's name
        self.content = newValue


@dataclass
class FakeMapState:
    """A map in a state store."""

    content: dict[Any, Any] = field(default_factory=dict)

    def getValue(self, key: Any) -> Any:  # noqa: N802 # Spark's names
        return self.content.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.content[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        self.content.pop(key, None)


@dataclass
class BatchOutcome:
    """Results of a batch, and per stream the numbers of arrived, late and shed rows."""

    rows: Counter[Any]
    ledger: dict[str, tuple[int, int, int]]


@dataclass
class SimulatedSparkHost:
    """A query that runs on simulated workers."""

    plan: SparkExecutionPlan
    monkeypatch: pytest.MonkeyPatch
    run: str = "run"
    headers: dict[int, Any] = field(default_factory=dict)
    entries: dict[int, dict[Any, Any]] = field(default_factory=dict)
    caches: list[dict[Any, Any]] = field(default_factory=lambda: [{} for _ in range(WORKERS)])
    next_plan: Plan | None = None

    def pack(self, batch: int, tables: dict[str, pa.Table], tasks: int = 2) -> list[Packet]:
        """Pack a batch, each stream by several tasks."""
        packets = []
        for packer in (each.for_batch(batch) for each in self.plan.packers):
            table = tables[packer.name].select(packer.names_read())
            for task in range(tasks):
                part = table.slice(
                    task * len(table) // tasks, (task + 1) * len(table) // tasks - task * len(table) // tasks
                )
                packets += [packet for packed in packer.pack([part]) for packet in decode_packets(packed)]
        return packets

    def advance(self, packets: list[Packet], workers: list[int], attempt: Attempt = Attempt.SUCCEEDS) -> BatchOutcome:
        """Run a batch, bucket by bucket."""
        tables, metrics = [], Counter[str]()
        for label, worker in zip(self.plan.bucket.labels, workers, strict=True):
            of_bucket = [packet for packet in packets if packet.bucket == label]
            found, counted = self._run_bucket(label, worker, of_bucket, attempt)
            tables += found
            metrics.update(
                {
                    name: value
                    for name, value in counted.items()
                    if name.partition("_")[0] in ("arrived", "late", "shed")
                }
            )
        rows = pa.Table.from_batches(tables, self.plan.bucket.config.result)
        streams = enumerate(self.plan.bucket.streams)
        counts = {name: tuple(metrics[f"{what}_{at}"] for what in ("arrived", "late", "shed")) for at, name in streams}
        return BatchOutcome(Counter(as_multiset(table_rows(rows))), counts)  # type: ignore[arg-type] # three each

    def _run_bucket(
        self, label: int, worker: int, packets: list[Packet], attempt: Attempt
    ) -> tuple[list[pa.RecordBatch], dict[str, int]]:
        self.monkeypatch.setattr(state_store, "_decoded_states", self.caches[worker])
        header, entries = FakeValueState(self.headers.get(label)), FakeMapState(dict(self.entries.get(label, {})))
        bucket = self.plan.bucket
        states = StateStore(header, entries, bucket, self.plan.signature, StatefulStep(self.run, "buckets"), True)
        before = states.load(label)
        steps, found = bucket.advance(label, before.state, packets, last=False, plan=self.next_plan), []
        while True:
            try:
                found.append(next(steps))
            except StopIteration as end:
                state, metrics = end.value
                break
        if attempt is not Attempt.FAILS_BEFORE_IT_WRITES:
            states.save(label, before, state)
        if attempt is Attempt.SUCCEEDS:
            self.headers[label], self.entries[label] = header.content, entries.content
        return found, metrics


def generate_streams(seed: int) -> dict[str, list[pa.Table]]:
    """Generate two streams in batches: some rows are late, keys repeat, ids do not fit into 32 bits."""
    rng = Random(seed)
    return {name: [_batch(rng, name, number) for number in range(BATCHES)] for name in "ab"}


def _batch(rng: Random, name: str, number: int) -> pa.Table:
    times = [number * 20_000 + rng.randint(-9_000, 20_000) for _ in range(ROWS)]
    ids = [(number * ROWS + at) * (1 << 33) + ord(name) for at in range(ROWS)]
    return pa.table(
        {"ts": pa.array(times), "k": pa.array([rng.randint(0, 5) for _ in range(ROWS)]), "id": pa.array(ids)}
    )


def build_stream_sources(streams: dict[str, list[pa.Table]]) -> dict[str, Any]:
    return {
        name: wm.stream(tables, time="ts", lateness=f"{LATENESS_US} microseconds") for name, tables in streams.items()
    }


def build_host(
    query: str, streams: dict[str, list[pa.Table]], monkeypatch: pytest.MonkeyPatch, log: PlanLog | None = None
) -> SimulatedSparkHost:
    sources = build_stream_sources(streams)
    return SimulatedSparkHost(
        build_execution_plan(bind_query(query, sources), sources, wm.plan(), BUCKETS, PARTITIONS, log), monkeypatch
    )


def check_rows_and_ledger(query: str, seed: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Check that every batch gives the embedded engine's rows and ledger, on any workers and with failed attempts."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    streams, rng = generate_streams(seed), Random(seed)
    host = build_host(query, streams, monkeypatch)
    host.run = f"{query}{seed}".encode().hex()[-60:]
    embedded = wm.run(query, build_stream_sources(streams), plan=wm.plan())
    for batch in range(BATCHES):
        tables = {name: each[batch] for name, each in streams.items()}
        packets = host.pack(batch, tables)
        for attempt in rng.sample([*Attempt], rng.randint(0, 2)):
            if attempt is not Attempt.SUCCEEDS:
                host.advance(packets, _choose_workers(rng), attempt)
        outcome = host.advance(packets, _choose_workers(rng))
        expected = pa.Table.from_batches(embedded.advance(tables), embedded.result)
        assert outcome.rows == Counter(as_multiset(table_rows(expected)))
        assert outcome.ledger == {
            name: (each.arrived, each.late, each.shed) for name, each in embedded.batch_ledger.items()
        }
        check_store(host)


def _choose_workers(rng: Random) -> list[int]:
    return [rng.randrange(WORKERS) for _ in range(BUCKETS)]


def check_store(host: SimulatedSparkHost) -> None:
    """Check that a state store holds exactly the parts that its header lists."""
    for label, content in host.headers.items():
        listed = {entry[0] for entry in decode_frame(content[0].encode(), HEADER_FRAME).header["entries"]}
        assert {place for (place,) in host.entries[label]} == listed


def check_labels() -> None:
    """Check that buckets lie on distinct partitions if there are enough partitions."""
    for partitions in (2, 4, 7):
        found = bucket_grid.assign_labels(partitions, partitions)
        assert len({bucket_grid.spark_partition(label, partitions) for label in found}) == partitions


def check_replay(seed: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Check that a batch that is packed again keeps the same rows, even if new plans were written meanwhile."""
    streams, log = generate_streams(seed), PlanLog(folder / "plans")
    host = build_host(EQUI_JOIN, streams, monkeypatch, log)
    log.write(1, wm.plan(drop={"a": 0.5}))
    packed = []
    for batch in range(3):
        tables = {name: each[batch] for name, each in streams.items()}
        packed.append(_packet_headers(host.pack(batch, tables)))
    with pytest.raises(wm.PlanError, match="batch 2 already has its plan"):
        log.write(2, wm.plan(drop={"a": 0.9}))
    log.write(3, wm.plan(drop={"a": 0.9, "b": 0.9}))
    for batch in range(3):
        tables = {name: each[batch] for name, each in streams.items()}
        assert _packet_headers(host.pack(batch, tables)) == packed[batch]


def _packet_headers(packets: list[Packet]) -> list[tuple[int, int, int, int]]:
    return [(packet.bucket, packet.kind, packet.source, packet.rows) for packet in packets]


def check_foreign_checkpoint_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Check that the checkpoint of another query is refused."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    streams = generate_streams(0)
    host = build_host(EQUI_JOIN, streams, monkeypatch)
    tables = {name: each[0] for name, each in streams.items()}
    host.advance(host.pack(0, tables), [0] * BUCKETS)
    other = build_host(EQUI_JOIN.replace("25", "26"), streams, monkeypatch)
    other.headers, other.entries = host.headers, host.entries
    try:
        other.advance(other.pack(0, tables), [1] * BUCKETS)
    except wm.InputError:
        return
    raise AssertionError("the checkpoint of another query was continued")
