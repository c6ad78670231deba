"""One Spark session for all the tests of a process: two cores, as small as it gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm

from .faults.kills import QUICK_TO_START


@pytest.fixture(scope="session")
def _stopped_at_the_end() -> Iterator[None]:
    yield
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


@pytest.fixture
def spark(_stopped_at_the_end: None) -> SparkSession:
    """The session that is there, or a new one: a test is free to leave none behind."""
    settings: dict[str, Any] = {
        "spark.master": "local[2,4]",
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.extraJavaOptions": QUICK_TO_START,
    }
    session: SparkSession = wm.session(**settings)
    return session
