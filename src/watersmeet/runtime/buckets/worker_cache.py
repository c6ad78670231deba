"""Cache of streaming state that the workers of one machine share: files in Spark's local directory, mapped into memory.

Any worker may process the next batch of any bucket. A worker writes each new entry to Spark's state store and to this
cache, under a random name per entry. So the next worker need not fetch megabytes through the JVM. Entries that are not
cached are read from the state store.

Each run of a query has its own directory, which exists as long as the run. The driver removes it after the query's end
(`session`), and workers drop the state of runs whose directory no longer exists. A driver on another machine cannot
remove it. So every new query carries the names of the active runs, and its tasks remove the others. Removal is always
safe, because the state store has everything.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

_PREFIX = "watersmeet-"

#: The cache of a run is removed if no task has used it for this long. A query with a longer trigger interval reads its
#: state from the state store.
UNUSED_S = 600.0
#: Assumed upper bound on the difference between the clocks of two machines.
CLOCK_SKEW_S = 60.0


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
