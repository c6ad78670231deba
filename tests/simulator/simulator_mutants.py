"""Mutants of both hosts that the simulator has to catch: mistakes that only a crash, a replay or a lost write shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.properties.mutants.mutant import Mutant, Original, single_patch_mutant
from tests.runtime import checkpoint_mutants
from tests.runtime.buckets import spark_host_mutants
from watersmeet import files
from watersmeet.checkpoint.store import Checkpoint
from watersmeet.operators.protocol import StatePart
from watersmeet.runtime.buckets import plan_log, state_store
from watersmeet.runtime.embedded import incremental

RANGE_JOIN, THETA_JOIN, ROWS_JOIN, TUMBLE_JOIN, GROUPS, ALL_ROWS, SHED_GROUPS, SHED_JOIN = range(8)


@dataclass(frozen=True, slots=True)
class SimulatedMutant:
    """A mistake, and the host and query whose schedules have to catch it."""

    mutant: Mutant
    host: str
    query: int


def _find_mutant(mutants: Sequence[Mutant], mistake: str) -> Mutant:
    return next(each for each in mutants if each.mistake == mistake)


def _of_checkpoints(mistake: str, query: int) -> SimulatedMutant:
    mutants = [each.mutant for each in checkpoint_mutants.MUTANTS]
    return SimulatedMutant(_find_mutant(mutants, mistake), "embedded", query)


def _of_buckets(mistake: str, query: int) -> SimulatedMutant:
    return SimulatedMutant(_find_mutant(spark_host_mutants.MUTANTS, mistake), "buckets", query)


def _take_for_saved(parts: Sequence[StatePart], before: Sequence[StatePart], saved: dict[int, Any]) -> dict[int, Any]:
    """Return where parts are saved, and take a new part for the one that it replaces."""
    live = {id(part.value) for part in parts}
    replaced = {(part.input_number, part.kind): saved[id(part.value)] for part in before if id(part.value) not in live}
    new = {
        id(part.value): replaced[part.input_number, part.kind]
        for part in parts
        if id(part.value) not in saved and (part.input_number, part.kind) in replaced
    }
    return {**saved, **new}


def _checkpoint_without_merged_parts(commit: Original) -> Original:
    def commit_without_merged_parts(self: Any, batch: int, facts: Any, parts: Sequence[StatePart]) -> Any:
        self._saved_parts = _take_for_saved(parts, self._live_parts, self._saved_parts)
        return commit(self, batch, facts, parts)

    return commit_without_merged_parts


def _store_without_merged_parts(save: Original) -> Original:
    def save_without_merged_parts(self: Any, label: int, before: Any, state: Any) -> Any:
        entries = _take_for_saved(state.operator.parts(state.inner), before.parts, dict(before.entries))
        return save(self, label, replace(before, entries=entries), state)

    return save_without_merged_parts


def _choose_plan_again(_: Original) -> Original:
    def choose_plan_at_each_start(job: Any, checkpoint: Any) -> Any:
        plan = job.choose_plan()
        if checkpoint.is_new:
            checkpoint.write_manifest({name: source.schema for name, source in job.file_sources.items()}, plan)
        return plan

    return choose_plan_at_each_start


def _skip_flush(_: Original) -> Original:
    return lambda directory: None


MUTANTS = (
    _of_checkpoints("the state is written before the rows", RANGE_JOIN),
    _of_checkpoints("the watermark is not saved", ROWS_JOIN),
    _of_checkpoints("files that were read are forgotten", RANGE_JOIN),
    _of_checkpoints("the batch in flight is skipped", RANGE_JOIN),
    _of_checkpoints("the files of the batch in flight are lost", GROUPS),
    _of_checkpoints("an older state is restored", TUMBLE_JOIN),
    SimulatedMutant(
        single_patch_mutant(
            "a part is not written after a merge", Checkpoint, "commit", _checkpoint_without_merged_parts
        ),
        "embedded",
        RANGE_JOIN,
    ),
    SimulatedMutant(
        single_patch_mutant("a restart chooses another plan", incremental, "_load_or_choose_plan", _choose_plan_again),
        "embedded",
        SHED_JOIN,
    ),
    SimulatedMutant(
        single_patch_mutant("names of files are not flushed", files, "flush_directory", _skip_flush),
        "embedded",
        RANGE_JOIN,
    ),
    _of_buckets("a worker trusts cached state of another batch", RANGE_JOIN),
    _of_buckets("a worker keeps cached state while a step changes it", GROUPS),
    _of_buckets("state from bytes forgets the watermark", ROWS_JOIN),
    _of_buckets("a replay uses the newest plan", RANGE_JOIN),
    SimulatedMutant(
        single_patch_mutant(
            "an entry is not written after a merge", state_store.StateStore, "save", _store_without_merged_parts
        ),
        "buckets",
        RANGE_JOIN,
    ),
    SimulatedMutant(
        single_patch_mutant("the plan of a batch is not flushed", plan_log, "flush_directory", _skip_flush),
        "buckets",
        RANGE_JOIN,
    ),
)
