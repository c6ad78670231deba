"""One small Spark session with two cores for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm

from .faults.kills import QUICK_TO_START


@pytest.fixture(scope="session")
def _stop_session_at_the_end() -> Iterator[None]:
    yield
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


@pytest.fixture
def spark(_stop_session_at_the_end: None) -> SparkSession:
    """Return the active session, or a new one: a test may stop the session."""
    settings: dict[str, Any] = {
        "spark.master": "local[2,2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.extraJavaOptions": QUICK_TO_START,
    }
    session: SparkSession = wm.session(**settings)
    return session
