"""Python steps of a plan: the name that Spark shows for each, and the Python that runs it.

**Names.** Spark shows the name of a function in the plan of a query: `MapInArrow watersmeet: pack orders(…)`.

**Python.** Spark's workers run `PYSPARK_PYTHON`, or else the first `python3` of the search path. In a virtual
environment that is not activated, this is the system's Python, which lacks this package. So if the caller
of a local session chose no Python for the workers, our steps run in the driver's own Python. Other steps keep theirs.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from watersmeet.runtime.spark.deferred_processor import GroupProcessor, defer_processor
from watersmeet.runtime.spark.session import is_local
from watersmeet.runtime.spark.ui_names import ui_name

MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, name: str, function: MapBatches, columns: StructType | str) -> DataFrame:
    """Return the record batches of a frame, mapped by a function that Spark shows under this name."""
    with use_driver_python(frame.sparkSession.sparkContext):
        return frame.mapInArrow(_name_function(function, name), columns)


def transform_with_state(frame: DataFrame, key: str, processor: GroupProcessor, columns: StructType) -> DataFrame:
    """Return the rows that a processor emits for each group of a streaming frame."""
    context = frame.sparkSession.sparkContext
    with use_driver_python(context):
        return frame.groupBy(key).transformWithStateInPandas(
            defer_processor(context, processor), columns, "Append", "None"
        )


def _name_function(function: MapBatches, name: str) -> MapBatches:
    named = partial(function)
    named.__name__ = ui_name(name)  # type: ignore[attr-defined] # Spark reads the name from here
    return named


#: One thread at a time replaces the Python of a session.
_python_lock = threading.RLock()


@contextmanager
def use_driver_python(context: SparkContext) -> Iterator[None]:
    """Let steps that are built in this context run in the driver's Python, if the caller chose none for the workers."""
    with _python_lock:
        before = context.pythonExec
        if is_local(str(context.master)) and not _is_python_chosen(context) and not _is_own_python(before):
            context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def _is_python_chosen(context: SparkContext) -> bool:
    return "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")


def _is_own_python(executable: str) -> bool:
    """Return whether the search path finds this command in the environment of the driver's Python."""
    found = shutil.which(executable)
    return found is not None and Path(found).parent == Path(sys.executable).parent
