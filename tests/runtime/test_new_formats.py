"""A file format is a row of one table: formats that only this file knows are read and written.

`.psv` separates values by bars. Spark does not write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.cli.conftest import QUERY
from watersmeet.cli import main as cli
from watersmeet.errors import InputError
from watersmeet.runtime.spark.execution import StreamSink
from watersmeet.sinks import SINK_FORMATS, PartFileSink, SinkFormat, list_part_files
from watersmeet.sources import feeds
from watersmeet.sources.files import SOURCE_FORMATS, SourceFormat, read_file_in_batches

ROWS = "k|ts\n1|2024-01-01T00:00:00Z\n"


def read_bars(file: Path, columns: list[str] | None) -> pa.Table:
    return pacsv.read_csv(str(file), parse_options=pacsv.ParseOptions(delimiter="|"))


def write_bars(table: pa.Table, path: Path) -> None:
    pacsv.write_csv(table, str(path), pacsv.WriteOptions(delimiter="|", quoting_style="none"))


@pytest.fixture(autouse=True)
def _bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCE_FORMATS, ".psv", SourceFormat(read_bars))
    monkeypatch.setitem(SINK_FORMATS, ".psv", SinkFormat(write_bars, spark_name=None))


def run_cli(directory: Path, *options: object) -> Any:
    streams = [part for name in "ab" for part in ("--stream", f"{name}={directory}/{name}.psv,time=ts")]
    return CliRunner().invoke(cli.app, ["run", QUERY, *streams, *(str(each) for each in options)])


@pytest.fixture
def bars(tmp_path: Path) -> Path:
    for name in "ab":
        (tmp_path / f"{name}.psv").write_text(ROWS)
    return tmp_path


def test_both_hosts_and_directories_read_a_new_format(bars: Path) -> None:
    assert wm.stream(bars / "a.psv", time="ts").schema.names == ["k", "ts"]
    assert pa.types.is_timestamp(wm.stream(bars, time="ts").schema.field("ts").type)
    assert [table.to_pylist() for table in read_file_in_batches(bars / "a.psv", None, ["k"])] == [[{"k": 1}]]


def test_the_command_line_writes_a_new_format_as_a_file_and_as_part_files(bars: Path) -> None:
    finite = run_cli(bars, "--out", bars / "rows.psv")
    assert (finite.exit_code, (bars / "rows.psv").read_text()) == (0, '"k"\n1\n'), finite.output
    for name in "ab":
        (bars / name).mkdir()
        (bars / f"{name}.psv").rename(bars / name / "0.psv")
    streams = [part for name in "ab" for part in ("--stream", f"{name}={bars}/{name},time=ts")]
    options = ["--checkpoint", f"{bars}/ckpt", "--out", f"{bars}/out", "--format", "psv"]
    growing: Any = CliRunner().invoke(cli.app, ["run", QUERY, *streams, *options])
    assert growing.exit_code == 0, growing.output
    parts = [part for each in list_part_files(bars / "out").values() for part in each]
    assert [(part.suffix, part.read_text()) for part in parts] == [(".psv", '"k"\n1\n')]


def test_a_batch_that_runs_again_in_another_format_replaces_the_new_one(tmp_path: Path) -> None:
    for suffix in (".psv", ".csv"):
        PartFileSink(tmp_path, suffix).write_batch(0, pa.table({"k": [1]}))
    assert [part.suffix for part in list_part_files(tmp_path)[0]] == [".csv"]


def test_a_directory_with_files_of_a_new_format_is_not_an_empty_output_directory(
    bars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(SOURCE_FORMATS, ".psv")  # a format that is only written
    for name in "ab":
        (bars / name).mkdir()
        (bars / name / "0.csv").write_text(ROWS.replace("|", ","))
    streams = [part for name in "ab" for part in ("--stream", f"{name}={bars}/{name},time=ts")]
    options = ["--checkpoint", f"{bars}/ckpt", "--out", f"{bars}"]
    refused: Any = CliRunner().invoke(cli.app, ["run", QUERY, *streams, *options])
    assert 'already holds "a.psv"' in refused.stderr


def test_messages_list_a_new_format(bars: Path) -> None:
    assert "jsonl, psv" in run_cli(bars, "--format", "xml").stderr
    assert ".jsonl, .psv" in run_cli(bars, "--out", bars / "rows.xml").stderr
    (bars / "a.xml").write_text("")
    with pytest.raises(InputError) as unknown:
        wm.stream(bars / "a.xml", time="ts")
    assert ".ndjson, .psv" in str(unknown.value)


class RecordingWriter:
    """Stands for Spark's writer: it records the format and the options."""

    def __init__(self) -> None:
        self.chosen = ""
        self.given: dict[str, str] = {}

    def format(self, name: str) -> RecordingWriter:
        self.chosen = name
        return self

    def options(self, **options: str) -> RecordingWriter:
        self.given |= options
        return self


@pytest.mark.parametrize(
    ("name", "options", "chosen", "given"),
    [
        ("parquet", {}, "parquet", {}),
        ("csv", {}, "csv", {"header": "true"}),
        ("csv", {"header": "false", "sep": ";"}, "csv", {"header": "false", "sep": ";"}),
        ("jsonl", {"compression": "gzip"}, "json", {"compression": "gzip"}),
        ("delta", {"mergeSchema": "true"}, "delta", {"mergeSchema": "true"}),
    ],
)
def test_spark_gets_its_own_name_of_a_format_and_the_callers_options(
    name: str, options: dict[str, str], chosen: str, given: dict[str, str]
) -> None:
    writer: Any = RecordingWriter()
    StreamSink("out", name, options, checkpoint="ckpt")._format_writer(writer)
    assert (writer.chosen, writer.given) == (chosen, given)


def test_a_format_that_spark_does_not_write_is_refused_before_the_query_starts() -> None:
    with pytest.raises(InputError, match="Spark does not write psv files") as refused:
        StreamSink("out", "psv", checkpoint="ckpt")
    assert refused.value.hint == "formats: parquet, csv, jsonl"


def test_a_python_object_with_rows_is_a_row_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class TimeSheet:
        times: list[int]

    kind = feeds.TableKind(__name__.split(".")[0], "TimeSheet", lambda sheet: pa.table({"ts": sheet.times}))
    monkeypatch.setattr(feeds, "TABLE_KINDS", (*feeds.TABLE_KINDS, kind))
    source: Any = TimeSheet([3])
    found = wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(source, time="ts")})
    assert found.to_pylist() == [{"ts": 3}]
