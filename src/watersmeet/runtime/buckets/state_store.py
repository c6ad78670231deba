"""The state of a bucket in Spark's state store: a header, and one entry per part of the operator's state.

An entry is written once and deleted once. Each worker caches decoded state in memory under a random token per write,
which the header repeats. Cached state is used only if the state store holds that very version, so no result depends on
the cache. The cached state of ended runs is dropped.

The workers of one machine also share a cache of entries: files in Spark's local directory, mapped into memory. Any
worker may process the next batch of any bucket. A worker writes each new entry to Spark's state store and to this
cache, under a random name per entry. So the next worker need not fetch megabytes through the JVM. Entries that are not
cached are read from the state store.

Each run of a query has its own directory, which exists as long as the run. The driver removes it after the query's end
(`runtime.spark.session`), and workers drop the state of runs whose directory no longer exists. A driver on another
machine cannot remove it. So every new query carries the names of the active runs, and its tasks remove the others.
Removal is always safe, because the state store has everything.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.framing import FrameHeader, decode_frame, encode_frame
from watersmeet.operators.protocol import Operator, SavedPart, StatePart
from watersmeet.runtime.buckets.bucket import BucketState
from watersmeet.runtime.watermark import Lateness, Watermark

_PREFIX = "watersmeet-"

#: The cache of a run is removed if no task has used it for this long. A query with a longer trigger interval reads its
#: state from the state store.
UNUSED_S = 600.0
#: Assumed upper bound on the difference between the clocks of two machines.
CLOCK_SKEW_S = 60.0
HEADER_FRAME, ENTRY_FRAME = "bucket", "part"
#: First bytes of a header before format 3.
_EARLIER_HEADER = b'{"signature"'


@dataclass(frozen=True, slots=True)
class WorkerCache:
    """Cached entries of one run. `folder` is None if Spark has no local directory: then nothing is cached."""

    folder: Path | None

    @classmethod
    def open(cls, run: str) -> WorkerCache:
        """Open the cache of a run: create its directory, or mark it as used."""
        local = local_directory()
        if local is None:
            return cls(None)
        folder = run_directory(local, run)
        try:
            folder.mkdir(exist_ok=True)
            os.utime(folder)
        except OSError:
            return cls(None)
        return cls(folder)

    def put(self, name: str, blob: bytes) -> None:
        """Write an entry. A full disk, or a directory that was removed meanwhile, leaves it uncached."""
        if self.folder is None:
            return
        temporary = self.folder / f"{name}.{os.getpid()}"
        try:
            temporary.write_bytes(blob)
            temporary.rename(self.folder / name)  # atomic: a reader never sees a partial entry
        except OSError:
            temporary.unlink(missing_ok=True)

    def get(self, name: str) -> pa.Buffer | None:
        """Map an entry into memory; None if it is not cached."""
        if self.folder is None:
            return None
        try:
            with pa.memory_map(str(self.folder / name)) as opened:
                return opened.read_buffer()
        except OSError:
            return None

    def drop(self, name: str) -> None:
        """Delete an entry that the state no longer contains."""
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)


def local_directory() -> Path | None:
    """Return the local directory that Spark gave this worker, or None."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(local) if local and Path(local).is_dir() else None


def run_directory(local: Path, run: str) -> Path:
    """Return the path of a run's cache."""
    return local / f"{_PREFIX}{run}"


def cached_runs(local: Path) -> list[str]:
    """List the runs that have a cache in a local directory."""
    return [folder.name.removeprefix(_PREFIX) for folder in local.glob(f"{_PREFIX}*")]


def remove_run(local: Path, run: str) -> None:
    """Remove the cache of a run."""
    shutil.rmtree(run_directory(local, run), ignore_errors=True)


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """Runs that were active at an instant of the driver's clock."""

    runs: frozenset[str] = frozenset()
    at_s: float = 0.0

    def is_removable(self, run: str, used_s: float, now_s: float) -> bool:
        """Return whether a run that was last used at `used_s` has ended, or has not been used for a long time.

        A run missing from `runs` may have started after `at_s`. Then its last use is after `at_s` too, and it is kept.
        """
        return used_s < now_s - UNUSED_S or (run not in self.runs and used_s < self.at_s - CLOCK_SKEW_S)


