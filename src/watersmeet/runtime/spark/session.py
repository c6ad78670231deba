"""A local Spark session with the settings the engine wants, and the check of a session that the caller brings."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # publishes no types
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import InputError, WatersmeetWarning, abbreviate
from watersmeet.runtime.java import check_java
from watersmeet.runtime.spark.spark_errors import SparkError
from watersmeet.runtime.spark.worker_cache import LiveRuns, cached_runs, remove_run

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_THRESHOLD = "spark.broadcast.UDFCompressionThreshold"

#: More shuffle partitions than this are far above the number of cores.
MOST_PARTITIONS_PER_CORE = 4

#: Enough of Java's output to find its first complaint.
_LOG_CHARACTERS = 100_000
_NO_COMPLAINT = re.compile(
    r"WARNING|\d\d/\d\d/\d\d .*(WARN|INFO)|Using Spark's|Setting default log|To adjust logging|:: |at |\.\.\. "
)

_THROWN = re.compile(r'Exception in thread "main" (?:[\w.$]+: )?')
_ENDED_EARLY = 1

#: Arrow's bounds and null checks off, in the driver's and the executors' Java process. Only where the caller asks for
#: it: a wrong index then reads foreign memory instead of raising an exception.
_UNSAFE_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

#: Settings of every session that `session()` makes. A caller's own session keeps its settings; `check_session` checks
#: the required ones.
SETTINGS = {
    "spark.master": "local[*,4]",  # the 4: a task whose Python worker died is tried again
    "spark.app.name": "watersmeet",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "watersmeet.runtime.spark.daemon",
    # PySpark puts larger functions into broadcast variables: their files stay in the driver's temporary directory until
    # the session ends, and a stateful operator cannot load them on the driver (BROADCAST_VARIABLE_NOT_LOADED). Ours
    # carry tables.
    _THRESHOLD: "1g",
    # workers allocate the same large arrays with every batch: memory that is given back has to be asked for, page by
    # page, again
    "spark.executorEnv.MALLOC_MMAP_MAX_": "0",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(1 << 29),
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}

#: Settings of a session where all of Spark runs on this machine. A cluster must not have them: executors reach the
#: driver through a network, and checksums protect what crosses it.
LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # the usual one starts ten processes (chmod, readlink) for every file of a checkpoint in a local directory
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # shuffled rows are on no wire, and are not lost while the query lives: no task makes them a second time for one
    # that has read them
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "false",
}


def session(*, unsafe_arrow: bool = False, **settings: Any) -> SparkSession:
    """Start a session, local by default.

    Keywords are more settings (`spark_sql_shuffle_partitions=4`, or `**{"spark.ui.enabled": "true"}`). An underscore in
    a keyword stands for a point. `unsafe_arrow` turns off Arrow's bounds and null checks in Spark's Java processes. A
    session that is already active is returned unchanged.
    """
    builder = SparkSession.builder
    for name, value in choose_settings(settings, unsafe_arrow=unsafe_arrow).items():
        builder = builder.config(name, value)
    with _report_failed_start():
        started = builder.getOrCreate()
        _ = started.conf  # Spark looks at its SQL settings only when they are first asked for
    return started


def shuffle_partitions() -> int:
    """Return the shuffle partitions of the active session, or those that `session()` would set."""
    active = SparkSession.getActiveSession()
    return (os.cpu_count() or 1) if active is None else int(active.conf.get(PARTITIONS) or 200)


def start_writing_to(log: IO[bytes], settings: Mapping[str, Any]) -> bool:
    """Start a session whose Java process and workers write their output to a file, not to this process's terminal.

    Errors still come as exceptions. Returns False, and changes nothing, if a session is already active.
    """
    if SparkSession.getActiveSession() is not None or SparkContext._active_spark_context is not None:
        return False
    conf = SparkConf().setAll(list(choose_settings(settings).items()))
    with _report_failed_start(Path(log.name)):
        gateway = java_gateway.launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call] # Spark declares no types
        SparkContext(conf=conf, gateway=gateway)
    session(**settings)
    return True


@contextmanager
def _report_failed_start(log: Path | None = None) -> Iterator[None]:
    """Turn a Java process that ends at once, and settings that Spark refuses, into one sentence. `log` has what Java
    said.
    """
    popen = java_gateway.Popen  # type: ignore[attr-defined] # imported there, not declared
    java_gateway.Popen = _GatewayProcess  # type: ignore[attr-defined, assignment]
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        said = (_find_first_complaint(log) if log is not None else None) or _failure_reason(error)
        hint = "check the Spark settings and the memory of this machine" + (
            "" if log is None else f"; the output of Java is in {log}"
        )
        raise SparkError(f"Spark did not start: {said}", hint=hint) from error
    finally:
        java_gateway.Popen = popen  # type: ignore[attr-defined]


class _GatewayProcess(Popen[bytes]):
    """Java process of the gateway. PySpark waits while `poll` is false, so it would wait forever for one that ended
    with code 0.
    """

    def poll(self) -> int | None:
        code = super().poll()
        return _ENDED_EARLY if code == 0 else code


def _find_first_complaint(log: Path) -> str | None:
    """Return the first line of Java's output that is neither a warning nor part of a stack trace."""
    with log.open(encoding="utf-8", errors="replace") as opened:
        lines = [line.strip() for line in opened.read(_LOG_CHARACTERS).splitlines()]
    return next(
        (abbreviate(_THROWN.sub("", line), 300) for line in lines if line and not _NO_COMPLAINT.match(line)), None
    )


