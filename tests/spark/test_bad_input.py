"""Bad data in the middle of a stream: the query stops and says what and where, nothing of the batch stays; repaired, it
goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import watersmeet as wm
from tests.spark.queries import collect_rows, run_available, table_to_rows
from watersmeet.cli import main as cli
from watersmeet.runtime.spark.spark_errors import summarize_error

pytestmark = pytest.mark.xdist_group("spark")

QUERY = "SELECT a.k, b.v FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k AND a.v < 7"
LATER = 1

Damage = Callable[[Path], None]


def rows(number: int) -> pa.Table:
    times = pa.array([number * 1_000_000 + i * 100_000 for i in range(8)], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "k": [i % 3 for i in range(8)], "v": list(range(8))})


def three_files(folder: Path) -> None:
    for name in ("a", "b"):
        for number in range(3):
            put(folder, name, number, rows(number))


def put(folder: Path, name: str, number: int, table: pa.Table) -> Path:
    (folder / name).mkdir(exist_ok=True)
    file = folder / name / f"{number}.parquet"
    pq.write_table(table, file)
    return dated(file, number)


def dated(file: Path, number: int) -> Path:
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes the older file first
    return file


def spoil(damage: Damage, folder: Path) -> None:
    file = folder / "a" / f"{LATER}.parquet"
    damage(file)
    dated(file, LATER)


def without_times(file: Path) -> None:
    table = rows(LATER)
    pq.write_table(
        table.set_column(0, "ts", pa.array([None, *table["ts"].to_pylist()[1:]], table.schema.field("ts").type)), file
    )


def torn(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def of_other_columns(file: Path) -> None:
    pq.write_table(rows(LATER).drop_columns(["k"]), file)


def of_another_type(file: Path) -> None:
    pq.write_table(rows(LATER).set_column(1, "k", pa.array(["x"] * 8)), file)


def of_times_that_are_none(file: Path) -> None:
    pq.write_table(rows(LATER).set_column(0, "ts", pa.array(["noon"] * 8)), file)


#: What is wrong with a file, and what is said of it when Watersmeet reads it.
DAMAGES: list[tuple[Damage, str]] = [
    (without_times, 'row 1 of stream "a" has no time: column "ts" is null'),
    (torn, '1.parquet" cannot be read'),
    (of_other_columns, '1.parquet" has no column k'),
    (of_another_type, '1.parquet" differs from the files the query was made for: column "k" is string, was int64'),
    (of_times_that_are_none, '1.parquet" differs from the files the query was made for: column "ts" is string'),
]


def followed(folder: Path) -> dict[str, Any]:
    return {name: wm.stream(folder / name, time="ts", follow=True, files_per_batch=1) for name in ("a", "b")}


def framed(spark: SparkSession, folder: Path) -> dict[str, Any]:
    frames = {
        name: spark.readStream.schema("ts timestamp, k long, v long").option("maxFilesPerTrigger", 1)
        for name in ("a", "b")
    }
    return {name: wm.stream(frame.parquet(str(folder / name)), time="ts") for name, frame in frames.items()}


def stops_with(said: str, frame: Any, folder: Path) -> None:
    """The first batch is done, the second is stopped by an error, of which nothing is left; the error is told in one
    sentence.
    """
    with pytest.raises(StreamingQueryException) as raised:
        run_available(frame, folder)
    assert said in str(summarize_error(raised.value))
    assert "\n\tat " not in str(summarize_error(raised.value))
    assert [path.name for path in (folder / "checkpoint" / "commits").glob("[0-9]*")] == ["0"]
    assert [path.name for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")] == ["0"]


def wanted() -> Any:
    return table_to_rows(
        wm.collect(QUERY, {name: wm.stream([rows(n) for n in range(3)], time="ts") for name in ("a", "b")})
    )


@pytest.mark.parametrize(("damage", "said"), DAMAGES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bad_file_stops_the_query_until_it_is_repaired(
    spark: SparkSession, tmp_path: Path, damage: Damage, said: str
) -> None:
    three_files(tmp_path)
    sources = followed(tmp_path)
    spoil(damage, tmp_path)
    stops_with(said, wm.on_spark(QUERY, sources, session=spark), tmp_path)
    put(tmp_path, "a", LATER, rows(LATER))
    run_available(wm.on_spark(QUERY, followed(tmp_path), session=spark), tmp_path)
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == wanted()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without_times, 'row 1 of stream "a" has no time: column "ts" is null'),
        (torn, "1.parquet"),
        (of_another_type, "1.parquet"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bad_file_of_a_dataframe_stops_the_query_too(
    spark: SparkSession, tmp_path: Path, damage: Damage, said: str
) -> None:
    three_files(tmp_path)
    spoil(damage, tmp_path)
    stops_with(said, wm.on_spark(QUERY, framed(spark, tmp_path)), tmp_path)
    put(tmp_path, "a", LATER, rows(LATER))
    run_available(wm.on_spark(QUERY, framed(spark, tmp_path)), tmp_path)
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == wanted()


def test_the_command_line_shows_a_sentence_and_no_stack(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path, name, 0, rows(0))
    (tmp_path / "query.sql").write_text(QUERY)
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={tmp_path / name},time=ts")]
    torn(put(tmp_path, "a", LATER, rows(LATER)))
    more = ["--engine", "spark", "--checkpoint", str(tmp_path / "checkpoint"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli.app, ["run", str(tmp_path / "query.sql"), *streams, *more])
    assert result.exit_code == 1
    assert '1.parquet" cannot be read' in result.stderr
    assert "Traceback" not in result.stderr
    assert "py4j" not in result.stderr
    assert len(result.stderr.splitlines()) < 5
