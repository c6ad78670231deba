"""Mutants of the checkpoint, the job and the saved watermark.

Each mutant is a small mistake, with the check that has to catch it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.properties.mutants.mutant import Mutant, Original, Patch
from watersmeet import files as our_files
from watersmeet import framing, sinks
from watersmeet.checkpoint import contents, findings, owner, store
from watersmeet.checkpoint.store import Checkpoint
from watersmeet.runtime.embedded import incremental
from watersmeet.sinks import SINK_FORMATS

from . import checkpoint_checks as checks
from .checkpoint_checks import Check


@dataclass(frozen=True, slots=True)
class CheckpointMutant:
    """A mistake, and the check that has to catch it."""

    mutant: Mutant
    check: Check


def _mutant(mistake: str, check: Check, *patches: Patch) -> CheckpointMutant:
    return CheckpointMutant(Mutant(mistake, patches), check)


def _return_constant(result: Any) -> Callable[[Original], Original]:
    """Replace a function by one that returns a constant."""
    return lambda _: lambda *args, **kwargs: result


def _parts_unchecked(_: Original) -> Original:
    return lambda content, place: content[: place.size]


def _new_without_a_manifest(read: Original) -> Original:
    return lambda path, damages: read(path, damages) if (path / "about.json").exists() else None


def _state_before_rows(run_batch: Original) -> Original:
    """Commit first, then write the rows."""

    def commit_before_rows(
        job: Any, saving: Any, run: Any, batch: int, files: Any, observe: Any, progress: Any
    ) -> None:
        late: list[Callable[[], None]] = []

        class Later:
            def write_batch(self, number: int, rows: Any) -> None:
                late.append(lambda: job.sink.write_batch(number, rows))

        run_batch(replace(job, sink=Later()), saving, run, batch, files, observe, progress)
        for put in late:
            put()

    return commit_before_rows


def _record_after_rows(commit: Original) -> Original:
    """Write the record that `log_batch_inputs` leaves out together with the commit."""

    def write_record_at_commit(self: Any, batch: int, *rest: Any) -> Any:
        our_files.write_atomically(contents.batch_path(self.path, batch), self._late_record)
        return commit(self, batch, *rest)

    return write_record_at_commit


def _record_kept_back(_: Original) -> Original:
    def hold_record_back(self: Any, batch: int, files: Any) -> None:
        self._late_record, digest = contents.encode_record(batch, files, self._find_record_digest(batch - 1))
        self._records[batch] = contents.BatchRecord(batch, files, digest)

    return hold_record_back


def _another_file_each_time(_: Original) -> Original:
    def part(self: Any, batch: int, suffix: str) -> Path:
        taken = len(list(self.directory.glob("part-*")))
        return Path(self.directory / f"part-{batch:010d}-{taken}{suffix}")

    return part


def _not_flushed(_: Original) -> Original:
    def write_without_flush(place: Path, content: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}")
        unfinished.write_bytes(content)
        unfinished.replace(place)
        our_files.flush_directory(place.parent)

    return write_without_flush


def _in_place(_: Original) -> Original:
    def write_in_place(place: Path, content: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    return write_in_place


def _rows_not_flushed(_: Original) -> Original:
    def write_rows_without_flush(table: Any, path: Path) -> None:
        unfinished = path.with_name(f".{path.name}")
        SINK_FORMATS[path.suffix].write(table, unfinished)
        unfinished.replace(path)
        our_files.flush_directory(path.parent)

    return write_rows_without_flush


def _owner_by_path(_: Original) -> Original:
    return lambda directory, found, own: bool(found.checkpoint == own.checkpoint)


def _always_fixed(make: Original) -> Original:
    def set_record_aside(*args: Any) -> Any:
        found = make(*args)
        return replace(found, aside=(found.path,))

    return set_record_aside


def _delete_files(_: Original) -> Original:
    def fix(self: Any) -> None:
        for file in self.aside:
            file.unlink(missing_ok=True)

    return fix


def _only_missing_inputs(problem: Original) -> Original:
    return lambda place, file: None if place.exists() else problem(place, file)


def _restored_without(forget: Callable[[Any], None]) -> Callable[[Original], Original]:
    def make(restore: Original) -> Original:
        def restore_and_forget(run: Any, *saved: Any) -> None:
            restore(run, *saved)
            forget(run)

        return restore_and_forget

    return make


def _no_watermark(run: Any) -> None:
    run.watermark = type(run.watermark).start(run.watermark.streams)


def _no_newest(run: Any) -> None:
    run.watermark = replace(run.watermark, newest_us=MappingProxyType({}))


def _no_beginning(run: Any) -> None:
    run.watermark = replace(run.watermark, began_us=None)


def _watermark_without_value(run: Any) -> None:
    start = type(run.watermark).start(run.watermark.streams)
    run.watermark = replace(run.watermark, value_us=start.value_us)


def _no_ledger(run: Any) -> None:
    run.ledger = {}


def _forget_read_files(resumed: Original) -> Original:
    def forget_read_files(job: Any, *rest: Any) -> Any:
        found = resumed(job, *rest)
        for each in job.file_sources.values():
            each.seen.clear()
        return found

    return forget_read_files


def _batch_in_flight_skipped(resumed: Original) -> Original:
    def skip_batch_in_flight(*args: Any) -> Any:
        batch, pending = resumed(*args)
        return batch + len(pending), []

    return skip_batch_in_flight


def _batch_in_flight_forgotten(resumed: Original) -> Original:
    """Its number is used again, and its files count as read."""

    def forget_batch_in_flight(job: Any, *rest: Any) -> Any:
        batch, pending = resumed(job, *rest)
        for files in pending:
            for name, each in files.items():
                job.file_sources[name].seen.update(file.name for file in each)
        return batch, []

    return forget_batch_in_flight


def _oldest_state(_: Original) -> Original:
    """Return the oldest state under the number of the newest."""
    return lambda self: replace(self._states[min(self._states)], batch=max(self._states)) if self._states else None


def _all_states_read(read: Original) -> Original:
    return lambda path, all_states=False: read(path, all_states=True)


def _skip_lock(_: Original) -> Original:
    def open_without_lock(path: Path) -> Any:
        path.mkdir(parents=True, exist_ok=True)
        return (path / "lock").open("ab")

    return open_without_lock


MUTANTS = (
    _mutant(
        "the checksum is not verified",
        checks.check_damage,
        Patch(framing, "_checksum", _return_constant("0" * 8)),
    ),
    _mutant(
        "the checksum covers the header only",
        checks.check_damage,
        Patch(framing, "check_part", _parts_unchecked),
    ),
    _mutant(
        "the link to the predecessor is not verified",
        checks.check_damage,
        Patch(contents, "_check_link", _return_constant(None)),
    ),
    _mutant(
        "a file of another batch is accepted",
        checks.check_damage,
        Patch(contents, "_check_link", _return_constant(None)),
        Patch(contents, "_check_number", _return_constant(None)),
    ),
    _mutant(
        "a checkpoint without a manifest is a new one",
        checks.check_damage,
        Patch(contents, "_read_manifest", _new_without_a_manifest),
    ),
    _mutant(
        "the version is ignored", checks.check_versions, Patch(framing, "READABLE_VERSIONS", lambda _: range(1000))
    ),
    _mutant(
        "an older version is called damaged",
        checks.check_versions,
        Patch(contents, "_refuse_format_1", _return_constant(None)),
    ),
    _mutant(
        "another query is accepted",
        checks.check_versions,
        Patch(contents.RunIdentity, "describe_difference", _return_constant(None)),
    ),
    _mutant(
        "a damaged checkpoint is used",
        checks.check_damage,
        Patch(contents.CheckpointContents, "raise_damage", _return_constant(None)),
    ),
    _mutant(
        "the state is written before the rows",
        checks.check_crashes,
        Patch(incremental, "_run_batch", _state_before_rows),
    ),
    _mutant(
        "the record is written after the rows",
        checks.check_order,
        Patch(Checkpoint, "log_batch_inputs", _record_kept_back),
        Patch(Checkpoint, "commit", _record_after_rows),
    ),
    _mutant(
        "a batch that runs again adds its rows",
        checks.check_crashes,
        Patch(sinks.PartFileSink, "_part", _another_file_each_time),
    ),
    _mutant("files are not flushed", checks.check_order, Patch(store, "write_atomically", _not_flushed)),
    _mutant("names are not flushed", checks.check_order, Patch(our_files, "flush_directory", _return_constant(None))),
    _mutant("files are written in place", checks.check_order, Patch(store, "write_atomically", _in_place)),
    _mutant(
        "rows are not flushed before the commit",
        checks.check_order,
        Patch(sinks, "write_table", _rows_not_flushed),
    ),
    _mutant(
        "the owner of the output is not checked", checks.check_owner, Patch(owner, "_may_claim", _return_constant(True))
    ),
    _mutant(
        "the owner of the output is not written",
        checks.check_owner,
        Patch(incremental, "claim_output", _return_constant(None)),
    ),
    _mutant("the owner is identified by its path", checks.check_owner, Patch(owner, "_may_claim", _owner_by_path)),
    _mutant(
        "rows of others are accepted", checks.check_owner, Patch(owner, "_refuse_foreign_rows", _return_constant(None))
    ),
    _mutant(
        "an output ahead of its checkpoint is accepted",
        checks.check_older_checkpoint,
        Patch(incremental, "list_part_files", _return_constant({})),
    ),
    _mutant("repair skips inputs", checks.check_inputs, Patch(findings, "find_input_problems", _return_constant(()))),
    _mutant("a run skips inputs", checks.check_inputs, Patch(incremental, "find_input_problems", _return_constant(()))),
    _mutant(
        "changed inputs are accepted",
        checks.check_inputs,
        Patch(contents, "_check_input_file", _only_missing_inputs),
    ),
    _mutant(
        "repair forgets a committed batch", checks.check_damage, Patch(findings, "_report_record_damage", _always_fixed)
    ),
    _mutant(
        "repair forgets a batch whose rows are written",
        checks.check_damage,
        Patch(findings, "list_part_files", _return_constant({})),
    ),
    _mutant("a fix deletes files", checks.check_fixes_keep_files, Patch(findings.Finding, "fix", _delete_files)),
    _mutant(
        "the watermark is not saved",
        checks.check_restarts,
        Patch(incremental, "restore_run", _restored_without(_no_watermark)),
    ),
    _mutant(
        "the newest times are not saved",
        checks.check_restarts,
        Patch(incremental, "restore_run", _restored_without(_no_newest)),
    ),
    _mutant(
        "the first time is not saved",
        checks.check_restarts,
        Patch(incremental, "restore_run", _restored_without(_no_beginning)),
    ),
    _mutant(
        "the value of the watermark is not saved",
        checks.check_restarts,
        Patch(incremental, "restore_run", _restored_without(_watermark_without_value)),
    ),
    _mutant(
        "the ledger is not saved",
        checks.check_restarts,
        Patch(incremental, "restore_run", _restored_without(_no_ledger)),
    ),
    _mutant(
        "files that were read are forgotten", checks.check_crashes, Patch(incremental, "_resume", _forget_read_files)
    ),
    _mutant(
        "the batch in flight is skipped", checks.check_crashes, Patch(incremental, "_resume", _batch_in_flight_skipped)
    ),
    _mutant(
        "the files of the batch in flight are lost",
        checks.check_crashes,
        Patch(incremental, "_resume", _batch_in_flight_forgotten),
    ),
    _mutant(
        "an older state is restored",
        checks.check_crashes,
        Patch(Checkpoint, "latest_state", _oldest_state),
        Patch(store, "read_contents", _all_states_read),
    ),
    _mutant("the checkpoint is not locked", checks.check_lock, Patch(store, "lock_checkpoint", _skip_lock)),
)
