"""Measured memory of child processes: a watch that fails is reported."""

from __future__ import annotations

import threading

import pytest

from watersmeet.runtime.background import BackgroundError
from watersmeet_lab.bench import resource_usage


def test_a_memory_watch_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = threading.Event()

    def refuse_access() -> int:
        sampled.set()
        raise PermissionError("/proc/7/statm")

    monkeypatch.setattr(resource_usage, "_SAMPLE_INTERVAL_S", 0.001)
    monkeypatch.setattr(resource_usage, "measure_child_memory_bytes", refuse_access)
    with (
        pytest.raises(BackgroundError, match=r"the memory watch failed: PermissionError: /proc/7/statm"),
        resource_usage.watch_peak_memory(),
    ):
        sampled.wait()
