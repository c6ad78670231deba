"""A local Spark session with the settings the engine wants, and the check of a session that the caller brings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # publishes no types
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import InputError, abbreviate
from watersmeet.runtime.java import check_java
from watersmeet.runtime.spark.faults import SparkError

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

#: Enough of Java's output to find its first complaint.
_LOG_CHARACTERS = 100_000
_NO_COMPLAINT = re.compile(r"WARNING|\d\d/\d\d/\d\d .*(WARN|INFO)|Using Spark's|Setting default log|To adjust logging|:: |at |\.\.\. ")

_THROWN = re.compile(r'Exception in thread "main" (?:[\w.$]+: )?')
_ENDED_EARLY = 1

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
    with _report_failed_start():
        started = builder.getOrCreate()
        _ = started.conf  # Spark looks at its SQL settings only when they are first asked for
    return started


def start_writing_to(log: IO[bytes], settings: Mapping[str, Any]) -> bool:
    """Starts a local session whose Java process and workers say what they have to say to a file, not to this process's terminal.

    Mistakes do not go that way: they come as exceptions. A session that is active already stays as it is, and the answer is no.
    """
    if SparkSession.getActiveSession() is not None or SparkContext._active_spark_context is not None:
        return False
    conf = SparkConf().setAll(list(_chosen(settings).items()))
    with _report_failed_start(Path(log.name)):
        gateway = java_gateway.launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call] # Spark declares no types
        SparkContext(conf=conf, gateway=gateway)
    session(**settings)
    return True


@contextmanager
def _report_failed_start(log: Path | None = None) -> Iterator[None]:
    """Turn a Java process that ends at once, and settings that Spark refuses, into one sentence. `log` has what Java said."""
    popen = java_gateway.Popen  # type: ignore[attr-defined] # imported there, not declared
    java_gateway.Popen = _GatewayProcess  # type: ignore[attr-defined, assignment]
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        said = (_first_complaint(log) if log is not None else None) or _reason_of(error)
        hint = "check the Spark settings and the memory of this machine" + ("" if log is None else f"; the output of Java is in {log}")
        raise SparkError(f"Spark did not start: {said}", hint=hint) from error
    finally:
        java_gateway.Popen = popen  # type: ignore[attr-defined]


class _GatewayProcess(Popen[bytes]):
    """Java process of the gateway. PySpark waits while `poll` is false, so it would wait forever for one that ended with code 0."""

    def poll(self) -> int | None:
        code = super().poll()
        return _ENDED_EARLY if code == 0 else code


def _first_complaint(log: Path) -> str | None:
    """Return the first line of Java's output that is neither a warning nor part of a stack trace."""
    with log.open(encoding="utf-8", errors="replace") as opened:
        lines = [line.strip() for line in opened.read(_LOG_CHARACTERS).splitlines()]
    return next((abbreviate(_THROWN.sub("", line), 300) for line in lines if line and not _NO_COMPLAINT.match(line)), None)


def _reason_of(error: Exception) -> str:
    """Return the message of the Java exception behind an error, or the error's first line."""
    java = getattr(error, "java_exception", None)
    words = str(java if java is not None else error).strip().splitlines()
    return abbreviate(words[0], 300) if words else type(error).__name__


def _chosen(settings: Mapping[str, Any]) -> dict[str, str]:
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have what this process has
    asked = {name if "." in name else name.replace("_", "."): value for name, value in settings.items()}
    chosen = SETTINGS | {"spark.sql.shuffle.partitions": os.cpu_count() or 1} | asked
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
