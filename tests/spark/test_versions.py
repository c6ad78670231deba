"""Our private accesses to PySpark, and the rows of each kind of query, on any version (`make test-spark`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import stream_to_rows, table_to_rows
from watersmeet.runtime.spark import versions
from watersmeet.runtime.spark.session import choose_settings
from watersmeet.sources.feeds import SparkFeed

SECONDS = 1_000_000


def make_rows(offset_us: int, count: int = 60) -> pa.Table:
    times = [number * SECONDS + offset_us for number in range(count)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": [number % 5 for number in range(count)],
            "v": list(range(count)),
        }
    )


ROWS = {"a": make_rows(0), "b": make_rows(10), "c": make_rows(20)}
PAIR = "FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"

#: A query of every kind, by the name of its row in the table.
FEATURES = {
    "join of two": f"SELECT a.v, b.v {PAIR}",
    "join of three": "SELECT a.v, b.v, c.v FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS] "
    "WHERE a.k = b.k AND b.k = c.k",
    "aggregation": f"SELECT a.k, COUNT(*) AS n, SUM(b.v) AS s {PAIR} GROUP BY a.k EVERY 2 SECONDS",
    "aggregation in two steps": f"SELECT a.v + b.v AS t, COUNT(*) AS n {PAIR} GROUP BY a.v + b.v EVERY 2 SECONDS",
    "ROWS window": "SELECT a.v, b.v FROM a [ROWS 7], b [RANGE 4 SECONDS] WHERE a.k = b.k",
    "theta join": "SELECT a.v, b.v FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.v < b.v",
}


@pytest.mark.parametrize("feature", FEATURES)
def test_finite_tables_give_the_rows_of_the_embedded_engine(spark: SparkSession, feature: str) -> None:
    sources = declare_tables()
    found = table_to_rows(wm.on_spark(FEATURES[feature], sources, session=spark).toArrow())
    assert found == table_to_rows(wm.collect(FEATURES[feature], sources))


@pytest.mark.parametrize("feature", ["join of two", "aggregation in two steps", "ROWS window"])
def test_directories_give_the_same_rows_over_a_restart(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    expected = rows_of_unended_streams(FEATURES[feature], {name: [rows[:30], rows[30:]] for name, rows in ROWS.items()})
    for part in range(2):
        for name, rows in ROWS.items():
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(rows.slice(30 * part, 30), tmp_path / name / f"{part}.parquet")
        sources = {name: wm.stream(tmp_path / name, time="ts", follow=True) for name in ROWS}
        found = stream_to_rows(wm.on_spark(FEATURES[feature], sources, session=spark), tmp_path)
    assert found == expected


def test_a_streaming_frame_with_a_finite_table_gives_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pq.write_table(ROWS["a"], tmp_path / "a" / "0.parquet")
    frame = spark.readStream.schema(spark.read.parquet(str(tmp_path / "a")).schema).parquet(str(tmp_path / "a"))
    rounds = [ROWS["b"][:20], ROWS["b"][20:40], ROWS["b"][40:]]
    sources: dict[str, Any] = {"a": wm.stream(frame, time="ts"), "b": wm.stream(rounds, time="ts", lateness="1 hour")}
    found = stream_to_rows(wm.on_spark(FEATURES["join of two"], sources, session=spark), tmp_path)
    tables = {"a": wm.stream(ROWS["a"], time="ts"), "b": wm.stream(ROWS["b"], time="ts")}
    assert found == table_to_rows(wm.collect(FEATURES["join of two"], tables))


def test_shed_rows_are_in_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(ROWS[name], tmp_path / name / "0.parquet")
    sources = {name: wm.stream(tmp_path / name, time="ts", follow=True) for name in "ab"}
    plan = wm.plan(drop={"a": 0.5})
    out: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "trigger": "availableNow"}
    running = wm.start(FEATURES["join of two"], sources, plan=plan, **out)
    running.await_termination()
    entry = running.ledger["a"]
    assert entry.arrived == 60 == entry.kept + entry.shed + entry.late
    assert entry.shed > 0


def test_private_attributes_exist(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert versions.broadcast_threshold(context) > 0
    assert versions.broadcast_number(context.broadcast(b"x")) >= 0
    assert versions.session_id(spark) != versions.session_id(spark.newSession())
    assert SparkFeed(spark.range(60)).known_rows() == 60
    assert versions.java_machine(spark).java.lang.System.getProperty("java.version")
    assert versions.active_context() is context
    assert versions.idle_gateway() is None
    with versions.notice_ended_java():
        pass


def test_a_worker_reads_a_broadcast_variable_by_its_number(spark: SparkSession) -> None:
    variable = spark.sparkContext.broadcast(b"content")
    number = versions.broadcast_number(variable)

    def read(_: Iterable[int]) -> Iterator[bytes]:
        assert variable is not None  # PySpark sends variables that a function refers to
        yield versions.read_broadcast(number)

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(read).collect() == [b"content"]


def test_the_class_that_writes_checkpoints_exists(spark: SparkSession) -> None:
    name = choose_settings({})["spark.sql.streaming.checkpointFileManagerClass"]
    assert versions.java_machine(spark).java.lang.Class.forName(name).getName() == name


@pytest.mark.parametrize(
    ("spark_version", "protobuf", "problem"),
    [
        ("4.3.0", "5.28.3", "PySpark 4.3.0 needs protobuf 6.33.5 or newer"),
        ("4.0.0", "5.28.2", "PySpark 4.0.0 needs protobuf 5.28.3 or newer"),
    ],
)
def test_versions_that_do_not_fit_are_refused_by_name(spark_version: str, protobuf: str, problem: str) -> None:
    found = versions.find_version_problem(spark_version, protobuf)
    assert found is not None
    assert problem in found[0]


def declare_tables() -> dict[str, Any]:
    return {name: wm.stream(rows, time="ts") for name, rows in ROWS.items()}


def rows_of_unended_streams(query: str, batches: dict[str, list[pa.Table]]) -> Any:
    """Return the rows up to the last batch: a stream on Spark does not end, so no row is released at its end."""
    run = wm.run(query, {name: wm.stream(tables, time="ts") for name, tables in batches.items()})
    *rounds, _ = run.batches()
    tables = [pa.Table.from_batches(found, run.config.result) for found in rounds]
    return table_to_rows(pa.concat_tables(tables))
