"""The process that Spark's Python workers are forked from, with everything they need imported and every kernel loaded.

Spark starts one worker after the other. Each would otherwise spend seconds of CPU on the same imports before its first row.
"""

from __future__ import annotations

from pyspark import worker  # noqa: F401 # what every worker runs; imported here, it is there after the fork
from pyspark.daemon import manager

from watersmeet.kernels.compile import warm_up
from watersmeet.runtime.spark import inputs, processor, results  # noqa: F401 # what is unpickled in workers

MODULE = "watersmeet.runtime.spark.daemon"

if __name__ == "__main__":
    warm_up()
    manager()