NO_LIVE_RUNS = LiveRuns()


def remove_ended_caches(local: Path, live: LiveRuns, current: str, now_s: float) -> None:
    """Remove the caches of all runs that are removable, except `current`, the run of the calling task."""
    for run in cached_runs(local):
        if run != current and live.is_removable(run, _last_used_s(run_directory(local, run)), now_s):
            remove_run(local, run)


def _last_used_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another worker has removed it
        return float("inf")


class ValueState(Protocol):
    """Spark's ValueState."""

    def get(self) -> Any: ...

    def update(self, newValue: Any) -> None: ...  # noqa: N803 # Spark's own name


class MapState(Protocol):
    """Spark's MapState."""

    def getValue(self, key: Any) -> Any: ...  # noqa: N802 # Spark's own names

    def updateValue(self, key: Any, value: Any) -> None: ...  # noqa: N802

    def removeKey(self, key: Any) -> None: ...  # noqa: N802


class StateOwner(Protocol):
    """Owner of the state: the operator and its lateness settings."""

    @property
    def operator(self) -> Operator[Any]: ...

    @property
    def lateness(self) -> Mapping[str, Lateness]: ...

    def empty(self) -> BucketState: ...


@dataclass(frozen=True, slots=True)
class StateEntry:
    """Location of a part: its key (`place`) in Spark's state store, and its random name in the worker cache."""

    place: int
    name: str
    input_number: int
    kind: str
    rows: int
    size: int


@dataclass(frozen=True)
class CachedState:
    """Decoded state, with the entry of every part by the part's identity.

    `parts` keeps references to the parts, so that no other object gets their identity.
    """

    token: str
    version: int
    next_place: int
    state: BucketState
    parts: Sequence[StatePart]
    entries: Mapping[int, StateEntry]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries.values())


@dataclass(frozen=True, slots=True)
class StatefulStep:
    """A stateful step of one run of a query. `run` is Spark's run id."""

    run: str
    name: str


#: Decoded state by step and bucket, in each worker process.
_decoded_states: dict[tuple[StatefulStep, int], CachedState] = {}


def forget_ended_runs(live: LiveRuns = NO_LIVE_RUNS, current: str = "") -> None:
    """Drop the cached state of ended runs: first their directories, then the decoded state of runs without one.

    Every task calls this, because Spark tells workers nothing about the end of a query. `live` are the active runs
    that the task's query knows of, `current` is its own run. Without a local directory only the current run is cached.
    """
    local = local_directory()
    if local is not None:
        remove_ended_caches(local, live, current, time.time())
    for key in list(_decoded_states):
        run = key[0].run
        if run != current if local is None else not run_directory(local, run).is_dir():
            del _decoded_states[key]


