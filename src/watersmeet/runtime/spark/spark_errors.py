"""Translation of Spark's errors to errors of this package.

Some mistakes of the caller are found only by a worker: a null time, or a file that cannot be read. The worker's
exception reaches the driver as text inside one of Spark's own exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # publishes no types
from pyspark.errors import PySparkException

from watersmeet.errors import InputError, PlanError, QueryError, WatersmeetError

#: Errors of Spark itself, and the loss of its Java process.
SPARK_FAILURES = (PySparkException, Py4JError, ConnectionError)

_MAX_CHARACTERS = 400
_ERROR_TYPES: dict[str, type[WatersmeetError]] = {
    kind.__name__: kind for kind in (QueryError, InputError, PlanError, WatersmeetError)
}
_END = r"(?:\n\s*(?:at |JVM stacktrace|Driver stacktrace|===)|\s+SQLSTATE|\Z)"
_RAISED = re.compile(rf"watersmeet\.errors\.(\w+): (.*?){_END}", re.DOTALL)


_PYTHON_EXCEPTION = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")


class SparkError(InputError):
    """A query failed on Spark for a reason that Watersmeet does not know."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise a `WatersmeetError` for a mistake of the caller inside this context, and Spark's own error otherwise."""
    try:
        yield
    except PySparkException as error:
        user_error = find_user_error(str(error))
        if user_error is None:
            raise
        raise user_error from error


@contextmanager
def summarize_spark_errors() -> Iterator[None]:
    """Raise a one-sentence error for an exception of Spark or the loss of its Java process."""
    try:
        yield
    except SPARK_FAILURES as error:
        raise summarize_error(error) from error


def summarize_error(error: Exception) -> WatersmeetError:
    """Return the caller's mistake inside an error, or else one sentence of Spark's message, without a stack trace.

    It is the exception of a Python function, such as that of `foreachBatch`, or the first line of the message.
    """
    lines, raised = str(error).strip().splitlines(), _PYTHON_EXCEPTION.search(str(error))
    sentence = raised[1] if raised is not None else lines[0] if lines else type(error).__name__
    summary = sentence[:_MAX_CHARACTERS]
    hint = (
        "run watersmeet repair DIR, with the directory of the checkpoint, to see what can be done"
        if "STATE_STORE" in str(error)
        else None
    )
    return find_user_error(str(error)) or SparkError(f"the query failed on Spark: {summary}", hint=hint)


def find_user_error(text: str) -> WatersmeetError | None:
    """Return the caller's mistake that the text of a Spark error contains, or None.

    >>> text = "PythonException: ...\\nwatersmeet.errors.InputError: row 3 has no time\\nfix it\\n SQLSTATE: 38000"
    >>> find_user_error(text)
    InputError('row 3 has no time\\nfix it')
    """
    raised = _RAISED.search(text)
    return None if raised is None or raised[1] not in _ERROR_TYPES else _ERROR_TYPES[raised[1]](raised[2].strip())
