"""Where a batch of ours spends its time on Spark."""

from __future__ import annotations

import os

from watersmeet_lab.bench.spark.runs import SparkRunResult

#: Phases of a batch as the metrics name them. Reading files and packing them is one task, so their times are one.
TASK_PHASES = {
    "scan and pack": "pack_us",
    "take in": "take_us",
    "state read": "state_read_us",
    "kernel": "join_us",
    "state write": "state_write_us",
}
#: Parts of a trigger around its work, as Spark names them.
TRIGGER_PHASES = {
    "planning": ("latestOffset", "getBatch", "queryPlanning"),
    "logs and commit": ("walCommit", "commitOffsets", "commitBatch"),
}


def mean_phase_seconds(ran: SparkRunResult) -> dict[str, float]:
    """Seconds of a batch by phase, on average. Phases of a task run on several cores; what is left of the trigger is
    shuffle and output.
    """
    count = max(1, len(ran.batches))
    cores = os.cpu_count() or 1
    spent = {
        phase: sum(getattr(each, name) for each in ran.batches) / count / 1e6 / cores
        for phase, name in TASK_PHASES.items()
    }
    for part, names in TRIGGER_PHASES.items():
        spent[part] = sum(each.get(name, 0) for each in ran.durations_ms for name in names) / count / 1000
    whole = sum(each.trigger_ms for each in ran.batches) / count / 1000
    return {**spent, "shuffle, output and the rest": whole - sum(spent.values()), "whole trigger": whole}


def phase_seconds_by_batch(ran: SparkRunResult) -> list[dict[str, float]]:
    """Seconds of every batch by phase of its tasks, summed over cores, beside the whole trigger."""
    return [
        {
            **{phase: getattr(each, name) / 1e6 for phase, name in TASK_PHASES.items()},
            "whole trigger": each.trigger_ms / 1000,
        }
        for each in ran.batches
    ]