@dataclass(frozen=True)
class StateStore:
    """State of the buckets of one step.

    `signature` identifies the query that it belongs to. `cache_state` lets workers cache it.
    """

    header: ValueState
    entries: MapState
    bucket: StateOwner
    signature: Mapping[str, str]
    step: StatefulStep
    cache_state: bool

    def load(self, label: int) -> CachedState:
        saved = self.header.get()
        if saved is None:
            return CachedState("", 0, 0, self.bucket.empty(), (), {})
        header = _decode(saved[0].encode(), HEADER_FRAME).header
        check_signature(header["signature"], self.signature)
        # A step may modify the state it gets, so the cache must not keep it: the step may fail.
        cached = _decoded_states.pop((self.step, label), None)
        if cached is not None and cached.token == header["token"]:
            return cached
        return self._read(header)

    def save(self, label: int, before: CachedState, state: BucketState) -> CachedState:
        """Write new parts, delete the parts that the state no longer contains, and write the header last."""
        parts, cache = state.operator.parts(state.inner), self._open_cache()
        entries: dict[int, StateEntry] = {}
        place = before.next_place
        for part in parts:
            known = before.entries.get(id(part.value))
            if known is None:
                name = uuid.uuid4().hex
                blob, _ = encode_frame(ENTRY_FRAME, {"name": name}, [part.to_bytes()])
                known = StateEntry(place, name, part.input_number, part.kind, part.rows, len(blob))
                self.entries.updateValue((place,), (blob,))
                cache.put(known.name, blob)
                place += 1
            entries[id(part.value)] = known
        for removed in {*before.entries.values()} - {*entries.values()}:
            self.entries.removeKey((removed.place,))
            cache.drop(removed.name)
        after = CachedState(uuid.uuid4().hex, before.version + 1, place, state, parts, entries)
        self.header.update((encode_frame(HEADER_FRAME, self._header(after))[0].decode(),))
        self._cache_decoded(label, after)
        return after

    def _read(self, header: Mapping[str, Any]) -> CachedState:
        listed, cache = [StateEntry(*values) for values in header["entries"]], self._open_cache()
        saved = [self._read_part(entry, cache) for entry in listed]
        operator, watermark = self.bucket.operator, _restore_watermark(self.bucket, header["watermark"])
        state = BucketState(operator, operator.restore(saved), watermark)
        parts = operator.parts(state.inner)
        entries = {id(part.value): entry for part, entry in zip(parts, listed, strict=True)}
        return CachedState(header["token"], header["version"], header["next_place"], state, parts, entries)

    def _open_cache(self) -> WorkerCache:
        return WorkerCache.open(self.step.run) if self.cache_state else WorkerCache(None)

    def _blob(self, entry: StateEntry, cache: WorkerCache) -> bytes | pa.Buffer:
        cached = cache.get(entry.name)
        if cached is not None:
            return cached
        stored = self.entries.getValue((entry.place,))
        if stored is None:
            raise InputError(
                f"the checkpoint is damaged: entry {entry.place} of its state is missing",
                hint="start from an earlier copy of it",
            )
        return bytes(stored[0])

    def _read_part(self, entry: StateEntry, cache: WorkerCache) -> SavedPart:
        blob = memoryview(self._blob(entry, cache))
        frame = _decode(blob, ENTRY_FRAME)
        if frame.header["name"] != entry.name:
            raise InputError(
                f"the checkpoint is damaged: entry {entry.place} belongs to another version of its state",
                hint="start from an earlier copy of it",
            )
        return SavedPart(entry.input_number, entry.kind, pa.py_buffer(frame.part(blob)))

    def _header(self, after: CachedState) -> dict[str, Any]:
        ordered = [after.entries[id(part.value)] for part in after.parts]
        return {
            "signature": dict(self.signature),
            "token": after.token,
            "version": after.version,
            "next_place": after.next_place,
            "watermark": after.state.watermark.to_dict(),
            "entries": [[e.place, e.name, e.input_number, e.kind, e.rows, e.size] for e in ordered],
        }

    def _cache_decoded(self, label: int, after: CachedState) -> None:
        if not self.cache_state:
            return
        for key in [
            key for key, each in _decoded_states.items() if key[0] == self.step and each.version < after.version - 1
        ]:
            del _decoded_states[key]  # another worker has processed later batches of these buckets
        _decoded_states[self.step, label] = after


def _decode(content: bytes | memoryview, kind: str) -> FrameHeader:
    """Decode a frame of the state; refuse state of an earlier version, and damaged bytes."""
    if bytes(content[: len(_EARLIER_HEADER)]) == _EARLIER_HEADER:
        raise InputError(
            "the checkpoint was written by an earlier version of Watersmeet, which saved state in another format",
            hint="start again with a new checkpoint location and a new output directory",
        )
    try:
        return decode_frame(content, kind)
    except ValueError as error:
        raise InputError(
            f"the state in the checkpoint {error}", hint="start from an earlier copy of the checkpoint"
        ) from error


def check_signature(saved: Mapping[str, str], mine: Mapping[str, str]) -> None:
    """Refuse to continue the checkpoint of another query; the error names the difference."""
    for fact in (*saved, *mine):
        was, now = saved.get(fact, "nothing"), mine.get(fact, "nothing")
        if was != now:
            raise InputError(
                f"the checkpoint belongs to another query: {fact} was {_join_lines(was)}, and is {_join_lines(now)}",
                hint="run the query that created it, or use a new checkpoint location",
            )


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _restore_watermark(bucket: StateOwner, saved: dict[str, Any]) -> Watermark:
    return Watermark.start(bucket.lateness).resume(saved)
