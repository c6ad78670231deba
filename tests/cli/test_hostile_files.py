"""Paths and files that no honest user writes: each is refused at once, in one short paragraph."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.cli.test_usage_errors import run_failing, stream_options
from watersmeet.algebra.arrow_types import null_array
from watersmeet.calibration.profiles import load_profile, profile_path
from watersmeet.cli import main as cli
from watersmeet.cli.jobfile import read_job_file
from watersmeet.errors import InputError, InternalError
from watersmeet.files import MAX_KEY_PARTS, MAX_TEXT_BYTES, read_text_file, refuse_long_keys
from watersmeet.sources.files import MAX_NESTING
from watersmeet.sources.times import parse_duration_us
from watersmeet.stats.stream_stats import read_stats


def make_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


NOT_FILES: dict[str, Callable[[Path], Path]] = {
    "a named pipe": lambda folder: make_pipe(folder / "pipe.csv"),
    "a link to a named pipe": lambda folder: _link(folder / "link.csv", make_pipe(folder / "pipe")),
    "an endless device": lambda folder: Path("/dev/zero"),
    "a directory": lambda folder: _make_directory(folder / "folder.sql"),
    "a loop of links": lambda folder: _link(folder / "loop.csv", folder / "loop.csv"),
    "a name that is too long": lambda folder: folder / ("x" * 5_000),
}


def growing(folder: Path, reading: str) -> list[str]:
    return ["--checkpoint", str(folder / "ckpt")] if reading == "file by file" else []


def _link(path: Path, target: Path) -> Path:
    path.symlink_to(target)
    return path


def _make_directory(path: Path) -> Path:
    path.mkdir()
    return path


# --- files that are not files


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_a_regular_file_is_read_as_a_query(files: Path, kind: str) -> None:
    words = run_failing("run", NOT_FILES[kind](files), *stream_options(files))
    assert "query file" in words


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_a_regular_file_is_read_as_a_job(tmp_path: Path, kind: str) -> None:
    assert "job file" in run_failing("run", "--config", NOT_FILES[kind](tmp_path))


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_a_regular_file_is_read_as_statistics(files: Path, kind: str) -> None:
    assert "statistics file" in run_failing("explain", files / "query.sql", "--stats", NOT_FILES[kind](files))


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_a_regular_file_is_read_as_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile_path().parent.mkdir()
    if kind != "a name that is too long":
        profile_path().symlink_to(NOT_FILES[kind](tmp_path))
        with pytest.raises(InputError, match="the saved profile"):
            load_profile()


@pytest.mark.parametrize("reading", ["whole", "file by file"])
@pytest.mark.parametrize("kind", [kind for kind in NOT_FILES if kind != "a directory"])
def test_only_a_file_or_a_directory_is_read_as_a_stream(files: Path, kind: str, reading: str) -> None:
    path = NOT_FILES[kind](files)
    words = run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{path},time=ts"), *growing(files, reading)
    )
    assert str(path)[:60] in words


def test_a_missing_profile_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_profile() is None


def test_a_file_without_a_size_is_read_up_to_the_limit() -> None:
    assert read_text_file(Path("/proc/self/status"), "status").startswith("Name:")
    with pytest.raises(InputError, match="too large; at most 1e-05 MB are read"):
        read_text_file(Path("/proc/self/status"), "status", max_bytes=10)


# --- text that is too much


def test_a_text_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    with path.open("wb") as opened:
        opened.truncate(10**12)  # a sparse file: reading it would exhaust memory
    assert "is 1,000,000.0 MB large; at most 1 MB are read" in run_failing("run", "--config", path)


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 20_000) + " = 1",
        "[" + ".".join("a" * 20_000) + "]",
        "x = {" + ".".join("a" * 20_000) + " = 1}",
        '"quoted.part"' + " . a" * 20_000 + " = 1",
        "x = {" * 5 + ".".join("a" * 40) + " = 1" + "}" * 5,
    ],
)
def test_a_key_of_many_parts_is_refused_before_it_is_parsed(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(InputError, match=f"parts; at most {MAX_KEY_PARTS} are read"):
        read_job_file(tmp_path / "job.toml")
    with pytest.raises(InputError, match=f"parts; at most {MAX_KEY_PARTS} are read"):
        read_stats(tmp_path / "job.toml")


@pytest.mark.parametrize("dots", ['"{}"', "'{}'", '"""{}"""', "'''{}'''", '"\\"{}"', "1 # {}", '"""\\"""{}"""'])
def test_points_inside_strings_and_comments_are_no_parts_of_keys(dots: str) -> None:
    refuse_long_keys("a = " + dots.format("." * 1_000), "job.toml")


