"""Python steps of a plan: the name that Spark shows for each, and the Python that runs it.

**Names.** Spark shows the name of a function in the plan of a query: `MapInArrow watersmeet: pack orders(…)`.

**Python.** Spark's workers run `PYSPARK_PYTHON`, or else the first `python3` of the search path. In a virtual
environment that is not activated, this is the system's Python, which lacks this package. So if the caller
of a local session chose no Python for the workers, our steps run in the driver's own Python. Other steps keep theirs.

**Check.** Before the first query of a session, a tiny job checks that the workers' Python can import this package, in
this version. Without it, the first batch would fail with a stack trace of Spark. It runs once per application. The
query then uses the workers that it starts.

**Batch.** Spark tells a task its micro-batch: the run and the batch id.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from watersmeet.errors import InputError, InternalError
from watersmeet.runtime.buckets.plan_log import NO_BATCH
from watersmeet.runtime.spark.client import Py4JJavaError, application_id, count_cores, read_context, read_master
from watersmeet.runtime.spark.deferred_processor import GroupProcessor, defer_processor
from watersmeet.runtime.spark.session import is_local
from watersmeet.runtime.spark.ui_names import describe_jobs, ui_name
from watersmeet.runtime.spark.versions import refuse_missing_stateful_step
from watersmeet.version import VERSION

if TYPE_CHECKING:
    from pyspark import SparkContext

MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: Maximum number of tasks of the job. One machine often has many cores but one Python.
MAX_TASKS = 16

_INSTALL = (
    'install it there (pip install "watersmeet[spark]"), or send an environment along: '
    "spark-submit --archives watersmeet.tar.gz#environment "
    "--conf spark.pyspark.python=./environment/bin/python; see docs/cluster.md"
)
_MISSING = re.compile(r"No module named '([\w.]+)'")
_WORKER_EXECUTABLE = re.compile(r"Error from python worker:\s*(\S+?):\s")
_VERSION_MISMATCH = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.*?\.)(?:\s|$)", re.DOTALL)
#: Spark runs all jobs of a streaming query in a job group that is named after the run id.
_RUN_ID = "spark.jobGroup.id"


def map_in_arrow(frame: DataFrame, name: str, function: MapBatches, columns: StructType | str) -> DataFrame:
    """Return the record batches of a frame, mapped by a function that Spark shows under this name."""
    with use_driver_python(frame.sparkSession):
        return frame.mapInArrow(_name_function(function, name), columns)


def transform_with_state(frame: DataFrame, key: str, processor: GroupProcessor, columns: StructType) -> DataFrame:
    """Return the rows that a processor emits for each group of a streaming frame."""
    spark = frame.sparkSession
    grouped = frame.groupBy(key)
    refuse_missing_stateful_step(grouped)
    with use_driver_python(spark):
        return grouped.transformWithStateInPandas(
            defer_processor(read_context(spark), processor), columns, "Append", "None"
        )


def _name_function(function: MapBatches, name: str) -> MapBatches:
    named = partial(function)
    named.__name__ = ui_name(name)  # type: ignore[attr-defined] # Spark reads the name from here
    return named


#: One thread at a time replaces the Python of a session.
_python_lock = threading.RLock()


@contextmanager
def use_driver_python(spark: SparkSession) -> Iterator[None]:
    """Let steps that are built in a session run in the driver's Python, if the caller chose none for the workers.

    The server of Spark Connect chooses the Python of its workers when it starts.
    """
    context = read_context(spark)
    if context is None:
        yield
        return
    with _python_lock:
        before = context.pythonExec
        if is_local(str(context.master)) and not _is_python_chosen(context) and not _is_own_python(before):
            context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def _is_python_chosen(context: SparkContext) -> bool:
    return "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")


def _is_own_python(executable: str) -> bool:
    """Return whether the search path finds this command in the environment of the driver's Python."""
    found = shutil.which(executable)
    return found is not None and Path(found).parent == Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """Python of one worker: its interpreter, its version of this package, and Spark's local directories.

    `version` is None if the package cannot be imported; `problem` is then the reason.
    """

    executable: str
    version: str | None
    problem: str
    local_directories: tuple[str, ...]


_checked_workers: dict[str, tuple[WorkerPython, ...]] = {}


def check_workers(spark: SparkSession) -> tuple[WorkerPython, ...]:
    """Return the Python of some workers; refuse workers that cannot run this package. Checks once per application."""
    application = application_id(spark)
    if application not in _checked_workers:
        workers = _describe_workers(spark)
        for worker in workers:
            refuse_worker(worker, read_master(spark))
        _checked_workers.clear()  # forget applications that ended
        _checked_workers[application] = workers
    return _checked_workers[application]


def local_directories(workers: tuple[WorkerPython, ...]) -> tuple[Path, ...]:
    """Return the workers' local directories that are on this machine."""
    named = dict.fromkeys(Path(each) for worker in workers for each in worker.local_directories[:1])
    return tuple(each for each in named if each.is_dir())


