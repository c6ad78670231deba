"""The session of the benchmarks. Spark's own joins keep their state on the Java heap, so it is given what the machine
has to give.
"""

from __future__ import annotations

from typing import Any

import psutil
from pyspark.sql import SparkSession

from watersmeet.runtime.spark.session import session as local_session

#: The share of the machine's memory that is Java's; workers, the other peers and the answer need the rest.
HEAP_SHARE = 0.5


def benchmark_session() -> SparkSession:
    """A local session with half of the machine's memory; one that is active already is returned as it is."""
    settings: dict[str, Any] = {"spark.driver.memory": f"{int(psutil.virtual_memory().total * HEAP_SHARE) >> 20}m"}
    return local_session(**settings)
