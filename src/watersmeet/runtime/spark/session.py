"""Spark sessions: start a local one with the settings the engine needs, check one that the caller brings.

**Cleanup after streaming queries.** The next query removes the caches that workers made for ended queries. Spark tells
workers nothing about the end of a query, but the driver knows which runs are active. It removes the directories of all
other runs on its own machine; in local mode, all workers are there. A new query carries the list of active runs, so its
tasks remove the rest on machines that the driver cannot reach. Workers then drop the decoded state of runs without a
directory (`state_store`).

A permanent listener in Python would learn of each end at once. But each query posts its start from its own Java thread,
and Py4J opens one more connection and one more Python thread for each of them. So the listener of `batch_metrics` is
added after a query has started, and only for queries that are followed.
"""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import InputError, WatersmeetWarning, abbreviate
from watersmeet.planner.spark_forecast import DEFAULT_HEAP_BYTES, SparkMachine
from watersmeet.runtime.buckets.state_store import NO_LIVE_RUNS, LiveRuns, cached_runs, remove_run
from watersmeet.runtime.java import check_java
from watersmeet.runtime.spark.client import (
    Py4JError,
    application_id,
    count_cores,
    read_context,
    read_master,
    session_id,
)
from watersmeet.runtime.spark.local_files import choose_file_system
from watersmeet.runtime.spark.spark_errors import SparkError
from watersmeet.runtime.spark.versions import (
    active_context,
    check_versions,
    current_traits,
    idle_gateway,
    notice_ended_java,
    start_context,
)

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

#: Variable of the environment with the address that Spark's UI listens on.
_UI_ADDRESS = "SPARK_LOCAL_IP"

#: More shuffle partitions per core than this waste time.
MAX_PARTITIONS_PER_CORE = 4

#: Characters of Java's output that are searched for its first error.
_LOG_CHARACTERS = 100_000
_NO_ERROR = re.compile(
    r"WARNING|\d\d/\d\d/\d\d .*(WARN|INFO)|Using Spark's|Setting default log|To adjust logging|:: |at |\.\.\. "
)

_THROWN = re.compile(r'Exception in thread "main" (?:[\w.$]+: )?')

#: Turns off Arrow's bounds and null checks in the Java processes of the driver and the executors. Only on request: a
#: wrong index then reads foreign memory instead of raising an exception.
_UNSAFE_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

#: Settings of every session that `session()` makes. A caller's own session keeps its settings; `check_session` checks
#: the required ones.
SETTINGS = {
    "spark.master": "local[*,4]",  # the 4: Spark retries a task whose Python worker died
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
    # PySpark puts larger functions into broadcast variables, whose files stay in the driver's temporary directory until
    # the session ends. Our functions carry tables.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    # Workers allocate the same large arrays in every batch. Memory that malloc returns to the system would have to be
    # mapped again, page by page.
    "spark.executorEnv.MALLOC_MMAP_MAX_": "0",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(1 << 29),
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}

#: Settings of a session where all of Spark runs on this machine. A cluster must not have them: executors reach the
#: driver through a network, and checksums protect what crosses it.
LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The default class starts a process (readlink) for every file of a checkpoint in a local directory.
    "spark.sql.streaming.checkpointFileManagerClass": current_traits().file_manager,
    # Shuffled rows stay on this machine and are not lost while the query runs, so no task recomputes rows that another
    # task has already read.
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "false",
}


def session(*, ui: bool = False, unsafe_arrow: bool = False, **settings: Any) -> SparkSession:
    """Start a session, local by default.

    Keywords are more settings (`spark_sql_shuffle_partitions=4`, or `**{"spark.log.level": "WARN"}`). Write an
    underscore for a dot. `ui` starts Spark's UI and prints its address. `unsafe_arrow` turns off Arrow's bounds and
    null checks in Spark's Java processes. An active session is returned unchanged.
    """
    builder, chosen = SparkSession.builder, choose_settings(settings, unsafe_arrow=unsafe_arrow)
    if ui:
        chosen["spark.ui.enabled"] = "true"
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _report_failed_start(), _bind_ui_to_loopback(is_local(chosen["spark.master"]), ui=ui):
        started = builder.getOrCreate()
        _ = started.conf  # Spark checks its SQL settings only on first access
    if ui:
        _print_ui_address(started)
    return started


