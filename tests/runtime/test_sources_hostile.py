"""Files, times and durations from outside: every problem is an InputError that names it and its place."""

from __future__ import annotations

import datetime as dt
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.algebra.windows import MAX_TIME_US
from watersmeet.errors import InputError
from watersmeet.sources.declarations import stream
from watersmeet.sources.times import extract_event_times_us, parse_duration_us


def _parquet_bytes(tmp_path: Path) -> bytes:
    pq.write_table(pa.table({"ts": range(10_000)}), tmp_path / "good.bin")
    return (tmp_path / "good.bin").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.parquet", b"", "is empty"),
        ("a.csv", b"", "is empty"),
        ("a.jsonl", b"", "is empty"),
        ("a.parquet", b"PAR1garbagePAR1", "cannot be read"),
        ("a.parquet", b"hello", "cannot be read"),
        ("a.csv", b"k,ts\n1,2\n3\n", "Row #3: Expected 2 columns, got 1"),
        ("a.csv.gz", b"not gzip at all", "cannot be read"),
        ("a.jsonl", b"garbage", "cannot be read"),
        ("a.jsonl", b'{"ts": 1}\n{"ts": "x"}\n', "changed from number to string in row 1"),
        ("a.jsonl", b"1\n2\n", "cannot be read"),
        ("a.json", b"[1, 2]", "contains an element that is not an object"),
        ("a.json", b'[{"ts": 1}', "cannot be read"),
        ("a.json", b'[{"ts": 1}, {"ts": "x"}]', "cannot be read"),
        ("a.json", b"[" * 200_000, "cannot be read"),
        ("a.csv", b"ts\n2020-01-01 00:00:00.5\nsoon\n", "row 2 has a time that cannot be read.*'soon'"),
        ("a.txt", b"ts\n1\n", "has an unknown format"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        _ = stream(tmp_path / name, time="ts").schema
    assert name in str(caught.value)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_parquet_file_is_refused_by_name(tmp_path: Path, kept: float) -> None:
    whole = _parquet_bytes(tmp_path)
    (tmp_path / "cut.parquet").write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(InputError, match=r"cut\.parquet"):
        _ = stream(tmp_path / "cut.parquet", time="ts").schema


@settings(max_examples=200, deadline=None)
@given(
    content=st.binary(min_size=1, max_size=300),
    suffix=st.sampled_from([".csv", ".tsv", ".json", ".jsonl", ".parquet", ".csv.gz"]),
)
def test_random_bytes_are_read_or_refused_but_never_crash(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("hostile") / f"a{suffix}"
    path.write_bytes(content)
    try:
        declared = stream(path, time="ts").to_schema("s")
        extract_event_times_us("s", next(stream(path, time="ts").batches()), declared.time)
    except InputError:
        pass


def test_a_missing_path_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file or directory .*nothing\.csv"):
        stream(tmp_path / "nothing.csv", time="ts")


@pytest.mark.parametrize("path", ["", "  ", "x" * 100_000, "a\0b.csv", "/dev/null"])
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        _ = stream(path, time="ts").schema
    assert len(str(caught.value)) < 1_000


def test_a_directory_without_data_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="has no data files") as caught:
        stream(tmp_path, time="ts")
    assert ".parquet" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts\n1\n")
    (tmp_path / "a.csv").chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        _ = stream(tmp_path / "a.csv", time="ts").schema


def test_files_of_a_directory_that_differ_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,ts\n1,1\n")
    (tmp_path / "b.csv").write_text("k,ts\nx,1\n")
    with pytest.raises(InputError, match=r'b\.csv" differs from "a\.csv": column "k" is string, was int64'):
        _ = stream(tmp_path, time="ts").schema


# --- times ---


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([-1, 1999], pa.timestamp("ns"), [-1, 1]),
        ([-1, 5], pa.timestamp("us", "America/New_York"), [-1, 5]),
        ([-1, 5], pa.timestamp("ms"), [-1_000, 5_000]),
        ([2], pa.timestamp("s", "UTC"), [2_000_000]),
        ([1, -1], pa.date32(), [86_400_000_000, -86_400_000_000]),
        ([86_400_000], pa.date64(), [86_400_000_000]),
        ([7, -7], pa.int64(), [7, -7]),
        ([7], pa.int8(), [7]),
        ([], pa.timestamp("us"), []),
    ],
)
def test_times_of_every_type_become_microseconds(values: list[int], kind: pa.DataType, expected: list[int]) -> None:
    found = extract_event_times_us("s", pa.table({"ts": pa.array(values, kind)}), "ts")
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_a_null_time_is_refused_with_its_row() -> None:
    times = pa.chunked_array([pa.array([1, 2]), pa.array([None, 4], pa.int64())])
    table = pa.Table.from_arrays([times], ["ts"])
    with pytest.raises(InputError, match='row 3 of stream "bids" has no time: column "ts" is null'):
        extract_event_times_us("bids", table, "ts")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(MAX_TIME_US + 1, pa.int64()), (-(2**63), pa.int64()), (2**62, pa.timestamp("s")), (2**31 - 1, pa.date32())],
)
def test_a_time_out_of_range_is_refused_with_its_row(value: int, kind: pa.DataType) -> None:
    with pytest.raises(InputError, match=r"row 2 .* out of range"):
        extract_event_times_us("s", pa.table({"ts": pa.array([0, value], kind)}), "ts")


def test_the_largest_times_are_accepted() -> None:
    assert extract_event_times_us("s", pa.table({"ts": [MAX_TIME_US, -MAX_TIME_US]}), "ts").tolist() == [
        MAX_TIME_US,
        -MAX_TIME_US,
    ]


# --- durations ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5 seconds", 5_000_000),
        ("5s", 5_000_000),
        ("100 ms", 100_000),
        ("1h", 3_600_000_000),
        ("1 HOUR 30 MINUTES", 5_400_000_000),
        ("0.1s", 100_000),
        ("2 days", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("7 µs", 7),
        (0, 0),
        (2, 2_000_000),
        (0.25, 250_000),
        (np.float64(0.5), 500_000),
        (dt.timedelta(milliseconds=3), 3_000),
    ],
)
def test_durations_are_read_as_written(value: Any, expected: int) -> None:
    assert parse_duration_us(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "soon",
        "5",
        "5 parsecs",
        "-5s",
        "5s extra",
        "1e3s",
        "0.5us",
        -1,
        -0.5,
        math.nan,
        math.inf,
        True,
        None,
        [5],
        "9" * 500 + "s",
        1e300,
        dt.timedelta(days=-1),
        "١s",
    ],
)
def test_garbage_durations_are_refused_with_an_example(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration_us(value, "a lateness")
    assert "a lateness" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_garbage_lateness_is_refused_where_the_stream_is_declared() -> None:
    with pytest.raises(InputError, match="'soon' is not a lateness"):
        stream(pa.table({"ts": [1]}), time="ts", lateness="soon")
