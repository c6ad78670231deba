"""Translation of Spark's errors to one sentence each.

Some mistakes of the caller are found only by a worker: a null time, or a file that cannot be read. The worker's
exception reaches the driver as text inside one of Spark's own exceptions. Common failures of Spark itself, such as a
worker that died, have a sentence of ours (`_KNOWN_FAILURES`). Of any other failure, the error shows Spark's innermost
message, without its stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException

from watersmeet.errors import InputError, PlanError, QueryError, WatersmeetError, abbreviate
from watersmeet.runtime.spark.client import Py4JError, Py4JJavaError, Py4JNetworkError

#: Errors of Spark itself, and the loss of its Java process.
SPARK_FAILURES = (PySparkException, Py4JError, ConnectionError)

_MAX_CHARACTERS = 400
_ERROR_TYPES: dict[str, type[WatersmeetError]] = {
    kind.__name__: kind for kind in (QueryError, InputError, PlanError, WatersmeetError)
}
_END = r"(?:\n\s*(?:at |JVM stacktrace|Driver stacktrace|===)|\s+SQLSTATE|\Z)"
_RAISED = re.compile(rf"watersmeet\.errors\.(\w+): (.*?){_END}", re.DOTALL)


class SparkError(InputError):
    """A query failed on Spark, not because of its text or its data."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A failure that is recognized by a pattern in Spark's message.

    `sentence` may name the groups of the pattern. `kind` is `InputError` for a mistake in the caller's data.
    """

    pattern: re.Pattern[str]
    sentence: str
    hint: str
    kind: type[WatersmeetError] = SparkError

    def explain(self, text: str) -> WatersmeetError | None:
        """Return our error for Spark's message, or None if the message is about another failure."""
        found = self.pattern.search(text)
        return None if found is None else self.kind(self.sentence.format(**found.groupdict()), hint=self.hint)


def _failure(pattern: str, sentence: str, hint: str, kind: type[WatersmeetError] = SparkError) -> KnownFailure:
    return KnownFailure(re.compile(pattern, re.DOTALL), sentence, hint, kind)


_NEW_CHECKPOINT = "use a new checkpoint directory and a new output directory"
_FILE = r"while reading file (?:file:(?://)?)?(?P<file>[^\n]+?)\.(?:\s|$)"

