"""Mutants of the Spark host: each has one small, plausible mistake in packing, placing, caching or replaying."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.properties.mutants.mutant import Mutant, Original, single_patch_mutant
from watersmeet.algebra.plan import Plan
from watersmeet.operators import narrow_integers
from watersmeet.runtime.buckets import (
    bucket,
    bucket_grid,
    packing,
    plan_log,
    state_store,
)
from watersmeet.runtime.buckets.packets import Packet
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.watermark import Watermark


def _trust_cache(load: Original) -> Original:
    def trust_cached_state(self: state_store.StateStore, label: int) -> state_store.CachedState:
        cached = state_store._decoded_states.pop((self.step, label), None)
        found: state_store.CachedState = cached if cached is not None else load(self, label)
        return found

    return trust_cached_state


def _keep_cache_after_a_failure(load: Original) -> Original:
    """Keep a cached state while a step changes it, under the token of the previous version."""

    def keep_state_cached(self: state_store.StateStore, label: int) -> state_store.CachedState:
        loaded: state_store.CachedState = load(self, label)
        state_store._decoded_states[self.step, label] = loaded
        return loaded

    return keep_state_cached


def _ignore_a_key(codes: Original) -> Original:
    def ignore_key(self: Any, axis: Any, rows: Any) -> Any:
        found = codes(self, axis, rows)
        return np.zeros_like(found) if self.source.number == 1 else found

    return ignore_key


def _use_first_clock_only(clock: Original) -> Original:
    def read_first_clock_only(self: Any, packet: Packet) -> None:
        if self.bucket.streams[packet.source] not in self.seen_us:
            clock(self, packet)

    return read_first_clock_only


def _count_in_every_cell(clock: Original) -> Original:
    def count_in_every_cell(self: Any, packet: Packet) -> None:
        cell, self.cell = self.cell, 0
        clock(self, packet)
        self.cell = cell

    return count_in_every_cell


def _leave_entries(save: Original) -> Original:
    def leave_old_entries(self: state_store.StateStore, label: int, before: Any, state: Any) -> Any:
        kept = dict(self.entries.content)  # type: ignore[attr-defined] # the tests' own
        after = save(self, label, before, state)
        self.entries.content = kept | self.entries.content  # type: ignore[attr-defined]
        return after

    return leave_old_entries


def _use_newest_plan(_: Original) -> Original:
    def read_newest_plan(self: PlanLog, batch: int) -> Plan | None:
        numbers = self._list_batches()
        return self._read(max(numbers)) if numbers else None

    return read_newest_plan


def _replace_plan(_: Original) -> Original:
    def replace_logged_plan(self: PlanLog, batch: int, plan: Plan | None) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "new"
        temporary.write_text(json.dumps(None if plan is None else plan.to_dict()))
        os.replace(temporary, self._file(batch))
        return True

    return replace_logged_plan


def _wrap_offsets(narrow: Original) -> Original:
    def wrap_integers(field: pa.Field[Any], values: pa.Array[Any]) -> tuple[pa.Field[Any], pa.Array[Any]]:
        if values.type != pa.int64() or not len(values):
            return narrow(field, values)  # type: ignore[no-any-return]
        numbers = values.to_numpy()
        low = int(numbers.min())
        narrow_field = pa.field(field.name, pa.uint32(), metadata={b"low": str(low).encode()})
        return narrow_field, pa.array(((numbers - low) & 0xFFFFFFFF).astype(np.uint32))

    return wrap_integers


def _drop_last_rows(by_cell: Original) -> Original:
    def drop_last_row_per_cell(self: Any, grid: bucket_grid.BucketGrid) -> Any:
        for kind, cell, rows in by_cell(self, grid):
            yield kind, cell, rows.slice(0, max(1, rows.num_rows - 1))

    return drop_last_row_per_cell


def _share_names(put: Original) -> Original:
    """Cache all entries under the name of the first one, as if a name belonged to a run."""

    def overwrite_other_entries(self: state_store.WorkerCache, name: str, blob: bytes) -> None:
        put(self, name, blob)
        if self.folder is not None:
            for other in self.folder.iterdir():
                Path(other).write_bytes(blob)

    return overwrite_other_entries


def _drop_late_rows_at_once(advance: Original) -> Original:
    """Drop late rows of a batch by the watermark after it."""

    def advance_after_watermark(
        self: bucket.Bucket, label: int, state: bucket.BucketState, packets: Any, **options: Any
    ) -> Any:
        packets = list(packets)
        seen = bucket._UnpackedBatch(self, self.labels.index(label))
        for packet in packets:
            seen.add(packet)
        later = replace(state, watermark=state.watermark.after_batch(seen.seen_us))
        return advance(self, label, later, packets, **options)

    return advance_after_watermark


MUTANTS: tuple[Mutant, ...] = (
    single_patch_mutant("a worker trusts cached state of another batch", state_store.StateStore, "load", _trust_cache),
    single_patch_mutant(
        "a worker keeps cached state while a step changes it",
        state_store.StateStore,
        "load",
        _keep_cache_after_a_failure,
    ),
    single_patch_mutant("a label ignores one key", packing._SelectedRows, "_codes", _ignore_a_key),
    single_patch_mutant(
        "the bucket's clock skips one packing task", bucket._UnpackedBatch, "_add_clock", _use_first_clock_only
    ),
    single_patch_mutant(
        "every bucket counts the rows that arrived", bucket._UnpackedBatch, "_add_clock", _count_in_every_cell
    ),
    single_patch_mutant(
        "copies of late rows count", bucket_grid.BucketGrid, "is_first_copy", lambda _: lambda self, number, cell: True
    ),
    single_patch_mutant(
        "a copied row goes to its first cell only",
        bucket_grid.BucketGrid,
        "copies",
        lambda _: lambda self, number: [0],
    ),
    single_patch_mutant("a bucket drops the last row of a packet", packing._SelectedRows, "by_cell", _drop_last_rows),
    single_patch_mutant("downcast numbers wrap at 32 bits", narrow_integers, "_downcast", _wrap_offsets),
    single_patch_mutant("a store keeps entries of state that expired", state_store.StateStore, "save", _leave_entries),
    single_patch_mutant(
        "state from bytes forgets the watermark",
        state_store,
        "_restore_watermark",
        lambda _: lambda owner, saved: Watermark.start(owner.lateness),
    ),
    single_patch_mutant("cached entries share a name", state_store.WorkerCache, "put", _share_names),
    single_patch_mutant(
        "late rows are dropped by the watermark of their own batch", bucket.Bucket, "advance", _drop_late_rows_at_once
    ),
    single_patch_mutant("a replay uses the newest plan", plan_log.PlanLog, "settle_plan", _use_newest_plan),
    single_patch_mutant(
        "a plan replaces the plan of a batch that has started", plan_log.PlanLog, "_create", _replace_plan
    ),
    single_patch_mutant(
        "buckets are numbered from zero",
        bucket_grid,
        "assign_labels",
        lambda _: lambda buckets, partitions: tuple(range(buckets)),
    ),
    single_patch_mutant(
        "the checkpoint of another query is continued",
        state_store,
        "check_signature",
        lambda _: lambda saved, mine: None,
    ),
)