def _failure_reason(error: Exception) -> str:
    """Return the message of the Java exception behind an error, or the error's first line."""
    java = getattr(error, "java_exception", None)
    words = str(java if java is not None else error).strip().splitlines()
    return abbreviate(words[0], 300) if words else type(error).__name__


def choose_settings(settings: Mapping[str, Any], *, unsafe_arrow: bool = False) -> dict[str, str]:
    """Return all settings of a new session: ours, and over them the caller's."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have what this process has
    asked = {name if "." in name else name.replace("_", "."): value for name, value in settings.items()}
    chosen = SETTINGS | {PARTITIONS: os.cpu_count() or 1} | asked
    if is_local(str(chosen["spark.master"])):
        chosen = LOCAL_SETTINGS | chosen
    if unsafe_arrow:
        chosen |= {name: f"{chosen.get(name, '')} {_UNSAFE_ARROW}".strip() for name in _JAVA_OPTIONS}
    return {name: str(value) for name, value in chosen.items()}


def check_session(spark: SparkSession, *, streaming: bool) -> None:
    """Refuses a session in which a streaming query could not keep its state, and names the setting to change."""
    if streaming and spark.conf.get(_PROVIDER, "") != ROCKSDB:
        raise InputError(
            f"a streaming query keeps its state in RocksDB, and this session sets {_PROVIDER} to {spark.conf.get(_PROVIDER, 'nothing')}",
            hint=f'spark.conf.set("{_PROVIDER}", "{ROCKSDB}"), or take the session of wm.session()',
        )


def choose_partitions(spark: SparkSession, *, streaming: bool) -> int:
    """Return the number of shuffle partitions of a query: the session's setting, unless it is far above the number of
    cores.

    A finite query in a local session then uses one partition per core. State partitions of a streaming query follow the
    setting alone, so there a warning names the value to use.
    """
    setting, cores = int(spark.conf.get(PARTITIONS) or 200), spark.sparkContext.defaultParallelism
    if (
        setting <= MOST_PARTITIONS_PER_CORE * cores
        or spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    ):
        return setting
    if not streaming and is_local(str(spark.sparkContext.master)):
        return cores
    costs = f"every batch opens {setting} state stores" if streaming else f"the query runs as {setting} tasks"
    warnings.warn(
        f"{PARTITIONS} is {setting}, but Spark has {cores} {'core' if cores == 1 else 'cores'}, and {costs}: "
        f"set it to {cores} before the first run",
        WatersmeetWarning,
        stacklevel=4,
    )
    return setting


def check_table_size(spark: SparkSession, table_bytes: int) -> None:
    """Refuse tables that travel with a streaming query and are too large for the session: Spark cannot load its
    stateful step then.
    """
    threshold = spark.sparkContext._jvm.PythonUtils.getBroadcastThreshold(spark.sparkContext._jsc)  # type: ignore[union-attr]
    if table_bytes >= threshold:
        raise InputError(
            f"the relations of this query have {table_bytes / 1e6:,.1f} MB, and this session sends at most {threshold / 1e6:,.1f} MB with "
            f"a streaming query",
            hint=f"start the session with {_THRESHOLD}=1g, or take the session of wm.session()",
        )


def is_local(master: str) -> bool:
    """Return whether all of Spark runs on this machine, in one Java process.

    >>> is_local("local[2,4]"), is_local("local-cluster[2,1,1024]"), is_local("spark://host:7077")
    (True, False, False)
    """
    return master.startswith("local") and "cluster" not in master


def application_id(spark: SparkSession) -> str:
    """Return the id of the session's application."""
    return str(spark.sparkContext.applicationId)


#: Things that were done once, by application and session.
_done: set[tuple[str, str, str]] = set()


def mark_done(spark: SparkSession, what: str) -> bool:
    """Return whether nobody has asked for this in the session before."""
    application = application_id(spark)
    key = application, spark._jsparkSession.sessionUUID(), what
    _done.difference_update({done for done in _done if done[0] != application})
    if key in _done:
        return False
    _done.add(key)
    return True


#: Sessions in which queries were built, by application and session.
_sessions: dict[tuple[str, str], SparkSession] = {}


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
    application = application_id(spark)
    for key in [key for key in _sessions if key[0] != application]:
        del _sessions[key]
    _sessions[application, spark._jsparkSession.sessionUUID()] = spark
    return {str(query.runId) for session in _sessions.values() for query in session.streams.active}
