"""Both hosts behind one protocol: a process that runs batches over what has arrived, and may stop at any write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pyarrow as pa
import pytest

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.operators.protocol import exhaust
from watersmeet.runtime.buckets import state_store
from watersmeet.runtime.buckets.bucket import BucketState, Merger
from watersmeet.runtime.buckets.execution_plan import build_execution_plan
from watersmeet.runtime.buckets.packets import Packet, decode_packets, encode_table
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.buckets.state_store import StatefulStep, StateOwner, StateStore
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.runtime.embedded.run import EmbeddedRun
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource, InputFile

from .faults import Faults, SimulatedDisk
from .scenario import LATENESS_US, Rows, Scenario, count_rows

BUCKETS = PARTITIONS = 2
WORKERS = 2


@dataclass
class EmittedRows:
    """Rows that were emitted, by batch, with the arrivals that the batch consisted of and its plan."""

    rows: dict[int, Rows] = field(default_factory=dict)
    arrivals: dict[int, tuple[int, ...]] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)

    def emit(self, faults: Faults, batch: int, rows: Rows, arrivals: tuple[int, ...], plan: Plan) -> None:
        """Emit the rows of a batch. A batch that runs again replaces its rows, and must emit the same ones."""
        if batch in self.rows:
            assert arrivals == self.arrivals[batch], f"batch {batch} ran again over other input"
            assert rows == self.rows[batch], f"batch {batch} ran again and emitted other rows"
            faults.write(lambda: None, lambda: None)
            return
        self.arrivals[batch] = arrivals
        self.plans[batch] = plan
        faults.write(lambda: self.rows.update({batch: rows}), lambda: self.rows.pop(batch))


class SimulatedHost(Protocol):
    """A host of the simulator. A new process reads what the previous one has written, and nothing else."""

    output: EmittedRows

    def run(self, faults: Faults, deliveries: Iterator[int], plans: Iterator[Plan]) -> None:
        """Run batches until all input is processed, or until a fault stops the process.

        `deliveries` says how many more tables arrive before each batch. `plans` are plans to change to.
        """


@dataclass
class RememberedFiles(FileSource):
    """Growing directory whose files are empty, and whose tables are in memory."""

    tables: list[pa.Table] = field(default_factory=list)
    was_read: Callable[[list[str]], None] = lambda names: None

    def read_new_files(self, files: Sequence[InputFile]) -> pa.Table:
        self.was_read([file.name for file in files])
        return super().read_new_files(files)

    def _read_file(self, name: str) -> pa.Table:
        return self.tables[int(Path(name).stem)]


@dataclass
class EmbeddedHost:
    """An incremental job with its checkpoint."""

    scenario: Scenario
    folder: Path
    disk: SimulatedDisk
    output: EmittedRows = field(default_factory=EmittedRows)
    delivered: int = 0

    def run(self, faults: Faults, deliveries: Iterator[int], plans: Iterator[Plan]) -> None:
        self.disk.faults = faults
        sheds, running, latest = self.scenario.query.sheds, _Running(), _Read()

        def prepare_next_batch(_: object) -> None:
            self._deliver(next(deliveries))
            plan = next(plans)
            if not sheds and running.run is not None and plan != running.run.config.plan:
                running.run.replan(plan)

        class CountingSink:
            def write_batch(_, batch: int, rows: pa.Table) -> None:  # noqa: N805 # it is the sink's own self
                assert running.run is not None
                counted = count_rows(rows.to_batches(), rows.schema)
                plan = self.output.plans.get(0, running.run.config.plan)  # the first one is pinned
                self.output.emit(faults, batch, counted, latest.numbers, plan)

        job = IncrementalJob(
            self.scenario.bound.query,
            {name: self._source(name, latest) for name in self.scenario.streams},
            CountingSink(),
            follow=False,
            checkpoint=self.folder / "checkpoint",
            choose_plan=lambda: next(plans),
        )
        self._deliver(next(deliveries))
        run_incremental(job, threading.Event(), prepare_next_batch, running.start)

    def _source(self, name: str, latest: _Read) -> Stream | Relation:
        tables = [each[name] for each in self.scenario.arrivals]
        files = RememberedFiles(self.folder / name, "ts", tables=tables, was_read=latest.read)
        return Stream(files, "ts", lateness_us=LATENESS_US)

    def _deliver(self, count: int) -> None:
        """Add the next files to all streams."""
        for number in range(self.delivered, min(self.delivered + count, len(self.scenario.arrivals))):
            for name in self.scenario.streams:
                (self.folder / name).mkdir(exist_ok=True)
                (self.folder / name / f"{number:03d}.parquet").touch()
            self.delivered += 1


@dataclass
class _Running:
    run: EmbeddedRun | None = None

    def start(self, run: EmbeddedRun) -> None:
        self.run = run


@dataclass
class _Read:
    """Arrivals that the latest batch reads. All streams have files with the same names."""

    numbers: tuple[int, ...] = ()

    def read(self, names: list[str]) -> None:
        self.numbers = tuple(sorted(int(Path(name).stem) for name in names))


@dataclass
class BucketHost:
    """Buckets with Spark's state stores, offset log and commit log, and workers that cache state.

    A batch runs again from the state before it until it is committed, as on Spark.
    """

    scenario: Scenario
    folder: Path
    disk: SimulatedDisk
    monkeypatch: pytest.MonkeyPatch
    output: EmittedRows = field(default_factory=EmittedRows)
    delivered: int = 0
    offsets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    versions: dict[int, StateVersion] = field(default_factory=lambda: {-1: {}})
    committed: int = -1
    processes: int = 0
    settled: dict[int, Plan | None] = field(default_factory=dict)
    caches: list[dict[Any, Any]] = field(default_factory=lambda: [{} for _ in range(WORKERS)])

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.log = None if scenario.query.sheds else PlanLog(self.folder / "plans")
        self.execution = build_execution_plan(
            scenario.bound, scenario.known_sources, scenario.query.plans[0], BUCKETS, PARTITIONS, self.log
        )
        self.monkeypatch.setenv("SPARK_LOCAL_DIRS", str(self.folder))

    def run(self, faults: Faults, deliveries: Iterator[int], plans: Iterator[Plan]) -> None:
        self.disk.faults = faults
        self.processes += 1
        self._lose_workers(faults.rng)
        self._write_plan(self.committed + 2, next(plans))
        while True:
            batch = self.committed + 1
            if batch not in self.offsets:
                pending = self._find_pending(next(deliveries))
                if not pending:
                    return
                if faults.rng.randrange(2):
                    self._write_plan(batch, next(plans))
                self._log_offsets(faults, batch, pending)
            self._run_batch(_Attempt(faults, batch, self.versions[batch - 1]))

    def _lose_workers(self, rng: Random) -> None:
        """Lose the memory of some workers. The others have run batches that were not committed."""
        self.caches = [{} if rng.randrange(2) else cache for cache in self.caches]

    def _find_pending(self, count: int) -> tuple[int, ...]:
        """Deliver more tables, and return all that no batch has read."""
        self.delivered = min(self.delivered + count, len(self.scenario.arrivals))
        logged = {number for numbers in self.offsets.values() for number in numbers}
        return tuple(number for number in range(self.delivered) if number not in logged)

    def _write_plan(self, batch: int, plan: Plan) -> None:
        if self.log is not None:
            with suppress(PlanError):  # an earlier process has written one
                self.log.write(batch, plan)

    def _log_offsets(self, faults: Faults, batch: int, numbers: tuple[int, ...]) -> None:
        faults.write(lambda: self.offsets.update({batch: numbers}), lambda: self.offsets.pop(batch))

    def _run_batch(self, attempt: _Attempt) -> None:
        batch, execution = attempt.batch, self.execution
        plan = None if self.log is None else self.log.settle_plan(batch)
        assert plan == self.settled.setdefault(batch, plan), f"batch {batch} ran again by another plan"
        packets = self._pack(batch)
        results = [
            each for label in execution.bucket.labels for each in self._run_bucket(attempt, label, packets, plan)
        ]
        schema = execution.bucket.config.result
        if execution.merger is not None:
            results, schema = self._merge(attempt, execution.merger, results), execution.merger.config.result
        self.versions[batch] = attempt.after
        rows, own_plan = count_rows(results, schema), execution.bucket.config.plan
        self.output.emit(attempt.faults, batch, rows, self.offsets[batch], own_plan if plan is None else plan)
        attempt.faults.write(lambda: self._commit(batch), lambda: self._commit(batch - 1))

    def _commit(self, batch: int) -> None:
        self.committed = batch

    def _pack(self, batch: int) -> list[Packet]:
        """Pack a batch. One task reads each arrival."""
        return [
            packet
            for packer in (each.for_batch(batch) for each in self.execution.packers)
            for number in self.offsets[batch]
            for packed in packer.pack([self.scenario.arrivals[number][packer.name].select(packer.names_read())])
            for packet in decode_packets(packed)
        ]

    def _run_bucket(
        self, attempt: _Attempt, label: int, packets: list[Packet], plan: Plan | None
    ) -> list[pa.RecordBatch]:
        bucket = self.execution.bucket
        of_bucket = [packet for packet in packets if packet.bucket == label]

        def advance(state: BucketState) -> tuple[list[pa.RecordBatch], BucketState]:
            results, (after, _) = exhaust(bucket.advance(label, state, of_bucket, last=False, plan=plan))
            return results, after

        return self._run_step(attempt, ("buckets", label), bucket, advance)

    def _merge(self, attempt: _Attempt, merger: Merger, partial: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Add up all partial groups in one bucket of the second step."""
        parts = [(0, encode_table(pa.Table.from_batches([each]))) for each in partial]
        return self._run_step(attempt, ("groups", 0), merger, lambda state: exhaust(merger.advance(state, parts)))

    def _run_step(self, attempt: _Attempt, key: StepKey, owner: StateOwner, advance: Advance) -> list[pa.RecordBatch]:
        """Run a task of a stateful step on any worker. When it ends, its state is part of the new version."""
        self.monkeypatch.setattr(state_store, "_decoded_states", attempt.faults.rng.choice(self.caches))
        header, entries = attempt.before.get(key, (None, {}))
        value, values = RecordedValue(header, attempt.faults), RecordedMap(dict(entries), attempt.faults)
        # Two processes in a row are two attempts of the same run; the third is a restart of the query.
        step = StatefulStep(f"run-{self.processes // 2}", key[0])
        store = StateStore(value, values, owner, self.execution.signature, step, cache_state=True)
        before = store.load(key[1])
        results, state = advance(before.state)
        store.save(key[1], before, state)
        content = value.content, values.content
        attempt.faults.write(lambda: attempt.after.update({key: content}), lambda: attempt.after.pop(key))
        return results


StepKey = tuple[str, int]
StateVersion = dict[StepKey, tuple[Any, dict[Any, Any]]]
Advance = Callable[[BucketState], tuple[list[pa.RecordBatch], BucketState]]


@dataclass
class _Attempt:
    """An attempt to run a batch, with the state before and after it."""

    faults: Faults
    batch: int
    before: StateVersion
    after: StateVersion = field(default_factory=dict)


@dataclass
class RecordedValue:
    """A value in a state store, whose updates are writes."""

    content: Any
    faults: Faults

    def get(self) -> Any:
        return self.content

    def update(self, newValue: Any) -> None:  # noqa: N803 # Spark's name
        self.faults.write(lambda: setattr(self, "content", newValue), lambda: None)


@dataclass
class RecordedMap:
    """A map in a state store, whose updates are writes."""

    content: dict[Any, Any]
    faults: Faults

    def getValue(self, key: Any) -> Any:  # noqa: N802 # Spark's names
        return self.content.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.faults.write(lambda: self.content.update({key: value}), lambda: None)

    def removeKey(self, key: Any) -> None:  # noqa: N802
        self.faults.write(lambda: self.content.pop(key, None), lambda: None)
