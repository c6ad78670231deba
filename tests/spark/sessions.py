"""The Spark session of the tests: small, and the same for every test of a process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import watersmeet as wm

#: Java options for processes that run only for seconds or minutes: less compilation, a simple garbage collector.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def open_small_session() -> SparkSession:
    """Return the active session, or start one with two cores and two shuffle partitions."""
    set_spark_home()
    settings: dict[str, Any] = {
        "spark.master": "local[2,2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.extraJavaOptions": QUICK_TO_START,
    }
    session: SparkSession = wm.session(**settings)
    return session


def quick_environment() -> dict[str, str]:
    """Return the environment for a process that starts a Java process and workers of its own."""
    set_spark_home()
    return os.environ | {"JDK_JAVA_OPTIONS": QUICK_TO_START}


def set_spark_home() -> None:
    """Let this process and its children find a Spark whose workers start quickly."""
    if "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(link_spark_home(Path(tempfile.mkdtemp(prefix="watersmeet-spark-home-"))))


def link_spark_home(home: Path) -> Path:
    """Link the files of PySpark into a home for Spark whose `pyspark.zip` is a directory.

    Workers import PySpark from that file. Python keeps no bytecode of a zip file, so it compiles PySpark in each of the
    processes that Spark starts for a streaming query, which takes a second.
    """
    package = Path(pyspark.__file__).parent
    for path in package.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    library = home / "python" / "lib"
    (library / "pyspark.zip").mkdir(parents=True)
    (library / "pyspark.zip" / "pyspark").symlink_to(package)
    for path in (package / "python" / "lib").glob("py4j-*.zip"):
        (library / path.name).symlink_to(path)
    return home
