"""Facts about a session of either kind: a classic one has a Java process, one of Spark Connect is a client of a server.

A client has no Spark context, no broadcast variables and no descriptions of jobs, and its Python may lack Py4J. So no
other module imports Py4J. `read_context` is the one question that tells the two kinds apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from watersmeet.runtime.spark import versions

try:
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped] # has no types
except ModuleNotFoundError:

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Error of the Java process, which a client does not have. So nothing raises it."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef, misc]
        """Exception of Java."""

    class Py4JNetworkError(Py4JError):  # type: ignore[no-redef, misc]
        """Loss of the Java process."""


if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Py4JError", "Py4JJavaError", "Py4JNetworkError"]

_LOCAL_CORES = re.compile(r"local\[(\d+)")


def read_context(spark: SparkSession) -> SparkContext | None:
    """Return the Spark context of a classic session; None for a session of Spark Connect."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect.") else spark.sparkContext


def application_id(spark: SparkSession) -> str:
    """Return the id of the session's application."""
    context = read_context(spark)
    return str(spark.conf.get("spark.app.id", "") if context is None else context.applicationId)


def session_id(spark: SparkSession) -> str:
    """Return the id of a session. Sessions of one application have different ids."""
    return versions.session_id(spark) if read_context(spark) is not None else str(spark.session_id)  # type: ignore[attr-defined] # of Connect


def read_master(spark: SparkSession) -> str:
    """Return the URL of the session's master."""
    context = read_context(spark)
    return str(spark.conf.get("spark.master", "") if context is None else context.master)


def count_cores(spark: SparkSession) -> int | None:
    """Return the cores of the session's executors; None if a client cannot know them."""
    context = read_context(spark)
    if context is not None:
        return max(1, context.defaultParallelism)
    local = _LOCAL_CORES.match(read_master(spark))
    return None if local is None else int(local[1])
