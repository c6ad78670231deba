"""The Spark session of the tests: small, and the same for every test of a process."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm

from .faults.kills import QUICK_TO_START


def open_small_session() -> SparkSession:
    """Return the active session, or start one with two cores and two shuffle partitions."""
    settings: dict[str, Any] = {
        "spark.master": "local[2,2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.extraJavaOptions": QUICK_TO_START,
    }
    session: SparkSession = wm.session(**settings)
    return session
