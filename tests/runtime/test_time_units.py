"""Integer event times count in the unit that the stream declares; an undeclared but likely unit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.algebra.windows import MAX_TIME_US
from watersmeet.cli import main as cli

NOW_S = 1_700_000_000
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
QUERY = "SELECT a.ts, b.ts AS other FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS]"
#: Seconds after `NOW_S`, and the pairs at most two seconds apart.
LEFT, RIGHT = (0, 5, 60), (2, 8, 59)
PAIRS = [(0, 2), (60, 59)]


def times(seconds: tuple[int, ...], unit: str) -> list[int]:
    return [(NOW_S + each) * PER_SECOND[unit] for each in seconds]


def join_streams(left: str, right: str) -> list[tuple[int, int]]:
    """The pairs of a join whose sides declare these units."""
    streams = {
        "a": wm.stream(pa.table({"ts": times(LEFT, left)}), time="ts", unit=left),
        "b": wm.stream(pa.table({"ts": times(RIGHT, right)}), time="ts", unit=right),
    }
    found = wm.collect(QUERY, streams)
    return pairs_of(found)


@pytest.mark.parametrize("left", PER_SECOND)
@pytest.mark.parametrize("right", PER_SECOND)
def test_streams_of_any_units_are_joined_by_the_same_clock_and_keep_their_own_values(left: str, right: str) -> None:
    expected = [((NOW_S + a) * PER_SECOND[left], (NOW_S + b) * PER_SECOND[right]) for a, b in PAIRS]
    assert join_streams(left, right) == expected


@pytest.mark.parametrize("spelling", ["µs", "μs", "us"])
def test_microseconds_have_several_spellings(spelling: str) -> None:
    assert wm.stream(pa.table({"ts": [1]}), time="ts", unit=spelling).unit == "us"


@pytest.mark.parametrize("unit", ["S", "minutes", "", 5, "m"])
def test_an_unknown_unit_is_refused_with_those_that_exist(unit: Any) -> None:
    with pytest.raises(wm.WatersmeetError, match=r"is not a unit of time\s+units of integer times: s, ms, us, ns"):
        wm.stream(pa.table({"ts": [1]}), time="ts", unit=unit)


def test_a_unit_for_a_timestamp_is_refused() -> None:
    table = pa.table({"ts": pa.array([1], pa.timestamp("ms"))})
    with pytest.raises(wm.WatersmeetError, match="has a unit of its own"):
        wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(table, time="ts", unit="ms")})


@pytest.mark.parametrize(("unit", "word"), [("s", "seconds"), ("ms", "milliseconds"), ("ns", "nanoseconds")])
@pytest.mark.parametrize("plan", [None, wm.plan("eager-nlj")])
def test_times_that_are_plausible_only_in_another_unit_are_refused_with_that_unit(
    unit: str, word: str, plan: Any
) -> None:
    streams = {
        "a": wm.stream(pa.table({"ts": times(LEFT, unit)}), time="ts"),
        "b": wm.stream(pa.table({"ts": [5]}), time="ts"),
    }
    with pytest.raises(
        wm.WatersmeetError, match=f'column "ts" of stream "a" has integers that look like {word}'
    ) as caught:
        wm.collect(QUERY, streams, plan=plan)
    assert f'unit="{unit}"' in str(caught.value)


def test_explain_refuses_a_likely_unit_as_well() -> None:
    with pytest.raises(wm.WatersmeetError, match='unit="s"'):
        wm.explain("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(pa.table({"ts": times(LEFT, "s")}), time="ts")})


@pytest.mark.parametrize(
    "values",
    [
        [0, NOW_S],  # one value is not plausible in seconds
        [631_151_999],  # the end of 1989 in seconds
        [4_102_444_801],  # after the first second of 2100
        [NOW_S * 10**6],
        [],
        [5, 9],
    ],
)
def test_other_integers_are_microseconds(values: list[int]) -> None:
    table = pa.table({"ts": pa.array(values, pa.int64())})
    assert wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(table, time="ts")})["ts"].to_pylist() == values


def test_a_declared_unit_disables_the_check() -> None:
    table = pa.table({"ts": times(LEFT, "s")})
    assert wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(table, time="ts", unit="us")}).num_rows == 3


def test_the_first_batch_with_rows_is_checked_and_later_ones_are_not() -> None:
    #  µs since 1970: the stream starts at 0 and passes numbers that would be seconds of this century
    seconds = [pa.table({"ts": pa.array(each, pa.int64())}) for each in ([], times(LEFT, "s"))]
    with pytest.raises(wm.WatersmeetError, match="look like seconds"):
        wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(seconds, time="ts")})
    growing = [pa.table({"ts": pa.array(each, pa.int64())}) for each in ([0, 1], times(LEFT, "s"))]
    assert wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(growing, time="ts")}).num_rows == 5


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_time_that_overflows_its_conversion_is_refused_by_name(unit: str) -> None:
    furthest = MAX_TIME_US * PER_SECOND[unit] // PER_SECOND["us"]
    fits = pa.table({"ts": [furthest]})
    assert wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(fits, time="ts", unit=unit)})[
        "ts"
    ].to_pylist() == [furthest]
    with pytest.raises(
        wm.WatersmeetError, match=r'row 2 of stream "a" has a time out of range: "ts" is \d+ (milli)?seconds since 1970'
    ):
        wm.collect("SELECT ts FROM a [LANDMARK]", {"a": wm.stream(pa.table({"ts": [0, 2**62]}), time="ts", unit=unit)})


def test_nanoseconds_before_1970_round_down() -> None:
    #  a at −1 ns is −1 µs, b at 1000 ns is 1 µs: two microseconds apart
    query = "SELECT a.ts FROM a [RANGE 1 MICROSECOND], b [RANGE 1 MICROSECOND]"
    streams = {name: wm.stream(pa.table({"ts": [ts]}), time="ts", unit="ns") for name, ts in (("a", -1), ("b", 1_000))}
    assert wm.collect(query, streams).num_rows == 0


# --- command line and job files ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seconds in (("a", LEFT), ("b", RIGHT)):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"ts": times(seconds, "ms")}), tmp_path / name / "1.parquet")
    (tmp_path / "query.sql").write_text(QUERY)
    return tmp_path


def run_command(folder: Path, *options: str) -> Any:
    return CliRunner().invoke(
        cli.app, ["run", str(folder / "query.sql"), "--out", str(folder / "rows.parquet"), *options]
    )


def pairs_in(file: Path) -> list[tuple[int, int]]:
    return pairs_of(pq.read_table(file))


def pairs_of(rows: pa.Table) -> list[tuple[int, int]]:
    times, others = (cast("list[int]", rows[name].to_pylist()) for name in ("ts", "other"))
    return sorted(zip(times, others, strict=True))


WANTED_MS = [((NOW_S + a) * 1_000, (NOW_S + b) * 1_000) for a, b in PAIRS]


def test_the_command_line_takes_the_unit_of_a_stream(folder: Path) -> None:
    result = run_command(
        folder,
        "--stream",
        f"a={folder / 'a'},time=ts,unit=ms",
        "--stream",
        f"b={folder / 'b'},time=ts,lateness=1s,unit=ms",
    )
    assert result.exit_code == 0, result.output
    assert pairs_in(folder / "rows.parquet") == WANTED_MS


def test_the_command_line_asks_for_the_unit(folder: Path) -> None:
    result = run_command(
        folder, "--stream", f"a={folder / 'a'},time=ts", "--stream", f"b={folder / 'b'},time=ts,unit=ms"
    )
    assert result.exit_code != 0
    assert "look like milliseconds" in result.output


def test_a_job_file_takes_the_unit_of_a_stream(folder: Path) -> None:
    streams = "".join(f'[streams.{name}]\npath = "{name}"\ntime = "ts"\nunit = "ms"\n' for name in "ab")
    (folder / "job.toml").write_text(f'query = "query.sql"\nout = "rows.parquet"\n{streams}')
    result = CliRunner().invoke(cli.app, ["run", "--config", str(folder / "job.toml")])
    assert result.exit_code == 0, result.output
    assert pairs_in(folder / "rows.parquet") == WANTED_MS


def test_a_checkpoint_belongs_to_one_unit(folder: Path) -> None:
    def run(unit: str) -> Any:
        streams = [part for name in "ab" for part in ("--stream", f"{name}={folder / name},time=ts,unit={unit}")]
        options = [*streams, "--checkpoint", str(folder / "checkpoint"), "--out", str(folder / "out")]
        return CliRunner().invoke(cli.app, ["run", str(folder / "query.sql"), *options])

    assert run("ms").exit_code == 0
    assert run("ms").exit_code == 0
    assert run("us").exit_code != 0
