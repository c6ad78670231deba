"""One Spark session for all the tests of a process: two cores, as small as it gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session: SparkSession = wm.session(**{"spark.master": "local[2,4]", "spark.sql.shuffle.partitions": 2})
    yield session
    session.stop()