@contextmanager
def _bind_ui_to_loopback(local: bool, *, ui: bool) -> Iterator[None]:
    """Start a local Java process whose UI listens on the loopback interface only.

    Spark has no setting for that address. It reads a variable of the environment, and else listens on all interfaces.
    """
    gateway = idle_gateway()
    if ui and local and gateway is not None and gateway.jvm.System.getenv(_UI_ADDRESS) is None:
        raise InputError(
            "the Java process of Spark already runs, and would open its UI to the network",
            hint="call wm.session(ui=True) first in a new process",
        )
    before = os.environ.get(_UI_ADDRESS)
    if local and before is None:
        os.environ[_UI_ADDRESS] = "127.0.0.1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_UI_ADDRESS, None)


def _print_ui_address(spark: SparkSession) -> None:
    address = spark.sparkContext.uiWebUrl
    if address is None:
        warnings.warn(
            "the active session was started without a UI: stop it, then call wm.session(ui=True)",
            WatersmeetWarning,
            stacklevel=4,
        )
    else:
        print(f"Spark's UI: {address}", file=sys.stderr)


def shuffle_partitions() -> int:
    """Return the shuffle partitions of the active session, or those that `session()` would set."""
    active = SparkSession.getActiveSession()
    return (os.cpu_count() or 1) if active is None else int(active.conf.get(PARTITIONS) or 200)


def describe_machine() -> SparkMachine:
    """Return the cores and the heap of the active session, or of the one that `session()` would start."""
    active = active_context()
    if active is None:
        return SparkMachine(os.cpu_count() or 1, DEFAULT_HEAP_BYTES)
    is_on_driver = is_local(str(active.master))
    heap = active.getConf().get("spark.driver.memory" if is_on_driver else "spark.executor.memory", "1g") or "1g"
    return SparkMachine(max(1, active.defaultParallelism), _parse_memory(heap))


def _parse_memory(text: str) -> float:
    """Parse a size as Spark writes it: 4g, 512m; without a unit in mebibytes."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(found[1]) * 1024.0 ** " kmgt".index(found[2] or "m") if found else DEFAULT_HEAP_BYTES


def start_writing_to(log: IO[bytes], settings: Mapping[str, Any]) -> bool:
    """Start a session whose Java process and workers write their output to a file, not to this process's terminal.

    Errors still come as exceptions. Returns False, and changes nothing, if a session is already active.
    """
    if SparkSession.getActiveSession() is not None or active_context() is not None:
        return False
    from pyspark import SparkConf

    conf = SparkConf().setAll(list(choose_settings(settings).items()))
    with _report_failed_start(Path(log.name)):
        start_context(conf, log)
    session(**settings)
    return True


@contextmanager
def _report_failed_start(log: Path | None = None) -> Iterator[None]:
    """Raise one readable error if the Java process ends at once or Spark refuses a setting.

    `log` contains the output of Java.
    """
    try:
        with notice_ended_java():
            yield
    except (PySparkException, Py4JError, OSError) as error:
        reason = (_find_first_error(log) if log is not None else None) or _failure_reason(error)
        hint = "check the Spark settings and the memory of this machine" + (
            "" if log is None else f"; the output of Java is in {log}"
        )
        raise SparkError(f"Spark did not start: {reason}", hint=hint) from error


def _find_first_error(log: Path) -> str | None:
    """Return the first line of Java's output that is neither a warning nor part of a stack trace."""
    with log.open(encoding="utf-8", errors="replace") as opened:
        lines = [line.strip() for line in opened.read(_LOG_CHARACTERS).splitlines()]
    return next((abbreviate(_THROWN.sub("", line), 300) for line in lines if line and not _NO_ERROR.match(line)), None)


def _failure_reason(error: Exception) -> str:
    """Return the message of the Java exception behind an error, or the error's first line."""
    java = getattr(error, "java_exception", None)
    words = str(java if java is not None else error).strip().splitlines()
    return abbreviate(words[0], 300) if words else type(error).__name__


def choose_settings(settings: Mapping[str, Any], *, unsafe_arrow: bool = False) -> dict[str, str]:
    """Return all settings of a new session: ours, overridden by the caller's."""
    check_versions()
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers use the Python of this process
    requested = {name if "." in name else name.replace("_", "."): value for name, value in settings.items()}
    chosen = SETTINGS | {PARTITIONS: os.cpu_count() or 1} | requested
    if is_local(str(chosen["spark.master"])):
        chosen = LOCAL_SETTINGS | chosen | choose_file_system(requested)
    if unsafe_arrow:
        chosen |= {name: f"{chosen.get(name, '')} {_UNSAFE_ARROW}".strip() for name in _JAVA_OPTIONS}
    return {name: str(value) for name, value in chosen.items()}


