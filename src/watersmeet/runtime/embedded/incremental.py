"""Query over growing directories: one batch after another, until it is stopped or all files are read.

A checkpoint makes it resumable. After each batch it gets the watermark, the ledger, and the parts of the state that are
new. It holds no code.

A query can start only when the first files show its columns.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import Query
from watersmeet.algebra.render import format_query
from watersmeet.checkpoint.contents import BatchInputs, BatchRecord, RunIdentity, batch_path, find_input_problems
from watersmeet.checkpoint.owner import OutputOwner, check_output_owner, claim_output
from watersmeet.checkpoint.store import FILES_PART, Checkpoint, FileLog
from watersmeet.errors import InputError
from watersmeet.events import log_event, log_run_ended, log_waiting_for_files
from watersmeet.framing import DamagedFileError
from watersmeet.metrics import Ledger, Observer
from watersmeet.operators.protocol import SavedPart, StatePart
from watersmeet.runtime.embedded import run as embedded
from watersmeet.runtime.embedded.run import EmbeddedRun, run_batch_with_metrics
from watersmeet.sinks import list_part_files
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.units import format_bytes

#: Interval between two listings of a directory that has no new files.
POLL_S = 0.25


class BatchSink(Protocol):
    """Destination of the rows of a batch. Writing a batch again replaces it."""

    def write_batch(self, batch: int, rows: pa.Table) -> None: ...


@dataclass(frozen=True)
class IncrementalJob:
    """Job over streams that are directories or files.

    `follow` waits for new files when all are read. `checkpoint` is the directory to resume from. `choose_plan` pins a
    plan, for example one that sheds rows, once every stream has a file; a resumed run keeps the plan it started with.
    """

    query: Query
    sources: Mapping[str, Stream | Relation]
    sink: BatchSink
    follow: bool = True
    checkpoint: Path | None = None
    out: str | None = None
    choose_plan: Callable[[], Plan | None] = lambda: None
    stats: Mapping[str, StreamStats] = field(default_factory=dict)

    @property
    def file_sources(self) -> dict[str, FileSource]:
        """Streams that are read file by file, by name."""
        return {name: source.feed for name, source in self.sources.items() if isinstance(source.feed, FileSource)}


@dataclass
class JobProgress:
    """Progress of a job. `run` is None if there was never a file to read. `files` are those that were read."""

    files: FileLog
    run: EmbeddedRun | None = None
    batches: int = 0
    rows_out: int = 0
    resumed_after: int | None = None
    waiting_for: list[str] = field(default_factory=list)


def run_incremental(
    job: IncrementalJob,
    stop: threading.Event,
    observe: Observer,
    on_start: Callable[[EmbeddedRun], None] = lambda run: None,
    on_wait: Callable[[list[str]], None] = lambda names: None,
) -> JobProgress:
    """Run until `stop` is set or, without `follow`, until all files are read.

    The batch in progress is always finished and committed. `on_start` is called once, before the first batch. `on_wait`
    is called with the names of streams that have no file yet.
    """
    checkpoint = Checkpoint(job.checkpoint, _identify_run(job)) if job.checkpoint is not None else None
    try:
        progress = _run_batches(job, checkpoint, stop, observe, on_start, on_wait)
        log_run_ended(progress.rows_out, progress.run.ledger_dict() if progress.run is not None else {})
        return progress
    finally:
        if checkpoint is not None:
            checkpoint.close()


def _run_batches(
    job: IncrementalJob,
    checkpoint: Checkpoint | None,
    stop: threading.Event,
    observe: Observer,
    on_start: Callable[[EmbeddedRun], None],
    on_wait: Callable[[list[str]], None],
) -> JobProgress:
    progress = JobProgress(FileLog.start(len(job.file_sources)))
    owner = checkpoint.owner if checkpoint is not None else OutputOwner(uuid.uuid4().hex, None)
    _check_output(job, checkpoint, owner)
    progress.waiting_for = _wait_for_schemas(job, checkpoint, stop, on_wait)
    if progress.waiting_for:
        return progress
    plan = _load_or_choose_plan(job, checkpoint)
    if job.out is not None:
        claim_output(Path(job.out), owner)
    run = progress.run = embedded.start_run(
        job.query, job.sources, plan, stats=job.stats, saved_every_batch=checkpoint is not None
    )
    batch, pending = _resume(job, checkpoint, run, progress)
    on_start(run)
    while not stop.is_set() or pending:
        files = pending.pop(0) if pending else _choose_next_files(job, checkpoint, batch)
        if files is None:
            if not job.follow:
                break
            stop.wait(POLL_S)
            continue
        _run_batch(job, checkpoint, run, batch, files, observe, progress)
        batch += 1
    return progress


def _check_output(job: IncrementalJob, checkpoint: Checkpoint | None, owner: OutputOwner) -> None:
    """Refuse an output directory of another run, or one that is ahead of the checkpoint."""
    if job.out is None:
        return
    check_output_owner(Path(job.out), owner, is_new=checkpoint is None or checkpoint.is_new)
    newest = max(list_part_files(Path(job.out)), default=-1)
    if checkpoint is not None and newest > checkpoint.last_record:
        # A record is written before its rows. The batch would be chosen again, perhaps with other files, and rows would
        # be duplicated.
        missing = batch_path(checkpoint.path, checkpoint.last_record + 1)
        raise DamagedFileError(
            missing,
            f'is missing, but "{job.out}" holds rows of batch {newest}',
            hint="restore the entire checkpoint from a backup, "
            "or start again with a new checkpoint and a new output directory",
        )


def _wait_for_schemas(
    job: IncrementalJob,
    checkpoint: Checkpoint | None,
    stop: threading.Event,
    on_wait: Callable[[list[str]], None],
) -> list[str]:
    """Wait until the columns of every stream are known; return the names of the others if the job was stopped first."""
    file_sources = job.file_sources
    if checkpoint is not None and not checkpoint.is_new:
        for name, schema in checkpoint.schemas().items():
            file_sources[name].known_schema = schema
    if not job.follow:
        refuse_empty_sources(file_sources)
    return wait_for_first_files(file_sources, stop, on_wait)


def _load_or_choose_plan(job: IncrementalJob, checkpoint: Checkpoint | None) -> Plan | None:
    """Return the pinned plan.

    The checkpoint stores it, because a batch that runs again has to shed the same rows.
    """
    if checkpoint is None:
        return job.choose_plan()
    if checkpoint.is_new:
        checkpoint.write_manifest({name: source.schema for name, source in job.file_sources.items()}, job.choose_plan())
    return checkpoint.plan()


def _resume(
    job: IncrementalJob, checkpoint: Checkpoint | None, run: EmbeddedRun, progress: JobProgress
) -> tuple[int, list[BatchInputs]]:
    """Restore the last committed state; return the number of the next batch, and the files of batches to rerun."""
    if checkpoint is None:
        return 0, []
    records, latest = checkpoint.batch_records(), checkpoint.latest_state()
    committed = -1
    if latest is not None:
        committed = progress.resumed_after = latest.batch
        progress.files = FileLog.restore(len(job.file_sources), latest.parts)
        for number, source in enumerate(job.file_sources.values()):
            source.seen.update(progress.files.names(number))
        restore_run(run, latest.facts, [part for part in latest.parts if part.kind != FILES_PART])
        checkpoint.adopt(latest, _list_parts(run, progress))
        log_event(logging.INFO, "run_resumed", f"run resumed after batch {committed}", batch=committed)
    _check_inputs(job, records, committed)
    return committed + 1, [records[number].files for number in sorted(records) if number > committed]


def _check_inputs(job: IncrementalJob, records: Mapping[int, BatchRecord], committed: int) -> None:
    """Refuse to rerun a batch without the files it read.

    A file may be corrected while no row of its batch is written.
    """
    streams = {name: source.path for name, source in job.file_sources.items()}
    written = list_part_files(Path(job.out)) if job.out is not None else {}
    for problem in find_input_problems(streams, records, committed):
        if problem.is_missing or problem.batch in written:
            raise InputError(
                f'input file "{problem.path}" of batch {problem.batch}, which has to run again, {problem.description}',
                hint="restore the file, then run the same command again",
            )


def _choose_next_files(job: IncrementalJob, checkpoint: Checkpoint | None, batch: int) -> BatchInputs | None:
    """Choose the files of the next batch and log them before they are read; return None if there are no new files."""
    files = {
        name: source.describe_files(new)
        for name, source in job.file_sources.items()
        if (new := source.list_new_files())
    }
    if not files:
        return None
    if checkpoint is not None:
        checkpoint.log_batch_inputs(batch, files)
    return files


def _run_batch(
    job: IncrementalJob,
    checkpoint: Checkpoint | None,
    run: EmbeddedRun,
    batch: int,
    files: BatchInputs,
    observe: Observer,
    progress: JobProgress,
) -> None:
    tables = {name: job.file_sources[name].read_new_files(each) for name, each in files.items()}
    results, metrics = run_batch_with_metrics(run, batch, tables)
    job.sink.write_batch(batch, pa.Table.from_batches(results, run.result))
    if checkpoint is not None:
        _commit(job, checkpoint, run, batch, files, progress)
    progress.batches += 1
    progress.rows_out += metrics.rows_out
    observe(metrics)


def _commit(
    job: IncrementalJob,
    checkpoint: Checkpoint,
    run: EmbeddedRun,
    batch: int,
    files: BatchInputs,
    progress: JobProgress,
) -> None:
    for number, name in enumerate(job.file_sources):
        if name in files:
            progress.files = progress.files.add(number, (file.name for file in files[name]))
    written_bytes = checkpoint.commit(batch, describe_run(run), _list_parts(run, progress))
    log_event(
        logging.DEBUG,
        "checkpoint_written",
        f"checkpoint of batch {batch} written: {format_bytes(written_bytes)}",
        batch=batch,
        written_bytes=written_bytes,
        checkpoint=str(checkpoint.path),
    )


def _list_parts(run: EmbeddedRun, progress: JobProgress) -> list[StatePart]:
    """Return all parts of the state of a job: the files that it has read, and the state of its operator."""
    return [*progress.files.parts(), *run.operator.parts(run.state)]


def _identify_run(job: IncrementalJob) -> RunIdentity:
    return RunIdentity(
        format_query(job.query), {name: _describe_stream(each) for name, each in job.sources.items()}, job.out
    )


def _describe_stream(source: Stream | Relation) -> dict[str, Any]:
    if not isinstance(source, Stream) or not isinstance(source.feed, FileSource):
        return {"relation": True}
    return {
        "path": str(source.feed.path.absolute()),
        "time": source.time,
        "lateness_us": source.lateness_us,
        "idle_us": source.idle_us,
        # Absent where they do not apply, as in checkpoints of earlier versions.
        **({} if source.unit is None else {"unit": source.unit}),
        **({"stamped": True} if source.stamped else {}),
    }


def describe_run(run: EmbeddedRun) -> dict[str, Any]:
    """Return everything about a run between two batches that is not in the parts of its state, as JSON values."""
    return {
        "watermark": run.watermark.to_dict(),
        "ledger": {name: asdict(entry) for name, entry in run.ledger.items()},
    }


def restore_run(run: EmbeddedRun, facts: Mapping[str, Any], parts: Sequence[SavedPart]) -> None:
    """Restore a new run of the same query from the values of `describe_run` and the parts of its state."""
    run.watermark = run.watermark.resume(facts["watermark"])
    run.ledger = {name: Ledger(**entry) for name, entry in facts["ledger"].items()}
    run.restore_state(parts)


class GrowingSource(Protocol):
    """Source whose first file may not exist yet."""

    @property
    def path(self) -> Path: ...

    @property
    def is_ready(self) -> bool: ...


def refuse_empty_sources(sources: Mapping[str, GrowingSource]) -> None:
    """Refuse a source without files, for a run that does not wait for them."""
    for name, source in sources.items():
        if not source.is_ready:
            raise InputError(
                f'directory "{source.path}" of stream "{name}" has no data files', hint="--follow waits for them"
            )


def wait_for_first_files(
    sources: Mapping[str, GrowingSource], stop: threading.Event, on_wait: Callable[[list[str]], None]
) -> list[str]:
    """Wait until every source has a file, or until `stop` is set; return the names of the sources without one.

    `on_wait` gets the names of the sources that
    are missing, each time that they change.
    """
    missing: list[str] = []
    while True:
        before, missing = missing, [name for name, source in sources.items() if not source.is_ready]
        if not missing or stop.is_set():
            return missing
        if missing != before:
            log_waiting_for_files(missing)
            on_wait(missing)
        stop.wait(POLL_S)
