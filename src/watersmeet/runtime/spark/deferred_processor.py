"""A stateful processor that is unpickled by the first task that has rows for it.

Spark runs `init` of a stateful step once on the driver, to learn which states it has. For that it starts a new Python
process per query, which unpickles the processor. Our processors import Arrow, Numba and pandas and carry the relations
of the query. So the driver's process gets this class instead, which declares the states and nothing else.

It also solves the problem of size. PySpark puts a function that is larger than
`spark.broadcast.UDFCompressionThreshold` (1 MB by default) into a broadcast variable, which the driver's process cannot
read (BROADCAST_VARIABLE_NOT_LOADED). Here, a large processor is put into a broadcast variable of its own, which only
workers read.

Keep the imports of this module few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.runtime.spark.versions import broadcast_number, broadcast_threshold, read_broadcast

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

#: Share of the threshold that a pickled processor may take up. The rest of the function needs some space, too.
_MAX_INLINE_SHARE = 0.5


class GroupProcessor(Protocol):
    """Processor of the groups of one partition."""

    def open_state(self, header: Any, entries: Any) -> None:
        """Prepare to process groups whose state is in these two states of Spark."""

    def process(self, label: int, frames: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows that the group with this label emits for its new rows."""


def defer_processor(context: SparkContext | None, processor: GroupProcessor) -> StatefulProcessor:
    """Return a processor for Spark that unpickles this one when a task has rows for it.

    Spark Connect has no context. It sends functions of any size in its own messages, without broadcast variables.
    """
    pickled: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call] # it has no types
    if context is None or len(pickled) <= _MAX_INLINE_SHARE * broadcast_threshold(context):
        return DeferredProcessor(pickled)
    return DeferredProcessor(SentVariable(context.broadcast(pickled)))


class DeferredProcessor(StatefulProcessor):
    """Declares the states of a processor, and unpickles the processor when it has rows to process.

    The state of a group is a header and entries by number.
    """

    def __init__(self, pickled: bytes | SentVariable | ReceivedVariable) -> None:
        self._pickled = pickled
        self._processor: GroupProcessor | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = (
            handle.getValueState("header", "value string"),
            handle.getMapState("entries", "place long", "blob binary"),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 # Spark's own names
        if self._processor is None:
            self._processor = self._load()
        return self._processor.process(int(key[0]), rows)

    def close(self) -> None:
        pass

    def _load(self) -> GroupProcessor:
        pickled = self._pickled if isinstance(self._pickled, bytes) else self._pickled.read()
        processor: GroupProcessor = cloudpickle.loads(pickled)
        processor.open_state(*self._states)
        return processor


class SentVariable:
    """A broadcast variable, pickled as its number so that a process without the variable can unpickle it."""

    def __init__(self, variable: Broadcast[bytes]) -> None:
        self._variable = variable

    def read(self) -> bytes:
        return self._variable.value

    def __reduce__(self) -> tuple[Callable[[int], ReceivedVariable], tuple[int]]:
        """Return the number. Pickling the variable itself tells PySpark to send it along with the function."""
        return ReceivedVariable, (broadcast_number(self._variable),)


class ReceivedVariable:
    """A broadcast variable in a worker, looked up when it is read."""

    def __init__(self, number: int) -> None:
        self._number = number

    def read(self) -> bytes:
        content: bytes = read_broadcast(self._number)
        return content