def check_session(spark: SparkSession, *, streaming: bool) -> None:
    """Refuse a session whose state store cannot hold the state of a streaming query.

    The error names every setting to change, because the first run of a checkpoint fixes them all.
    """
    check_versions()
    provider = spark.conf.get(_PROVIDER) or ""
    if not streaming or provider == ROCKSDB:
        return
    changes = {_PROVIDER: ROCKSDB}
    if _has_too_many_partitions(spark):
        changes[PARTITIONS] = str(count_cores(spark))
    calls = "; ".join(f'spark.conf.set("{name}", "{value}")' for name, value in changes.items())
    raise InputError(
        f"a streaming query keeps its state in RocksDB, but {_PROVIDER} of this session is "
        f"{provider.rpartition('.')[2]}",
        hint=f"before wm.on_spark: {calls}; or use the session of wm.session()",
    )


def choose_partitions(spark: SparkSession, *, streaming: bool) -> int:
    """Return the number of shuffle partitions of a query: the session's setting, unless it far exceeds the cores.

    A finite query in a local session then uses one partition per core. The state partitions of a streaming query always
    follow the setting, so a warning names the value to use, once per session.
    """
    setting, cores = int(spark.conf.get(PARTITIONS) or 200), count_cores(spark)
    if cores is None or not _has_too_many_partitions(spark):
        return setting
    if not streaming and is_local(read_master(spark)):
        return cores
    costs = f"every batch opens {setting} state stores" if streaming else f"the query runs as {setting} tasks"
    if is_first_time(spark, f"warn that {costs}"):
        warnings.warn(
            f"{PARTITIONS} is {setting}, but Spark has {cores} {'core' if cores == 1 else 'cores'}, and {costs}: "
            f"set it to {cores} before the first run",
            WatersmeetWarning,
            stacklevel=_count_own_frames() + 1,
        )
    return setting


def _count_own_frames() -> int:
    """Return how many calls of this package lie between the caller and this function's caller, that one included."""
    package, own = str(Path(__file__).parents[2]), 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame, own = frame.f_back, own + 1
    return own


def _has_too_many_partitions(spark: SparkSession) -> bool:
    """Return whether the shuffle partitions far exceed the cores, as far as this process knows them."""
    # Dynamic allocation adds cores when they are needed.
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return False
    cores = count_cores(spark)
    return cores is not None and int(spark.conf.get(PARTITIONS) or 200) > MAX_PARTITIONS_PER_CORE * cores


def is_local(master: str) -> bool:
    """Return whether all of Spark runs on this machine, in one Java process.

    >>> is_local("local[2,4]"), is_local("local-cluster[2,1,1024]"), is_local("spark://host:7077")
    (True, False, False)
    """
    return master.startswith("local") and "cluster" not in master


#: Actions that were already done, by application and session.
_done: set[tuple[str, str, str]] = set()


def is_first_time(spark: SparkSession, what: str) -> bool:
    """Return whether this is the first call for `what` in the session."""
    application = application_id(spark)
    key = application, session_id(spark), what
    _done.difference_update({done for done in _done if done[0] != application})
    if key in _done:
        return False
    _done.add(key)
    return True


#: Sessions in which queries were built, by application and session.
_sessions: dict[tuple[str, str], SparkSession] = {}


def remove_ended_runs(spark: SparkSession, directories: tuple[Path, ...]) -> LiveRuns:
    """Remove the caches of ended runs in these directories; return the active runs of the session's application.

    A server of Spark Connect has other clients, whose runs are unknown here. So nothing is removed there.
    """
    if read_context(spark) is None:
        return NO_LIVE_RUNS
    # List the caches before the active runs: a run is active before its tasks cache anything.
    cached = {run for local in directories for run in cached_runs(local)}
    live = LiveRuns(frozenset(_list_active_runs(spark)), time.time())
    for local in directories:
        for run in cached - live.runs:
            remove_run(local, run)
    return live


def _list_active_runs(spark: SparkSession) -> set[str]:
    """List the active runs of all sessions in which queries were built."""
    application = application_id(spark)
    for key in [key for key in _sessions if key[0] != application]:
        del _sessions[key]
    _sessions[application, session_id(spark)] = spark
    return {str(query.runId) for session in _sessions.values() for query in session.streams.active}
