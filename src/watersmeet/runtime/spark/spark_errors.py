"""Mistakes of the caller's that only a worker sees (a null time, a file that cannot be read) as the errors they are.

A worker's exception reaches the driver as text inside one of Spark's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # publishes no types
from pyspark.errors import PySparkException

from watersmeet.errors import InputError, PlanError, QueryError, WatersmeetError

_MAX_CHARACTERS = 400
_ERROR_TYPES: dict[str, type[WatersmeetError]] = {
    kind.__name__: kind for kind in (QueryError, InputError, PlanError, WatersmeetError)
}
_END = r"(?:\n\s*(?:at |JVM stacktrace|Driver stacktrace|===)|\s+SQLSTATE|\Z)"
_RAISED = re.compile(rf"watersmeet\.errors\.(\w+): (.*?){_END}", re.DOTALL)


class SparkError(InputError):
    """What failed a query on Spark is no mistake that Watersmeet knows."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Whatever runs inside raises a `WatersmeetError` where the mistake is the caller's, and Spark's own error where it
    is not.
    """
    try:
        yield
    except PySparkException as error:
        mistake = find_user_error(str(error))
        if mistake is None:
            raise
        raise mistake from error


@contextmanager
def summarize_spark_errors() -> Iterator[None]:
    """Raise what Spark says, and a Java process that is gone, as one sentence."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise summarize_error(error) from error


def summarize_error(error: Exception) -> WatersmeetError:
    """The caller's mistake if it is one, else what Spark says first: for those who are shown a sentence and no stack."""
    words = str(error).strip().splitlines()
    said = words[0][:_MAX_CHARACTERS] if words else type(error).__name__
    hint = (
        "watersmeet repair DIR, with the directory of the checkpoint, says what can be done"
        if "STATE_STORE" in str(error)
        else None
    )
    return find_user_error(str(error)) or SparkError(f"the query failed on Spark: {said}", hint=hint)


def find_user_error(text: str) -> WatersmeetError | None:
    """The caller's mistake that a Spark error's text tells of, if it does.

    >>> mistake_in("PythonException: ...\\nwatersmeet.errors.InputError: row 3 has no time\\nfix it\\n SQLSTATE: 38000")
    InputError('row 3 has no time\\nfix it')
    """
    found = _RAISED.search(text)
    return None if found is None or found[1] not in _ERROR_TYPES else _ERROR_TYPES[found[1]](found[2].strip())
