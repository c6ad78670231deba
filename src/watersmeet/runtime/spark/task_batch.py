"""The micro-batch that a task works for: its run and its batch id, which Spark tells the task."""

from __future__ import annotations

from pyspark import TaskContext

from watersmeet.runtime.buckets.plan_log import NO_BATCH

#: Spark runs all jobs of a streaming query in a job group that is named after the run id.
_RUN_ID = "spark.jobGroup.id"


def task_run_id() -> str:
    """Return Spark's id of the streaming run that this task works for.

    It is empty on the driver, which only asks an operator for its columns.
    """
    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty(_RUN_ID) or ""


def task_batch_id() -> int:
    """Return the id of the task's micro-batch, or `NO_BATCH` on the driver."""
    task = TaskContext.get()
    return NO_BATCH if task is None else int(task.getLocalProperty("streaming.sql.batchId") or NO_BATCH)