def refuse_worker(worker: WorkerPython, master: str) -> None:
    """Raise an error for a worker that lacks the package, something it needs, or this version of it."""
    if worker.version is None:
        raise InputError(
            f"the Python of Spark's workers, {worker.executable}, cannot import watersmeet: {worker.problem}",
            hint=_choose_remedy(master),
        )
    if worker.version != VERSION:
        raise InputError(
            f"the Python of Spark's workers, {worker.executable}, has watersmeet {worker.version}, "
            f"and this process {VERSION}",
            hint="install the same version in both",
        )


def _choose_remedy(master: str) -> str:
    """Return what to do about a worker without the package. Workers of a local session can use the driver's Python."""
    if is_local(master):
        return f'before Spark starts: os.environ["PYSPARK_PYTHON"] = "{sys.executable}", the Python of this process'
    return _INSTALL


def explain_failure(text: str, python: str, master: str) -> InputError | None:
    """Return the error for a job that failed because of the workers' Python; None for any other failure.

    `text` is the message of Spark's error. `python` is the interpreter that the driver requested; it is named if the
    message does not contain the interpreter that ran.

    >>> text = "Error from python worker:\\n  /usr/bin/python3: No module named 'watersmeet'"
    >>> print(explain_failure(text, "python3", "spark://host:7077").message)
    the Python of Spark's workers, /usr/bin/python3, cannot import watersmeet: No module named 'watersmeet'
    """
    ran = _WORKER_EXECUTABLE.search(text)
    executable = ran[1] if ran else python
    missing, other = _MISSING.search(text), _VERSION_MISMATCH.search(text)
    if missing is not None:
        return InputError(
            f"the Python of Spark's workers, {executable}, cannot import watersmeet: {missing[0]}",
            hint=_choose_remedy(master),
        )
    if other is not None:
        return InputError(
            f"the Python of Spark's workers, {executable}, is not the driver's, {sys.executable}: "
            f"{' '.join(other[1].split())}",
            hint="set PYSPARK_PYTHON, or spark.pyspark.python, to the same version of Python, with watersmeet",
        )
    if "Cannot run program" in text:
        return InputError(
            f"the Python of Spark's workers, {executable}, cannot be started", hint="set PYSPARK_PYTHON to one that can"
        )
    return None


def _describe_workers(spark: SparkSession) -> tuple[WorkerPython, ...]:
    tasks, context = min(count_cores(spark) or 1, MAX_TASKS), read_context(spark)
    try:
        with use_driver_python(spark), describe_jobs(spark, "check the Python of the workers"):
            described: Iterable[tuple[Any, ...]] = (
                _query_workers(spark, tasks)
                if context is None
                else context.parallelize(range(tasks), tasks).mapPartitions(_describe_by_value()).collect()
            )
    except (PySparkException, Py4JJavaError) as error:
        python = "python3" if context is None else str(context.pythonExec)
        explained = explain_failure(str(error), python, read_master(spark))
        if explained is None:
            raise
        raise explained from error
    return tuple(
        dict.fromkeys(
            WorkerPython(executable, version, problem, tuple(local))
            for executable, version, problem, local in described
        )
    )


def _query_workers(spark: SparkSession, tasks: int) -> list[tuple[Any, ...]]:
    """Describe the workers of a session that has no context, and so no jobs except queries."""
    describe = _describe_by_value()
    kind = "struct<executable string, version string, problem string, local array<string>>"
    # A function without Arrow also runs in a Python that has no Arrow.
    described = F.udf(lambda _: next(describe(())), kind, useArrow=False)
    rows = spark.range(0, tasks, 1, tasks).select(described("id").alias("described")).collect()
    return [tuple(row.described) for row in rows]


def _describe_by_value() -> Callable[[Iterable[Any]], Iterator[tuple[Any, ...]]]:
    """Return the function that runs in workers, pickled by value.

    Pickled by name, it would be looked up in this package, which the worker may lack.
    """
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # it has no types
    try:
        pickled = cloudpickle.dumps(_describe_python)  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    described: Callable[[Iterable[Any]], Iterator[tuple[Any, ...]]] = cloudpickle.loads(pickled)
    described.__module__ = "__main__"
    return described


def _describe_python(_: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Describe the worker's Python. The worker may lack this package, so all imports are inside."""
    import importlib
    import os
    import sys

    version, problem = None, ""
    try:
        importlib.import_module("watersmeet.runtime.spark.processor")  # imports everything that a task needs
        version = importlib.import_module("watersmeet").__version__
    except Exception as error:
        # Our own error about a module that is missing has a message in one sentence.
        sentence = getattr(error, "message", str(error) if isinstance(error, ImportError) else None)
        problem = sentence or f"{type(error).__name__}: {error}"
    yield sys.executable, version, problem, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")


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


def task_name() -> str:
    """Return a name that this task and its repetitions have, and no other task of any query."""
    task = TaskContext.get()
    if task is None:
        raise InternalError("a task is named while it runs")
    query = task.getLocalProperty("sql.streaming.queryId") or "finite"
    return f"{query}-{max(task_batch_id(), 0):019d}-{task.partitionId():05d}"
