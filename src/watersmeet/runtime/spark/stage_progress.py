"""Stages that Spark runs now, for people who wait for a query."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession


def watch_stages() -> Callable[[], str]:
    """Return a function that describes the running stages of the active session, with their finished tasks.

    Any thread may call it.
    """
    tracker = SparkSession.active().sparkContext.statusTracker()

    def describe() -> str:
        stages = [tracker.getStageInfo(number) for number in sorted(tracker.getActiveStageIds())]
        running = [
            f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks done" for each in stages if each
        ]
        return f"running on Spark, {' and '.join(running)}" if running else "running on Spark"

    return describe
