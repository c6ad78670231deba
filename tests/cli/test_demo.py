"""The demo runs on real flights, and its check can fail."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli import main as cli
from watersmeet.cli.demo import flights, steps
from watersmeet.cli.demo.flights import (
    AIRPORTS,
    OUTPUT_TIMES,
    QUERY,
    Tables,
    check_busiest_hours,
    count_days,
    filter_hours,
    find_busiest_hour_us,
    load_flights,
    split_into_streams,
    times_us,
)


@pytest.fixture(scope="module")
def departures() -> Tables:
    """Flights of two weeks, a small version of the demo."""
    first = np.datetime64("2013-07-01T00:00", "us").astype(np.int64)
    fortnight_us = 14 * 86_400_000_000
    selected: Tables = {}
    for airport, table in load_flights().items():
        at = times_us(table, "departed")
        selected[airport] = table.filter(pa.array((at >= first) & (at < first + fortnight_us)))
    return selected


def test_flights_are_departures_in_time_order(departures: Tables) -> None:
    assert set(departures) == set(AIRPORTS)
    for table in departures.values():
        at = times_us(table, "departed")
        assert (np.diff(at) >= 0).all()
        assert table.column("departed").null_count == 0


def test_every_departure_is_in_exactly_one_batch(departures: Tables) -> None:
    assert count_days(departures) == 14
    streams = split_into_streams(5, departures)
    for airport, table in departures.items():
        batches = list(streams[airport].batches())
        assert len(batches) == 5
        assert pa.concat_tables(batches).equals(table)


def test_the_check_accepts_the_right_rows_and_refuses_wrong_ones(departures: Tables) -> None:
    rows = wm.collect(QUERY, split_into_streams(14, departures))
    assert check_busiest_hours(rows, departures).holds
    lost = check_busiest_hours(_without_one_of_the_busiest(rows), departures)
    assert (lost.lost, lost.invented) == (1, 0)
    doubled = check_busiest_hours(
        pa.concat_tables([rows, filter_hours(rows, OUTPUT_TIMES, find_busiest_hour_us(rows)).slice(0, 1)]), departures
    )
    assert (doubled.lost, doubled.invented) == (0, 1)


def test_the_demo_exits_with_code_one_if_the_rows_differ(departures: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "load_flights", lambda: departures)
    fine = CliRunner().invoke(cli.app, ["demo", "--engine", "embedded"])
    assert fine.exit_code == 0, fine.output
    assert "The same rows, each exactly once." in fine.output
    assert "before the join gives the same rows" in fine.output
    assert "the ledger adds up exactly" in fine.output
    monkeypatch.setattr(flights, "_join_by_loops", lambda *_: [])
    broken = CliRunner().invoke(cli.app, ["demo", "--engine", "embedded"])
    assert broken.exit_code == 1
    assert "They differ" in broken.output


def test_without_java_the_demo_runs_in_this_process(departures: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "load_flights", lambda: departures)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    shown = CliRunner().invoke(cli.app, ["demo"])
    assert shown.exit_code == 0, shown.output
    assert 'JAVA_HOME is "/nowhere", and there is no bin/java in it, so the demo runs in this process.' in shown.output
    assert "predicted" in shown.output
    assert "measured" in shown.output


def _without_one_of_the_busiest(rows: pa.Table) -> pa.Table:
    at = times_us(rows, "from_ewr")
    since = find_busiest_hour_us(rows)
    inside = filter_hours(rows, OUTPUT_TIMES, since).slice(0, 1).to_pylist()[0]
    number = next(n for n in np.flatnonzero(at >= since).tolist() if rows.slice(n, 1).to_pylist()[0] == inside)
    return pa.concat_tables([rows.slice(0, number), rows.slice(number + 1)])