@pytest.mark.parametrize("piece", ['"""\\', "'''", '"""', '"\\', "'", '\\"""', "[[[", "a.b.", "#"])
def test_the_scan_of_keys_takes_linear_time(piece: str) -> None:
    """A scan that starts over at each piece would take hours for this."""
    with suppress(InputError):
        refuse_long_keys(piece * (MAX_TEXT_BYTES // len(piece)), "job.toml")


def test_sections_nested_too_deep_are_refused(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("spark." + "x.y = {" * 40 + "}" * 40)
    with pytest.raises(InputError, match="more than 64 deep"):
        read_job_file(tmp_path / "job.toml")


@pytest.mark.parametrize(
    "setting", ["budget.processors", "budget.headroom", "budget.memory", "spark.x", "streams.a.lateness"]
)
@pytest.mark.parametrize("digits", [20, 4_000])
def test_integers_beyond_64_bits_are_refused(tmp_path: Path, setting: str, digits: int) -> None:
    (tmp_path / "job.toml").write_text(f"{setting} = 0x{'f' * digits}")
    assert "has an integer beyond 64 bits" in run_failing("run", "--config", tmp_path / "job.toml")


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_duration_of_hundreds_of_digits_is_too_long(digits: int) -> None:
    with pytest.raises(InputError, match="too long"):
        parse_duration_us(10**digits)


# --- messages stay short


@pytest.mark.parametrize("depth", [MAX_NESTING, 5_000, 50_000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a": ', "}"), ("[", "]")])
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".jsonl.gz"])
def test_json_nested_too_deep_is_refused_before_arrow_reads_it(
    tmp_path: Path, opening: str, closing: str, depth: int, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    row = '{"ts": 1, "k": 1, "t": "]}"}\n' + '{"ts": 1, "k": ' + opening * depth + "1" + closing * depth + "}\n"
    path.write_bytes(gzip.compress(row.encode()) if suffix.endswith(".gz") else row.encode())
    with pytest.raises(InputError, match="more than 64 deep") as caught:
        _ = wm.stream(path, time="ts").schema
    assert str(path) in str(caught.value)


def test_brackets_inside_strings_nest_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "k": "' + "[{" * 500 + '\\"["}\n{"ts": 2, "k": "' + "]" * 500 + '"}\n')
    assert wm.stream(tmp_path / "a.jsonl", time="ts").schema.names == ["ts", "k"]


def test_a_type_that_is_nested_deep_gets_a_short_message() -> None:
    kind: pa.DataType = pa.int64()
    for _ in range(500):
        kind = pa.struct([("inner", kind)])
    nested = wm.stream(pa.table({"ts": [1], "k": null_array(1, kind)}), time="ts")
    plain = wm.stream(pa.table({"ts": [1], "k": [1]}), time="ts")
    with pytest.raises(wm.WatersmeetError, match="characters omitted") as caught:
        wm.collect("SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k", {"a": nested, "b": plain})
    assert len(str(caught.value)) < 1_500


def test_every_message_and_hint_is_bounded() -> None:
    error = InputError("m" * 10**6, hint="h" * 10**6)
    assert len(str(error)) < 2_500
    assert len(str(InternalError("m" * 10**6))) < 1_500


# --- columns

TWICE = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["ts", "ts", "k"])


@pytest.mark.parametrize("reading", ["whole", "file by file"])
@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.jsonl", "d.parquet"])
def test_two_columns_of_one_name_are_refused_with_the_file(files: Path, name: str, reading: str) -> None:
    path = files / name
    if path.suffix == ".parquet":
        pq.write_table(TWICE, path)
    else:
        content = {".csv": "ts,ts,k\n1,2,3\n", ".tsv": "ts\tts\tk\n1\t2\t3\n", ".jsonl": '{"ts": 1, "ts": 2, "k": 3}\n'}
        path.write_text(content[path.suffix])
    words = run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{path},time=ts"), *growing(files, reading)
    )
    assert str(path) in words
    assert '2 columns named "ts"' in words or "specified twice" in words


def test_two_columns_of_one_name_are_refused_in_tables_and_frames() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["ts", "ts", "k"])
    for source in (TWICE, TWICE.to_batches()[0], [TWICE], frame):
        with pytest.raises(InputError, match='2 columns named "ts"'):
            _ = wm.stream(source, time="ts").schema


# --- options

HUGE = "9" * 20


@pytest.mark.parametrize(
    "option",
    [
        ("--limit", HUGE),
        ("--limit", "-1"),
        ("--limit", "nan"),
        ("--port", HUGE),
        ("--port", "-1"),
        ("--port", "65536"),
        ("--processors", "many"),
    ],
)
def test_a_number_that_an_option_cannot_be_is_a_mistake_of_usage(files: Path, option: tuple[str, str]) -> None:
    result = CliRunner().invoke(cli.app, ["run", str(files / "query.sql"), *stream_options(files), *option])
    assert result.exit_code == 2, result.output
    assert option[0] in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    "option",
    [
        ("--processors", "nan"),
        ("--processors", "-1"),
        ("--processors", "1e-320"),
        ("--headroom", "nan"),
        ("--headroom", "-1"),
        ("--headroom", "1e400"),
        ("--memory", "nan"),
        ("--memory", "-5"),
        ("--memory", HUGE),
        ("--memory", "0"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(files: Path, option: tuple[str, str]) -> None:
    run_failing("run", files / "query.sql", *stream_options(files), *option)


@pytest.mark.parametrize(
    "option",
    [("--processors", "inf"), ("--processors", "1e300"), ("--memory", "999999999999999TB"), ("--limit", "2147483647")],
)
def test_a_large_number_that_means_something_is_taken(files: Path, option: tuple[str, str]) -> None:
    result = CliRunner().invoke(cli.app, ["run", str(files / "query.sql"), *stream_options(files), "--json", *option])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"k": 1}


@pytest.mark.parametrize("option", ["--out", "--checkpoint"])
def test_an_output_whose_name_is_too_long_is_refused(files: Path, option: str) -> None:
    path = files / ("x" * 300 + ".csv")
    assert "File name too long" in run_failing("run", files / "query.sql", *stream_options(files), option, path)
