"""The Spark host, broken on purpose: each mutant is a small mistake somebody could make in packing, placing, caching or
replaying.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.properties.mutants.mutant import Mutant, Original, single_patch_mutant
from watersmeet.algebra.plan import Plan
from watersmeet.runtime.spark import bucket, bucket_grid, integer_downcast, packing, plan_log, state_store, worker_cache
from watersmeet.runtime.spark.packets import Packet
from watersmeet.runtime.spark.plan_log import PlanLog
from watersmeet.runtime.watermark import Watermark


def _trusting(load: Original) -> Original:
    def trust_cached_state(self: state_store.StateStore, label: int) -> state_store.CachedState:
        cached = state_store._decoded_states.pop((self.step, label), None)
        found: state_store.CachedState = cached if cached is not None else load(self, label)
        return found

    return trust_cached_state


def _keeping_after_a_failure(load: Original) -> Original:
    """A cached state stays where it is while a step changes it, under the token of the version before."""

    def keep_state_cached(self: state_store.StateStore, label: int) -> state_store.CachedState:
        loaded: state_store.CachedState = load(self, label)
        state_store._decoded_states[self.step, label] = loaded
        return loaded

    return keep_state_cached


def _ignoring_a_key(codes: Original) -> Original:
    def ignore_key(self: Any, axis: Any, rows: Any) -> Any:
        found = codes(self, axis, rows)
        return np.zeros_like(found) if self.source.number == 1 else found

    return ignore_key


def _first_clock_alone(clock: Original) -> Original:
    def read_first_clock_only(self: Any, packet: Packet) -> None:
        if self.bucket.streams[packet.source] not in self.seen_us:
            clock(self, packet)

    return read_first_clock_only


def _counting_everywhere(clock: Original) -> Original:
    def count_in_every_cell(self: Any, packet: Packet) -> None:
        cell, self.cell = self.cell, 0
        clock(self, packet)
        self.cell = cell

    return count_in_every_cell


def _leaving_entries(save: Original) -> Original:
    def leave_old_entries(self: state_store.StateStore, label: int, before: Any, state: Any) -> Any:
        kept = dict(self.entries.content)  # type: ignore[attr-defined] # the tests' own
        after = save(self, label, before, state)
        self.entries.content = kept | self.entries.content  # type: ignore[attr-defined]
        return after

    return leave_old_entries


def _newest_plan(_: Original) -> Original:
    def read_newest_plan(self: PlanLog, batch: int) -> Plan | None:
        numbers = self._list_batches()
        return self._read(max(numbers)) if numbers else None

    return read_newest_plan


def _replacing(_: Original) -> Original:
    def replace_logged_plan(self: PlanLog, batch: int, plan: Plan | None) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self.folder / "new"
        beside.write_text(json.dumps(None if plan is None else plan.to_dict()))
        os.replace(beside, self._file(batch))
        return True

    return replace_logged_plan


def _wrapping(narrow: Original) -> Original:
    def wrap_integers(field: pa.Field, values: pa.Array) -> tuple[pa.Field, pa.Array]:
        if values.type != pa.int64() or not len(values):
            return narrow(field, values)  # type: ignore[no-any-return]
        numbers = values.to_numpy()
        low = int(numbers.min())
        narrow_field = pa.field(field.name, pa.uint32(), metadata={b"low": str(low).encode()})
        return narrow_field, pa.array(((numbers - low) & 0xFFFFFFFF).astype(np.uint32))

    return wrap_integers


def _without_the_last_rows(by_cell: Original) -> Original:
    def drop_last_row_per_cell(self: Any, grid: bucket_grid.BucketGrid) -> Any:
        for cell, rows in by_cell(self, grid):
            yield cell, rows.slice(0, max(1, rows.num_rows - 1))

    return drop_last_row_per_cell


def _sharing_names(put: Original) -> Original:
    """Entries are cached under the name of the first one, as if a name belonged to a run."""

    def overwrite_other_entries(self: worker_cache.WorkerCache, name: str, blob: bytes) -> None:
        put(self, name, blob)
        if self.folder is not None:
            for other in self.folder.iterdir():
                Path(other).write_bytes(blob)

    return overwrite_other_entries


def _late_at_once(advance: Original) -> Original:
    """Rows of a batch are judged by the watermark after it."""

    def advance_after_watermark(
        self: bucket.Bucket, label: int, state: bucket.BucketState, packets: Any, *, last: bool
    ) -> Any:
        packets = list(packets)
        seen = bucket._UnpackedBatch(self, self.labels.index(label))
        for packet in packets:
            seen.add(packet)
        return advance(
            self, label, bucket.BucketState(state.inner, state.watermark.after_batch(seen.seen_us)), packets, last=last
        )

    return advance_after_watermark


MUTANTS: tuple[Mutant, ...] = (
    single_patch_mutant("a worker trusts cached state of another batch", state_store.StateStore, "load", _trusting),
    single_patch_mutant(
        "a worker keeps cached state while a step changes it", state_store.StateStore, "load", _keeping_after_a_failure
    ),
    single_patch_mutant("a label ignores one key", packing._SelectedRows, "_codes", _ignoring_a_key),
    single_patch_mutant(
        "the bucket's clock skips one packing task", bucket._UnpackedBatch, "_add_clock", _first_clock_alone
    ),
    single_patch_mutant(
        "every bucket counts the rows that arrived", bucket._UnpackedBatch, "_add_clock", _counting_everywhere
    ),
    single_patch_mutant(
        "copies of late rows count", bucket_grid.BucketGrid, "is_first_copy", lambda _: lambda self, number, cell: True
    ),
    single_patch_mutant(
        "a copied row goes to its first cell alone",
        bucket_grid.BucketGrid,
        "copies",
        lambda _: lambda self, number: [0],
    ),
    single_patch_mutant(
        "a bucket drops the last row of a packet", packing._SelectedRows, "by_cell", _without_the_last_rows
    ),
    single_patch_mutant("numbers wrap at 32 bits on their way", integer_downcast, "_downcast", _wrapping),
    single_patch_mutant(
        "a store keeps entries of state that expired", state_store.StateStore, "save", _leaving_entries
    ),
    single_patch_mutant(
        "state from bytes forgets the watermark",
        state_store,
        "_restore_watermark",
        lambda _: lambda owner, saved: Watermark.start(owner.lateness),
    ),
    single_patch_mutant("cached entries share a name", worker_cache.WorkerCache, "put", _sharing_names),
    single_patch_mutant("a row is judged by the watermark of its own batch", bucket.Bucket, "advance", _late_at_once),
    single_patch_mutant("a replay uses the newest plan", plan_log.PlanLog, "settle_plan", _newest_plan),
    single_patch_mutant("a plan replaces that of a batch that has begun", plan_log.PlanLog, "_create", _replacing),
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
