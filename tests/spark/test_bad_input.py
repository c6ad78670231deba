"""Bad data in the middle of a stream stops the query.

The error names the file and the problem, and nothing of the batch is emitted. After a repair the query resumes.
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
from tests.cli.progress_lines import remove_progress_lines
from tests.spark.queries import collect_rows, run_available, table_to_rows
from watersmeet.cli import main as cli
from watersmeet.runtime.spark.spark_errors import summarize_error

QUERY = "SELECT a.k, b.v FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k AND a.v < 7"
LATER = 1

Damage = Callable[[Path], None]


def rows(number: int) -> pa.Table:
    times = pa.array([number * 1_000_000 + i * 100_000 for i in range(8)], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "k": [i % 3 for i in range(8)], "v": list(range(8))})


def write_three_files(folder: Path) -> None:
    for name in ("a", "b"):
        for number in range(3):
            write_file(folder, name, number, rows(number))


def write_file(folder: Path, name: str, number: int, table: pa.Table) -> Path:
    (folder / name).mkdir(exist_ok=True)
    file = folder / name / f"{number}.parquet"
    pq.write_table(table, file)
    return set_file_time(file, number)


def set_file_time(file: Path, number: int) -> Path:
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark processes the older file first
    return file


def damage_file(damage: Damage, folder: Path) -> None:
    file = folder / "a" / f"{LATER}.parquet"
    damage(file)
    set_file_time(file, LATER)


def write_null_time(file: Path) -> None:
    table = rows(LATER)
    pq.write_table(
        table.set_column(0, "ts", pa.array([None, *table["ts"].to_pylist()[1:]], table.schema.field("ts").type)), file
    )


def truncate_file(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def write_without_column(file: Path) -> None:
    pq.write_table(rows(LATER).drop_columns(["k"]), file)


def write_other_type(file: Path) -> None:
    pq.write_table(rows(LATER).set_column(1, "k", pa.array(["x"] * 8)), file)


def write_text_as_time(file: Path) -> None:
    pq.write_table(rows(LATER).set_column(0, "ts", pa.array(["noon"] * 8)), file)


#: Damages of a file, and the error that Watersmeet raises when it reads the file.
DAMAGES: list[tuple[Damage, str]] = [
    (write_null_time, 'row 1 of stream "a" has no time: column "ts" is null'),
    (truncate_file, '1.parquet" cannot be read'),
    (write_without_column, '1.parquet" has no column k'),
    (write_other_type, '1.parquet" differs from the files the query was made for: column "k" is string, was int64'),
    (write_text_as_time, '1.parquet" differs from the files the query was made for: column "ts" is string'),
]


def follow_files(folder: Path) -> dict[str, Any]:
    return {name: wm.stream(folder / name, time="ts", follow=True, files_per_batch=1) for name in ("a", "b")}


def read_frames(spark: SparkSession, folder: Path) -> dict[str, Any]:
    frames = {
        name: spark.readStream.schema("ts timestamp, k long, v long").option("maxFilesPerTrigger", 1)
        for name in ("a", "b")
    }
    return {name: wm.stream(frame.parquet(str(folder / name)), time="ts") for name, frame in frames.items()}


def check_stops(message: str, frame: Any, folder: Path) -> None:
    """Check that the first batch is committed, and that the second raises this error and emits nothing."""
    with pytest.raises(StreamingQueryException) as raised:
        run_available(frame, folder)
    assert message in str(summarize_error(raised.value))
    assert "\n\tat " not in str(summarize_error(raised.value))
    assert [path.name for path in (folder / "checkpoint" / "commits").glob("[0-9]*")] == ["0"]
    assert [path.name for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")] == ["0"]


def expected_rows() -> Any:
    return table_to_rows(
        wm.collect(QUERY, {name: wm.stream([rows(n) for n in range(3)], time="ts") for name in ("a", "b")})
    )


#: The same for a file that Spark reads; its own errors name the file.
FRAME_DAMAGES: list[tuple[Damage, str]] = [
    (write_null_time, 'row 1 of stream "a" has no time: column "ts" is null'),
    (truncate_file, "1.parquet"),
    (write_other_type, "1.parquet"),
]


def test_a_bad_file_stops_the_query_until_it_is_repaired(spark: SparkSession, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    sources = follow_files(tmp_path)
    for damage, message in DAMAGES:  # every restart finds another damage in the same file
        damage_file(damage, tmp_path)
        check_stops(message, wm.on_spark(QUERY, sources, session=spark), tmp_path)
        write_file(tmp_path, "a", LATER, rows(LATER))
    run_available(wm.on_spark(QUERY, follow_files(tmp_path), session=spark), tmp_path)
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == expected_rows()


def test_a_bad_file_of_a_dataframe_stops_the_query_too(spark: SparkSession, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    for damage, message in FRAME_DAMAGES:
        damage_file(damage, tmp_path)
        check_stops(message, wm.on_spark(QUERY, read_frames(spark, tmp_path)), tmp_path)
        write_file(tmp_path, "a", LATER, rows(LATER))
    run_available(wm.on_spark(QUERY, read_frames(spark, tmp_path)), tmp_path)
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == expected_rows()


def test_the_command_line_shows_one_sentence_and_no_stack_trace(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_file(tmp_path, name, 0, rows(0))
    (tmp_path / "query.sql").write_text(QUERY)
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={tmp_path / name},time=ts")]
    truncate_file(write_file(tmp_path, "a", LATER, rows(LATER)))
    more = ["--engine", "spark", "--checkpoint", str(tmp_path / "checkpoint"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli.app, ["run", str(tmp_path / "query.sql"), *streams, *more])
    assert result.exit_code == 1
    assert '1.parquet" cannot be read' in result.stderr
    assert "Traceback" not in result.stderr
    assert "py4j" not in result.stderr
    assert len(remove_progress_lines(result.stderr).splitlines()) < 5
