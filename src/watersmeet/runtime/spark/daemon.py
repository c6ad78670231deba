"""The process that Spark's Python workers are forked from, with everything they need imported and the usual kernels
loaded.

Spark starts one worker after the other. Each would otherwise spend seconds of CPU on the same imports before its first
row.
"""

from __future__ import annotations

import gc

import numpy as np
from pyspark import worker  # noqa: F401 # what every worker runs; imported here, it is there after the fork
from pyspark.daemon import manager

from watersmeet.kernels.gather import gather_int32, gather_int64, tighten_bounds
from watersmeet.kernels.grouped_run import count_matches, fill_matches, group_rows, order_by_leading_bits
from watersmeet.kernels.hashing import combine_codes, hash_slices
from watersmeet.runtime.spark import emission, inputs, processor  # noqa: F401 # what is unpickled in workers

MODULE = "watersmeet.runtime.spark.daemon"


def load_kernels() -> None:
    """Calls the kernels of the default plan on one row, so that they are there after the fork. Arrow is left alone: it
    has threads.
    """
    one, none = np.zeros(1, np.int64), np.empty(0, np.int64)
    slots, group_keys, offsets, rows = group_rows(combine_codes(one, one))
    order_by_leading_bits(one, rows, np.empty(1, np.int64))
    first, count = np.empty(1, np.int64), np.empty(1, np.int32)
    count_matches(slots, group_keys, offsets, one, none, one, one, one, one, first, count)
    fill_matches(rows, first, count, 0, np.empty(1, np.int32), np.empty(1, np.int32), 0)
    gather_int64(one, gather_int32(rows, rows))
    tighten_bounds(one, 0, 0, np.zeros(1, np.int64), np.zeros(1, np.int64))
    hash_slices(np.zeros(1, np.uint8), np.array([0, 1]))


def freeze() -> None:
    """What is imported stays, so no worker looks through it again: Spark has each collect its garbage after every task."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load_kernels()
    freeze()
    manager()
