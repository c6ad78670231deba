"""Differences between versions of PySpark, and the private attributes of PySpark that the Spark host reads.

No other module asks for a version. `tests/spark/test_versions.py` calls every function of this module, so a version
that renames an attribute fails there first. Workers and the driver's short-lived Python processes import this module.
Keep its imports few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from subprocess import Popen
from typing import IO, TYPE_CHECKING, Any

from watersmeet.errors import InputError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

Release = tuple[int, ...]

_ENDED_EARLY = 1

#: By release, the newest first: the version of protobuf that generated PySpark's state messages.
_OLDEST_PROTOBUF: tuple[tuple[Release, Release], ...] = (((4, 2), (6, 33, 5)), ((4, 1), (6, 33, 0)), ((), (5, 28, 3)))


@dataclass(frozen=True, slots=True)
class SparkTraits:
    """Features of one version of PySpark.

    `reads_limited_offsets`: the engine tells a Python source the last offset, so a source can stop after one round.
    `file_manager`: class that writes the files of a checkpoint. `oldest_protobuf`: PySpark's messages need it.
    """

    reads_limited_offsets: bool
    file_manager: str
    oldest_protobuf: Release


def parse_release(text: str) -> Release:
    """Return the numbers at the start of a version.

    >>> parse_release("4.3.0"), parse_release("4.2.0.dev1"), parse_release("4.4.0rc1")
    ((4, 3, 0), (4, 2, 0), (4, 4, 0))
    """
    found = re.match(r"\d+(?:\.\d+)*", text)
    return () if found is None else tuple(int(number) for number in found[0].split("."))


def describe_version(release: Release) -> SparkTraits:
    """Return the features of a release of PySpark.

    >>> describe_version((4, 1, 4)).reads_limited_offsets, describe_version((4, 2, 0)).reads_limited_offsets
    (False, True)
    """
    package = "org.apache.spark.sql.execution.streaming"
    return SparkTraits(
        reads_limited_offsets=release >= (4, 2),
        file_manager=f"{package}{'.checkpointing' if release >= (4, 1) else ''}.FileSystemBasedCheckpointFileManager",
        oldest_protobuf=next(needed for since, needed in _OLDEST_PROTOBUF if release >= since),
    )


def read_spark_version() -> str:
    """Return the version of the PySpark that this process imports."""
    import pyspark

    return str(pyspark.__version__)


def current_traits() -> SparkTraits:
    """Return what the PySpark of this process has."""
    return describe_version(parse_release(read_spark_version()))


def check_versions() -> None:
    """Refuse packages that are too old for this PySpark."""
    spark, protobuf = read_spark_version(), installed_version("protobuf")
    problem = find_version_problem(spark, protobuf)
    if problem is not None:
        raise InputError(problem[0], hint=problem[1])


def find_version_problem(spark: str, protobuf: str) -> tuple[str, str] | None:
    """Return what is wrong with these versions and what to do, or None.

    >>> find_version_problem("4.0.0", "5.28.3")
    """
    release = parse_release(spark)
    oldest = describe_version(release).oldest_protobuf
    if parse_release(protobuf) < oldest:
        needed = _join_numbers(oldest)
        return (
            f"PySpark {spark} needs protobuf {needed} or newer for its state messages, and this is {protobuf}",
            f'install it here and on the workers: pip install "protobuf>={needed}"',
        )
    return None


def _join_numbers(release: Release) -> str:
    return ".".join(map(str, release))


def available_now_bases() -> tuple[type, ...]:
    """Return the base classes of a stream reader that can stop after the data that is available."""
    if not current_traits().reads_limited_offsets:
        return ()
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    return (SupportsTriggerAvailableNow,)


def broadcast_threshold(context: SparkContext) -> int:
    """Return the size from which PySpark puts a function into a broadcast variable."""
    return int(context._jvm.PythonUtils.getBroadcastThreshold(context._jsc))  # type: ignore[union-attr]


def broadcast_number(variable: Any) -> int:
    """Return the number by which workers find a broadcast variable; PySpark then sends it with the next function."""
    _, (number,) = variable.__reduce__()
    return int(number)


def read_broadcast(number: int) -> Any:
    """Return the value of a broadcast variable in a worker."""
    from pyspark.core.broadcast import _from_id

    return _from_id(number).value


def refuse_missing_stateful_step(grouped: object) -> None:
    """Refuse grouped data without stateful steps in Python. The first clients of Spark Connect lack them."""
    if not hasattr(grouped, "transformWithStateInPandas"):
        raise InputError(
            "streaming queries need stateful Python steps, "
            f"which the client of Spark Connect in PySpark {read_spark_version()} lacks",
            hint="use a newer PySpark, or a classic session; queries over finite data run here, too",
        )


def session_id(spark: SparkSession) -> str:
    """Return the id of a session. Sessions of one application have different ids."""
    return str(spark._jsparkSession.sessionUUID())


def java_machine(spark: SparkSession) -> Any:
    """Return Py4J's view of the session's Java process."""
    return spark.sparkContext._jvm


def active_context() -> SparkContext | None:
    """Return the Spark context of this process, or None. An installation of `pyspark-client` has no such class."""
    try:
        from pyspark import SparkContext
    except ImportError:
        return None
    return SparkContext._active_spark_context


def idle_gateway() -> Any | None:
    """Return the connection to a Java process that runs without a Spark context, or None."""
    from pyspark import SparkContext

    return SparkContext._gateway if active_context() is None else None


def is_java_running() -> bool:
    """Return whether this process has started Spark's Java process."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def has_java_class(name: str) -> bool:
    """Return whether the running Java process finds a class on its class path."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # publishes no types
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    try:
        gateway.jvm.java.lang.Class.forName(name)
    except Py4JJavaError:
        return False
    return True


def start_context(conf: SparkConf, log: IO[bytes]) -> None:
    """Start a Spark context whose Java process writes to a file."""
    from pyspark import SparkContext, java_gateway

    gateway = java_gateway.launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call] # Spark declares no types
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def notice_ended_java() -> Iterator[None]:
    """Let PySpark fail, and not wait forever, if the Java process that it starts ends with code 0."""
    from pyspark import java_gateway

    popen = java_gateway.Popen  # type: ignore[attr-defined] # imported there, not declared
    java_gateway.Popen = _GatewayProcess  # type: ignore[attr-defined, assignment]
    try:
        yield
    finally:
        java_gateway.Popen = popen  # type: ignore[attr-defined]


class _GatewayProcess(Popen[bytes]):
    """Java process of the gateway. PySpark waits while `poll` is false."""

    def poll(self) -> int | None:
        code = super().poll()
        return _ENDED_EARLY if code == 0 else code
