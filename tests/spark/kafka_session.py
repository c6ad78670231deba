"""Queries over topics of a real broker, in a process of its own. It prints what they gave, as JSON.

`python kafka_session.py FOLDER`. The first run of the job reads the messages of `FIRST`. The broker is then stopped
and started again. The second run continues from the checkpoint and reads the messages of `SECOND`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import watersmeet as wm
from tests.spark.kafka_broker import Broker, list_connector_jars, run_broker
from tests.spark.sessions import QUICK_TO_START
from watersmeet.cli import main as cli

PARTITIONS = {"orders": 4, "trades": 2, "raw": 1}
START_S = 1_750_000_000
QUERY = "SELECT o.id AS o, t.id AS t FROM orders [RANGE 5 SECONDS] AS o, trades [RANGE 5 SECONDS] AS t WHERE o.k = t.k"
RAW_QUERY = "SELECT r.key, r.value, r.headers, r.partition, r.offset FROM raw [RANGE 1 SECOND] AS r"
SCHEMA = {"id": "long", "k": "long", "ts": "timestamp"}


@dataclass(frozen=True)
class Message:
    """A message with the partition it is sent to. Without a value it is a tombstone."""

    value: str | None
    partition: int
    key: str = ""


@dataclass(frozen=True)
class Row:
    """The content of a message. `at_s` are seconds since the start of the streams."""

    id: int
    k: int
    at_s: int

    def to_message(self, topic: str) -> Message:
        # Spark reads a number as a timestamp in seconds.
        content = {"id": self.id, "k": self.k, "ts": START_S + self.at_s}
        return Message(json.dumps(content), self.id % PARTITIONS[topic], f"key {self.k}")


def make_rows(first: int, count: int) -> list[Row]:
    """Return one row per second, each up to three seconds out of order."""
    numbers = range(first, first + count)
    return [Row(number, number % 5, number - (number * 7) % 4) for number in numbers]


FIRST, SECOND, THIRD = make_rows(0, 60), make_rows(60, 60), make_rows(120, 30)
#: Rows of the second run that are older than the watermark.
LATE = [Row(1000 + number, number % 5, number) for number in range(3)]
POISON = (Message("no JSON", 1), Message('{"id": "one"}', 2), Message('{"id": 7, "k": 1}', 0))
TOMBSTONES = (Message(None, 0, "key 1"), Message(None, 3, "key 2"))


def main(folder: Path) -> None:
    spark = wm.session(
        spark_master="local[2,2]",
        spark_sql_shuffle_partitions=2,
        spark_jars=list_connector_jars(),
        spark_driver_extraJavaOptions=QUICK_TO_START,
    )
    report: dict[str, Any] = {}
    with run_broker(folder / "broker") as broker:
        create_topics(spark, broker)
        send(spark, broker, "orders", [*to_messages("orders", FIRST), *POISON, *TOMBSTONES])
        send(spark, broker, "trades", [*to_messages("trades", FIRST), *POISON[:1]])
        (folder / "job.toml").write_text(write_job(broker, folder))
        report["first run"] = run_job(folder)
        broker.stop()
        broker.start()
        send(spark, broker, "orders", to_messages("orders", [*SECOND, *LATE]))
        send(spark, broker, "trades", to_messages("trades", SECOND))
        report["second run"] = run_job(folder)
        report["diverted"] = [
            [each["reason"], each["topic"], each["partition"], each["value"].decode()]
            for each in pq.read_table(folder / "diverted" / "orders").to_pylist()
        ]
        report["stopped broker"] = run_while_broker_restarts(spark, broker)
        report["stopped query"] = stop_at_poison(spark, broker)
        report["raw"] = read_raw_messages(spark, broker, folder)
    print(json.dumps(report), flush=True)
    os._exit(0)


def to_messages(topic: str, rows: Sequence[Row]) -> list[Message]:
    return [row.to_message(topic) for row in rows]


def create_topics(spark: SparkSession, broker: Broker) -> None:
    java: Any = spark.sparkContext._jvm
    properties = java.java.util.Properties()
    properties.put("bootstrap.servers", broker.address)
    admin = java.org.apache.kafka.clients.admin.AdminClient.create(properties)
    topics = java.java.util.ArrayList()
    for name, partitions in PARTITIONS.items():
        replicas = java.java.lang.Short.parseShort("1")
        topics.add(java.org.apache.kafka.clients.admin.NewTopic(name, partitions, replicas))
    admin.createTopics(topics).all().get()
    admin.close()


def send(spark: SparkSession, broker: Broker, topic: str, messages: Sequence[Message]) -> None:
    """Send messages with a header each."""
    rows = [(each.key, each.value, each.partition, [("source", b"test")]) for each in messages]
    columns = "key string, value string, partition int, headers array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    frame.write.format("kafka").options(**options_of(broker, topic)).option("topic", topic).save()


def options_of(broker: Broker, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.address,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }


def write_job(broker: Broker, folder: Path) -> str:
    """Return a job file that diverts what it cannot read of orders, and skips what it cannot read of trades."""
    lines = [f'sql = "{QUERY}"', 'engine = "spark"', 'checkpoint = "checkpoint"', 'out = "out"']
    for name, on_error in (("orders", 'on_error = "divert"\ndiverted = "diverted"'), ("trades", 'on_error = "skip"')):
        options = ", ".join(f'"{key}" = "{value}"' for key, value in options_of(broker, name).items())
        schema = ", ".join(f'{column} = "{kind}"' for column, kind in SCHEMA.items())
        lines += [f"[streams.{name}]", 'format = "kafka"', f"options = {{ {options} }}", 'value = "json"']
        lines += [f"schema = {{ {schema} }}", 'time = "ts"', 'lateness = "4 seconds"', on_error]
    return "\n".join(lines)


def run_job(folder: Path) -> dict[str, Any]:
    ran = CliRunner().invoke(cli.app, ["run", "--config", str(folder / "job.toml")])
    assert ran.exit_code == 0, ran.output
    rows = pq.read_table(folder / "out").to_pylist()
    return {"rows": sorted([row["o"], row["t"]] for row in rows), "said": ran.stderr}


def read_topic(spark: SparkSession, broker: Broker, topic: str, on_error: str) -> wm.Stream:
    frame = wm.read_messages(
        topic,
        "kafka",
        options=options_of(broker, topic),
        schema=SCHEMA,
        value="json",
        time="ts",
        on_error=on_error,
        session=spark,
    )
    return wm.stream(frame, time="ts", lateness="1 day")


def run_while_broker_restarts(spark: SparkSession, broker: Broker) -> dict[str, Any]:
    """Stop and start the broker while a query reads from it."""
    streams = {name: read_topic(spark, broker, name, "skip") for name in ("orders", "trades")}
    with wm.start(QUERY, streams, to="pairs", format="memory") as running:
        running.spark_query.processAllAvailable()
        broker.stop()
        broker.start()
        for topic in streams:
            send(spark, broker, topic, to_messages(topic, THIRD))
        running.spark_query.processAllAvailable()
        rows = spark.table("pairs").collect()
    return {
        "rows": sorted([row.o, row.t] for row in rows),
        "messages": {name: [each.unreadable, each.empty] for name, each in running.messages.items()},
        "arrived": {name: each.arrived for name, each in running.ledger.items()},
    }


def stop_at_poison(spark: SparkSession, broker: Broker) -> str:
    streams = {name: read_topic(spark, broker, name, "stop") for name in ("orders", "trades")}
    try:
        wm.start(QUERY, streams, format="noop").await_termination()
    except wm.WatersmeetError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def read_raw_messages(spark: SparkSession, broker: Broker, folder: Path) -> list[list[Any]]:
    """Read messages as they are, with the broker's time."""
    send(spark, broker, "raw", [Message("first", 0, "a"), Message(None, 0, "b")])
    frame = spark.readStream.format("kafka").options(**options_of(broker, "raw")).load()
    out = folder / "raw"
    started = wm.start(
        RAW_QUERY,
        {"raw": wm.stream(frame, time="timestamp")},
        to=out / "rows",
        checkpoint=out / "checkpoint",
        trigger="availableNow",
    )
    started.await_termination()
    return [
        [
            row.key.decode(),
            row.value and row.value.decode(),
            [each.key for each in row.headers],
            row.partition,
            row.offset,
        ]
        for row in spark.read.parquet(str(out / "rows")).orderBy("offset").collect()
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
