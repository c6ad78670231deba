"""One small Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from .sessions import open_small_session


@pytest.fixture(scope="session")
def _stop_session_at_the_end() -> Iterator[None]:
    yield
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


@pytest.fixture
def spark(_stop_session_at_the_end: None) -> SparkSession:
    """Return the active session, or a new one: a test may stop the session."""
    return open_small_session()