#: Failures of Spark that users meet, the most specific first.
_KNOWN_FAILURES = (
    _failure(
        rf"\[FAILED_READ_FILE\.FILE_NOT_EXIST\].*?{_FILE}",
        'input file "{file}" is missing',
        "restore the file and start the query again",
        InputError,
    ),
    _failure(
        rf"\[FAILED_READ_FILE\.PARQUET_COLUMN_DATA_TYPE_MISMATCH\].*?{_FILE}.*?column \[?(?P<column>[^\s\].]+)\]?\. "
        r"Expected Spark type (?P<expected>[^\n,]+), actual Parquet type (?P<actual>[^\s,]+?)\.(?:\s|$)",
        'column {column} of input file "{file}" is {actual}, expected {expected}',
        "write the file again with the declared type, or remove it, and start the query again",
        InputError,
    ),
    _failure(
        rf"\[FAILED_READ_FILE[.\w]*\].*?{_FILE}",
        'input file "{file}" cannot be read',
        "repair or remove the file and start the query again",
        InputError,
    ),
    _failure(
        r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:(?://)?)?(?P<path>[^\n]+?)\.(?:\s|$)",
        'there is no file or directory "{path}"',
        "check the path of the source",
        InputError,
    ),
    _failure(
        r"\[USER_RAISED_EXCEPTION\] (?P<problem>stream \"[^\n]*: a message cannot be read: [^\n]*?)"
        r"(?:\s+SQLSTATE|\n|\Z)",
        "{problem}",
        'with on_error = "skip" or "divert" the query continues without such messages',
        InputError,
    ),
    _failure(
        r"(?:^|\n)\s*[\w.]*(?<!OutOf)MemoryError\b",
        "a Python worker of Spark ran out of memory",
        "use smaller batches (files_per_batch=…) or shorter windows, or give the workers more memory",
    ),
    _failure(
        r"java\.lang\.OutOfMemoryError",
        "the Java process of Spark ran out of memory",
        "start the session with a larger spark.driver.memory, on a cluster spark.executor.memory",
    ),
    _failure(
        r"Python worker (?:exited unexpectedly|process terminated)",
        "a Python worker of Spark died; if the system killed it, there was not enough memory",
        "use smaller batches (files_per_batch=…), or give the workers more memory; "
        'with the master "local[*,4]", Spark runs a task up to 4 times before it gives up',
    ),
    _failure(
        r"Python worker failed to connect back",
        "a Python worker of Spark did not start within ten seconds",
        "start the query again when the machine has less to do",
    ),
    _failure(
        r"\[CONCURRENT_STREAM_LOG_UPDATE\]",
        "another query runs on the same checkpoint",
        "stop one of them, or use another checkpoint directory",
    ),
    _failure(
        r"There are \[(?P<before>\d+)\] sources in the checkpoint offsets and now there are \[(?P<now>\d+)\] sources",
        "the checkpoint belongs to another query: it has {before} sources, and this query has {now}",
        _NEW_CHECKPOINT,
        InputError,
    ),
    _failure(
        r"\[STREAMING_STATEFUL_OPERATOR_\w+\]|\[STATE_STORE_\w+_SCHEMA_NOT_COMPATIBLE\]",
        "the checkpoint belongs to another query: it has other state",
        _NEW_CHECKPOINT,
        InputError,
    ),
    _failure(
        r"No space left on device",
        "a disk of Spark is full",
        "free some space where the checkpoint, the output and spark.local.dir are, and start the query again",
    ),
    _failure(
        r"STATE_STORE",
        "the state of the checkpoint cannot be loaded",
        "run watersmeet repair DIR, with the directory of the checkpoint, to see what can be done",
    ),
)

_PYTHON_EXCEPTION = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ")
_WRAPPERS = {"STREAM_FAILED", "TASK_WRITE_FAILED", "PYTHON_EXCEPTION"}
_PREFIX = re.compile(r"^.*?(?:terminated with exception: |most recent failure: [^\n]*?\): )", re.DOTALL)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise a `WatersmeetError` for a failure that we know inside this context, and Spark's own error otherwise."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        explained = explain_text(str(error))
        if explained is None:
            raise
        raise explained from error


@contextmanager
def summarize_spark_errors() -> Iterator[None]:
    """Raise a one-sentence error for an exception of Spark or the loss of its Java process."""
    try:
        yield
    except SPARK_FAILURES as error:
        raise summarize_error(error) from error


def summarize_error(error: Exception) -> WatersmeetError:
    """Return our error for an exception of Spark, or else the innermost message of Spark, without a stack trace."""
    if _is_connection_lost(error):
        return SparkError(
            "the Java process of Spark ended",
            hint="it may have run out of memory: start a new session with a larger spark.driver.memory",
        )
    text = str(error).strip() or type(error).__name__
    return explain_text(text) or SparkError(f"the query failed on Spark: {find_innermost_message(text)}")


def explain_text(text: str) -> WatersmeetError | None:
    """Return our error for the text of an exception of Spark, or None if the failure is unknown."""
    explained = (failure.explain(text) for failure in _KNOWN_FAILURES)
    return find_user_error(text) or next((error for error in explained if error is not None), None)


def _is_connection_lost(error: Exception) -> bool:
    """Return whether the Java process did not answer. Only errors of Java itself have a trace."""
    return isinstance(error, Py4JNetworkError | ConnectionError) or (
        type(error) is Py4JError and "Trace:" not in str(error)
    )


def find_user_error(text: str) -> WatersmeetError | None:
    """Return the caller's mistake that the text of a Spark error contains, or None.

    >>> text = "PythonException: ...\\nwatersmeet.errors.InputError: row 3 has no time\\nfix it\\n SQLSTATE: 38000"
    >>> find_user_error(text)
    InputError('row 3 has no time\\nfix it')
    """
    raised = _RAISED.search(text)
    return None if raised is None or raised[1] not in _ERROR_TYPES else _ERROR_TYPES[raised[1]](raised[2].strip())


def find_innermost_message(text: str) -> str:
    """Return the message of the error that made a task or a query fail.

    It is the exception of a Python function, such as that of `foreachBatch`, or the innermost message of Spark.

    >>> find_innermost_message("[STREAM_FAILED] Query [id = 1] terminated with exception: [DIVIDE_BY_ZERO] By zero.")
    '[DIVIDE_BY_ZERO] By zero.'
    """
    raised = _PYTHON_EXCEPTION.search(text)
    if raised is not None:
        return abbreviate(raised[1], _MAX_CHARACTERS)
    conditions = (found for found in _CONDITION.finditer(text) if found[1] not in _WRAPPERS)
    innermost = next(conditions, None)
    message = text[innermost.start() :] if innermost is not None else _PREFIX.sub("", text)
    return abbreviate(message.strip().splitlines()[0], _MAX_CHARACTERS)
