"""Streams that Spark's own readers read, by format and options: sockets, generators, files, and a missing connector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli import main as cli
from watersmeet.cli.jobfile import read_job_file
from watersmeet.metrics import MessageLedger
from watersmeet.runtime.spark.formats import FormatSource

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


def run_command(path: Path, *more: object) -> Any:
    result = CliRunner().invoke(
        cli.app, ["run", *map(str, more), "--checkpoint", str(path / "ckpt"), "--out", str(path / "out")]
    )
    assert "Traceback" not in result.output
    return result


def values_of(path: Path, column: str) -> list[Any]:
    return pq.read_table(path, columns=[column]).column(column).to_pylist()


def test_files_of_a_format_with_a_declared_schema(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rows = [{"k": key, "ts": f"2026-01-01T00:00:0{key}Z"} for key in range(5)]
        (tmp_path / name / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "job.toml").write_text(
        f'''
        sql = "{QUERY}"
        engine = "spark"
        [streams.a]
        format = "json"
        options = {{ path = "{tmp_path}/a" }}
        schema = {{ k = "long", ts = "timestamp" }}
        time = "ts"
        [streams.b]
        path = "b"
        time = "ts"
        '''
    )
    result = run_command(tmp_path, "--config", tmp_path / "job.toml")
    assert result.exit_code == 0, result.output
    assert sorted(values_of(tmp_path / "out", "k")) == list(range(5))


def test_a_generator_of_rows(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(
        "SELECT a.value FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.value = b.value AND a.value < 20"
    )
    rate = "format=rate-micro-batch,rowsPerBatch=50,startTimestamp=1700000000000,time=timestamp"
    result = run_command(
        tmp_path, tmp_path / "query.sql", "--engine", "spark", "--stream", f"a={rate}", "--stream", f"b={rate}"
    )
    assert result.exit_code == 0, result.output
    assert sorted(values_of(tmp_path / "out", "value")) == list(range(20))


def test_json_messages_become_their_columns(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    (tmp_path / "messages").mkdir()
    messages = [json.dumps({"k": key, "ts": "2026-01-01T00:00:01Z", "more": "is left out"}) for key in range(7)]
    (tmp_path / "messages" / "first.txt").write_text("\n".join(messages))
    declaration = f"format=text,path={tmp_path}/messages,value=json,schema=k:long;ts:timestamp,time=ts"
    options = (
        tmp_path / "query.sql",
        "--engine",
        "spark",
        "--stream",
        f"a={declaration}",
        "--stream",
        f"b={declaration}",
    )
    result = run_command(tmp_path, *options)
    assert result.exit_code == 0, result.output
    assert sorted(values_of(tmp_path / "out", "k")) == list(range(7))
    (tmp_path / "messages" / "second.txt").write_text("this is no JSON\n")
    damaged = run_command(tmp_path, *options)
    assert damaged.exit_code == 1
    assert "a message cannot be read: it is not JSON of the declared columns" in damaged.stderr
    assert 'on_error = "skip" or "divert"' in damaged.stderr


def test_messages_that_cannot_be_read_are_skipped_or_diverted_and_counted(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "messages").mkdir()
    good = [json.dumps({"k": key, "ts": f"2026-01-01T00:00:0{key}Z"}) for key in range(7)]
    bad = ["this is no JSON", '{"k": "many", "ts": "2026-01-01T00:00:01Z"}', '{"k": 8}']
    (tmp_path / "messages" / "first.txt").write_text("\n".join([*good, *bad]))
    declared: dict[str, Any] = {
        "options": {"path": str(tmp_path / "messages")},
        "columns": {"k": "long", "ts": "timestamp"},
        "value": "json",
        "time": "ts",
    }
    skipped = FormatSource("text", **declared, stream="a", on_error="skip")
    diverted = FormatSource("text", **declared, stream="b", on_error="divert", diverted=str(tmp_path / "diverted"))
    streams = {each.stream: wm.stream(each.rows(spark), time="ts") for each in (skipped, diverted)}
    to: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "ckpt", "trigger": "availableNow"}
    running = wm.start("SELECT a.k FROM a [RANGE 0 SECONDS], b [RANGE 0 SECONDS] WHERE a.k = b.k", streams, **to)
    running.await_termination()
    assert sorted(values_of(tmp_path / "out", "k")) == list(range(7))
    assert running.messages == {name: MessageLedger(unreadable=3, empty=0) for name in "ab"}
    assert running.ledger == {name: wm.Ledger(arrived=7, kept=7, shed=0, late=0) for name in "ab"}
    found = pq.read_table(tmp_path / "diverted" / "b").to_pylist()
    reason = "it is not JSON of the declared columns"
    assert [each["value"] for each in found] == bad
    assert [each["reason"] for each in found] == [reason, reason, 'it has no time in "ts"']


def test_the_job_file_of_the_documentation_is_understood(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    (tmp_path / "job.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    job = read_job_file(tmp_path / "job.toml")
    assert job.streams["orders"]["options"]["kafka.bootstrap.servers"] == "localhost:9092"
    assert list(job.spark) == ["spark.jars.packages"]
    assert FormatSource("kafka", columns=job.streams["orders"]["schema"]).schema.names == ["item", "price", "ts"]


def test_kafka_without_its_connector_is_refused_in_one_paragraph(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    declaration = (
        "format=kafka,kafka.bootstrap.servers=127.0.0.1:1,127.0.0.1:2,subscribe=x,"
        "value=json,schema=k:long;ts:timestamp,time=ts"
    )
    result = run_command(
        tmp_path,
        tmp_path / "query.sql",
        "--engine",
        "spark",
        "--stream",
        f"a={declaration}",
        "--stream",
        f"b={declaration}",
    )
    assert result.exit_code == 1
    assert 'Spark has no source "kafka"' in result.stderr
    assert 'jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:' in result.stderr
    assert len(result.stderr) < 700


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("format=nosuch,time=ts", "kafka, rate, socket"),
        ("format=rate,rowsPerSecond=many,time=timestamp", "with these options"),
        ("format=json,path=.,schema=k:longer,time=ts", "kinds: string"),
        ("format=socket,host=h,port=1,value=json,time=ts", "needs its columns declared"),
        ("format=socket,host=h,port=1,value=json,schema=k:long,on_error=drop,time=ts", 'not "drop"'),
        ("format=socket,host=h,port=1,value=json,schema=k:long,on_error=divert,time=ts", "need a directory"),
        ("format=socket,host=h,port=1,on_error=skip,time=ts", "for messages that are decoded"),
        ("format=socket,host=h,port=1,value=xml,schema=k:long,time=ts", 'not as "xml"'),
        ("format=json,path=.,schema=k,time=ts", "schema=item:string"),
        ("format=rate", "has no time column"),
    ],
)
def test_a_bad_declaration_is_refused_with_the_reason(
    tmp_path: Path, spark: SparkSession, declaration: str, message: str
) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    result = run_command(
        tmp_path,
        tmp_path / "query.sql",
        "--engine",
        "spark",
        "--stream",
        f"a={declaration}",
        "--stream",
        f"b={declaration}",
    )
    assert result.exit_code == 1, result.output
    assert message in result.stderr


def test_a_stream_without_an_end_needs_a_checkpoint_and_spark(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text("SELECT a.value FROM a [RANGE 1 SECOND]")
    declaration = ["run", str(tmp_path / "query.sql"), "--stream", "a=format=rate,time=timestamp"]
    on_spark = CliRunner().invoke(cli.app, [*declaration, "--engine", "spark"])
    assert "--checkpoint DIR" in on_spark.stderr
    embedded = CliRunner().invoke(cli.app, declaration)
    assert "--engine spark" in embedded.stderr
    assert (on_spark.exit_code, embedded.exit_code) == (1, 1)
