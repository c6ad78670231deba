"""A local Spark session with the settings the engine wants, and the check of a session that the caller brings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from watersmeet.errors import InputError
from watersmeet.runtime.java import check_java

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

_FAST_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

#: What `session()` sets. A caller's own session keeps its settings; what must hold there is checked by `check_session`.
SETTINGS = {
    "spark.master": "local[*,4]",  # the 4: a task whose Python worker died is tried again
    "spark.app.name": "watersmeet",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    # Spark knows a vector's length and nulls; Arrow would check every index and every flag again
    "spark.driver.extraJavaOptions": _FAST_ARROW,
    "spark.executor.extraJavaOptions": _FAST_ARROW,
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "watersmeet.runtime.spark.daemon",
    # workers allocate the same large arrays with every batch: memory that is given back has to be asked for, page by page, again
    "spark.executorEnv.MALLOC_MMAP_MAX_": "0",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(1 << 29),
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}

#: What `session()` sets besides where all of Spark is this machine.
LOCAL_SETTINGS = {
    # the usual one starts ten processes (chmod, readlink) for every file of a checkpoint in a local directory
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # shuffled rows are on no wire, and are not lost while the query lives: no task makes them a second time for one that has read them
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "false",
}


def session(**settings: Any) -> SparkSession:
    """A local session; keywords set more (`spark_sql_shuffle_partitions=4`, or a dict's `**{"spark.ui.enabled": "true"}`).

    An underscore in a keyword stands for a point. A session that is active already is returned as it is.
    """
    builder = SparkSession.builder
    for name, value in _chosen(settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def shuffle_partitions() -> int:
    """Return the shuffle partitions of the active session, or those that `session()` would set."""
    active = SparkSession.getActiveSession()
    return (os.cpu_count() or 1) if active is None else int(active.conf.get(PARTITIONS) or 200)


def start_writing_to(log: IO[bytes], settings: Mapping[str, Any]) -> bool:
    """Starts a local session whose Java process and workers say what they have to say to a file, not to this process's terminal.

    Mistakes do not go that way: they come as exceptions. A session that is active already stays as it is, and the answer is no.
    """
    if SparkSession.getActiveSession() is not None or SparkContext._active_spark_context is not None:
        return False
    conf = SparkConf().setAll(list(_chosen(settings).items()))
    gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call] # Spark declares no types here
    SparkContext(conf=conf, gateway=gateway)
    session(**settings)
    return True


def _chosen(settings: Mapping[str, Any]) -> dict[str, str]:
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have what this process has
    asked = {name if "." in name else name.replace("_", "."): value for name, value in settings.items()}
    chosen = SETTINGS | {PARTITIONS: os.cpu_count() or 1} | asked
    if str(chosen["spark.master"]).startswith("local") and "cluster" not in str(chosen["spark.master"]):
        chosen = LOCAL_SETTINGS | chosen
    return {name: str(value) for name, value in chosen.items()}


def check_session(spark: SparkSession, *, streaming: bool) -> None:
    """Refuses a session in which a streaming query could not keep its state, and names the setting to change."""
    if streaming and spark.conf.get(_PROVIDER, "") != ROCKSDB:
        raise InputError(
            f"a streaming query keeps its state in RocksDB, and this session sets {_PROVIDER} to {spark.conf.get(_PROVIDER, 'nothing')}",
            hint=f'spark.conf.set("{_PROVIDER}", "{ROCKSDB}"), or take the session of wm.session()',
        )
