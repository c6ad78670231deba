"""The text of a Spark error becomes one sentence of ours. `tests/spark/test_spark_failures.py` provokes real errors."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped] # publishes no types
from pyspark.errors import PySparkException

import watersmeet as wm
from watersmeet.runtime.spark.spark_errors import SparkError, summarize_error, translate_errors

STREAM = "[STREAM_FAILED] Query [id = 1] terminated with exception: {} SQLSTATE: XXKST\n=== Streaming Query ==="
TASK = (
    "Job aborted due to stage failure: Task 0 in stage 46.0 failed 1 times, most recent failure: Lost task 0.0 in "
    "stage 46.0 (TID 87) (host executor driver): {}\n\tat org.apache.spark.Task.run(Task.scala:1)"
)

#: Messages of Spark, and our sentence for each.
MESSAGES = [
    (TASK.format("java.lang.OutOfMemoryError: Java heap space"), "the Java process of Spark ran out of memory"),
    (TASK.format("java.io.IOException: No space left on device"), "a disk of Spark is full"),
    (
        STREAM.format("Python worker failed to connect back."),
        "a Python worker of Spark did not start within ten seconds",
    ),
    (
        STREAM.format("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log."),
        "another query runs on the same checkpoint",
    ),
    (
        STREAM.format("[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful operator name"),
        "the checkpoint belongs to another query: it has other state",
    ),
    (
        STREAM.format("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state."),
        "the state of the checkpoint cannot be loaded",
    ),
    (
        STREAM.format(
            "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file file:///data/a/1.parquet. "
            "Could not read footer."
        ),
        'input file "/data/a/1.parquet" cannot be read',
    ),
    (
        "[PATH_NOT_FOUND] Path does not exist: file:/data/a. SQLSTATE: 42K03",
        'there is no file or directory "/data/a"',
    ),
]


@pytest.mark.parametrize(("message", "sentence"), MESSAGES, ids=[sentence for _, sentence in MESSAGES])
def test_a_known_failure_has_a_sentence_and_a_remedy(message: str, sentence: str) -> None:
    with pytest.raises(wm.WatersmeetError) as raised, translate_errors():
        raise PySparkException(message)
    assert raised.value.message == sentence
    assert raised.value.hint


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        (STREAM.format("[DIVIDE_BY_ZERO] Division by zero."), "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: XXKST"),
        (TASK.format("java.lang.IllegalStateException: odd"), "java.lang.IllegalStateException: odd"),
        ("odd\n\tat org.apache.spark", "odd"),
    ],
)
def test_an_unknown_failure_shows_the_innermost_message_of_spark(message: str, summary: str) -> None:
    assert summarize_error(PySparkException(message)).message == f"the query failed on Spark: {summary}"
    with pytest.raises(PySparkException), translate_errors():
        raise PySparkException(message)


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()])
def test_the_end_of_the_java_process_is_named(error: Exception) -> None:
    summary = summarize_error(error)
    assert isinstance(summary, SparkError)
    assert summary.message == "the Java process of Spark ended"
