"""Workers drop the cached state of runs that ended, and of no others."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.runtime.buckets import state_store
from watersmeet.runtime.buckets.bucket import BucketState
from watersmeet.runtime.buckets.state_store import (
    CLOCK_SKEW_S,
    UNUSED_S,
    CachedState,
    LiveRuns,
    StatefulStep,
    WorkerCache,
    cached_runs,
    forget_ended_runs,
    remove_ended_caches,
)
from watersmeet.runtime.watermark import Watermark

NOW_S = 1_000_000.0
OPERATOR = wm.run("SELECT a.ts FROM a [RANGE 1 SECOND]", {"a": wm.stream(pa.table({"ts": [0]}), time="ts")}).operator


@pytest.fixture(autouse=True)
def _local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(state_store, "_decoded_states", {})


def mark_used(local: Path, run: str, at_s: float) -> None:
    WorkerCache.open(run).put("entry", b"state")
    os.utime(local / f"watersmeet-{run}", (at_s, at_s))


def cache_decoded(run: str, step: str = "buckets", label: int = 0) -> None:
    state_store._decoded_states[StatefulStep(run, step), label] = CachedState(
        "", 0, 0, BucketState(OPERATOR, OPERATOR.empty(), Watermark.start({})), (), {}
    )


def test_a_task_removes_runs_that_were_not_active_when_its_query_was_built(tmp_path: Path) -> None:
    built_s = NOW_S - 100
    for run in ("active", "ended", "own"):
        mark_used(tmp_path, run, built_s - CLOCK_SKEW_S - 1)
    mark_used(tmp_path, "started later", built_s + 1)
    remove_ended_caches(tmp_path, LiveRuns(frozenset({"active"}), built_s), "own", NOW_S)
    assert sorted(cached_runs(tmp_path)) == ["active", "own", "started later"]


def test_the_cache_of_an_unused_run_is_removed_after_a_time(tmp_path: Path) -> None:
    mark_used(tmp_path, "silent", NOW_S - UNUSED_S - 1)
    mark_used(tmp_path, "slow", NOW_S - UNUSED_S + 1)
    remove_ended_caches(tmp_path, LiveRuns(frozenset({"silent", "slow"}), NOW_S), "own", NOW_S)
    assert cached_runs(tmp_path) == ["slow"]


def test_a_worker_drops_the_state_of_runs_without_a_directory() -> None:
    WorkerCache.open("active")
    for run in ("active", "ended"):
        cache_decoded(run)
        cache_decoded(run, "groups", 7)
    forget_ended_runs(current="active")
    assert {step.run for step, _ in state_store._decoded_states} == {"active"}
    assert len(state_store._decoded_states) == 2


def test_without_a_local_directory_a_worker_caches_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    for run in ("own", "other"):
        cache_decoded(run)
    forget_ended_runs(current="own")
    assert {step.run for step, _ in state_store._decoded_states} == {"own"}


def test_an_entry_whose_directory_was_removed_meanwhile_is_not_cached(tmp_path: Path) -> None:
    cache = WorkerCache.open("ended")
    (tmp_path / "watersmeet-ended").rmdir()
    cache.put("entry", b"state")
    assert cache.get("entry") is None
    assert cached_runs(tmp_path) == []
