"""Cleanup after streaming queries that ended: what their workers cached is removed when the next query is built.

Spark tells workers nothing about the end of a query. The driver knows which runs are active. It removes the directories
of all others on its own machine, which in local mode is where all workers are. A new query carries the active runs, so
that its tasks remove the rest on machines that the driver cannot reach. Workers then forget what they decoded for runs
without a directory (`store`).

A listener in Python would know of each end at once. But each query posts its start from a Java thread of its own, and
Py4J opens one more connection and one more Python thread for each of those.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from watersmeet.runtime.spark.session import application_of
from watersmeet.runtime.spark.worker_cache import LiveRuns, cached_runs, remove_run

_RUN_ID = "spark.jobGroup.id"  # Spark runs all jobs of a streaming query in a group named by its run id

#: Sessions in which queries were built, by application and session.
_sessions: dict[tuple[str, str], SparkSession] = {}


def run_of_task() -> str:
    """Return Spark's id of the streaming run that this task works for; on the driver, which only asks for an operator's
    columns, none.
    """
    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty(_RUN_ID) or ""


def remove_ended_runs(spark: SparkSession, directories: tuple[Path, ...]) -> LiveRuns:
    """Remove what ended runs have cached in these directories; return the active runs of the session's application."""
    cached = {
        run for local in directories for run in cached_runs(local)
    }  # first: a run is active before its tasks cache anything
    live = LiveRuns(frozenset(_active_runs(spark)), time.time())
    for local in directories:
        for run in cached - live.runs:
            remove_run(local, run)
    return live


def _active_runs(spark: SparkSession) -> set[str]:
    """List the active runs of all sessions in which queries were built."""
    application = application_of(spark)
    for key in [key for key in _sessions if key[0] != application]:
        del _sessions[key]
    _sessions[application, spark._jsparkSession.sessionUUID()] = spark
    return {str(query.runId) for session in _sessions.values() for query in session.streams.active}
