"""The daemon process from which Spark forks its Python workers.

It imports everything that workers need and loads the kernels of the default plan. Otherwise every worker would spend
seconds of CPU time on the same imports before its first row.
"""

from __future__ import annotations

import gc

import numpy as np
from pyspark import worker  # noqa: F401 # the main module of every worker, imported before the fork
from pyspark.daemon import manager

from watersmeet.kernels.gather import gather_int32, gather_int64, tighten_bounds
from watersmeet.kernels.grouped_run import count_matches, fill_matches, group_rows, order_by_leading_bits
from watersmeet.kernels.hashing import combine_codes, hash_slices
from watersmeet.runtime.spark import emission, inputs, processor  # noqa: F401 # modules that workers unpickle

MODULE = "watersmeet.runtime.spark.daemon"


def load_kernels() -> None:
    """Call the kernels of the default plan on one row, so that they are loaded before the fork.

    Do not use Arrow here: it starts threads, which a fork does not copy.
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
    """Exclude everything imported so far from garbage collection, which Spark runs in each worker after every task."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load_kernels()
    freeze()
    manager()
