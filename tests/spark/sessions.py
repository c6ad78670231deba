"""The Spark session of the tests: small, and the same for every test of a process."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm

from .class_archive import archive_options, find_home

#: Java options for processes that run only for seconds or minutes: less compilation, a simple garbage collector.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def open_small_session() -> SparkSession:
    """Return the active session, or start one with two cores and two shuffle partitions."""
    set_spark_home()
    settings: dict[str, Any] = {
        "spark.master": "local[2,2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.extraJavaOptions": f"{QUICK_TO_START} {archive_options()}",
    }
    session: SparkSession = wm.session(**settings)
    return session


def quick_environment() -> dict[str, str]:
    """Return the environment for a process that starts a Java process and workers of its own."""
    set_spark_home()
    return os.environ | {"JDK_JAVA_OPTIONS": QUICK_TO_START, "SPARK_SUBMIT_OPTS": archive_options()}


def set_spark_home() -> None:
    """Let this process and its children find a Spark that starts quickly, and whose workers do."""
    os.environ.setdefault("SPARK_HOME", str(find_home()))
