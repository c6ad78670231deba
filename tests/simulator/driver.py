"""The driver of the simulator: a seeded schedule of processes that crash, and the law that every schedule keeps.

A schedule decides how much input arrives before each batch, at which write a process stops, and which plans a host
changes to. A batch whose input was not logged is chosen again, with the input that has arrived meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from random import Random

import pytest

from tests.runtime.damage import SimulatedCrash
from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join import state

from .faults import Crash, Faults, Moment, SimulatedDisk
from .hosts import BucketHost, EmbeddedHost, SimulatedHost
from .scenario import ARRIVALS, QUERIES, Scenario

#: Scenarios per query. Schedules share them, and with them the rows that an uninterrupted run emits.
SCENARIOS = 8
#: Numbers of crashes in a schedule.
CRASHES = (1, 1, 1, 2)
#: Segments of this size are merged in half of the schedules, so that panes have several of them.
SMALL_SEGMENT_ROWS = 4

StartHost = Callable[[Scenario, Path, SimulatedDisk, pytest.MonkeyPatch], SimulatedHost]


def start_embedded(scenario: Scenario, folder: Path, disk: SimulatedDisk, _: pytest.MonkeyPatch) -> SimulatedHost:
    return EmbeddedHost(scenario, folder, disk)


def start_buckets(
    scenario: Scenario, folder: Path, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> SimulatedHost:
    return BucketHost(scenario, folder, disk, monkeypatch)


#: Hosts, with the number of writes among which a process crashes.
HOSTS: dict[str, tuple[StartHost, int]] = {"embedded": (start_embedded, 12), "buckets": (start_buckets, 28)}


@dataclass(frozen=True, slots=True)
class Process:
    """One life of a process: the tables that arrive before each batch, the plans it changes to, and its end."""

    deliveries: tuple[int, ...]
    plans: tuple[int, ...]
    crash: Crash | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything that happens in a simulated run. `seed` also decides which worker runs a task."""

    host: str
    query: int
    seed: int
    segment_rows: int | None
    processes: tuple[Process, ...]


def draw_schedule(host: str, query: int, seed: int) -> Schedule:
    rng, writes = Random(f"{host} {query} {seed}"), HOSTS[host][1]
    crashes = [Crash(rng.randint(1, writes), rng.choice([*Moment])) for _ in range(rng.choice(CRASHES))]
    processes = (
        Process(
            tuple(rng.choice((1, 1, 1, 2)) for _ in range(ARRIVALS)),
            tuple(rng.randrange(12) for _ in range(ARRIVALS)),
            crash,
        )
        for crash in (*crashes, None)
    )
    return Schedule(host, query, seed, SMALL_SEGMENT_ROWS if rng.randrange(2) else None, tuple(processes))


def run_schedule(schedule: Schedule, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a schedule in an empty folder, check the law, and return how often a process crashed."""
    try:
        with monkeypatch.context() as patched:
            return _run_processes(schedule, folder, patched)
    except Exception as error:
        raise AssertionError(f"{error}\n{schedule}") from error


def _run_processes(schedule: Schedule, folder: Path, patched: pytest.MonkeyPatch) -> int:
    scenario, rng = build_scenario(schedule.query, schedule.seed % SCENARIOS), Random(schedule.seed)
    patched.setattr(os, "cpu_count", lambda: 1)  # no threads: runs are too small
    if schedule.segment_rows is not None:
        patched.setattr(state, "SEGMENT_ROWS", schedule.segment_rows)
    disk = SimulatedDisk(Faults(None, rng))
    host = HOSTS[schedule.host][0](scenario, folder, disk, patched)
    disk.mount(patched)
    crashed = 0
    for process in schedule.processes:
        faults = Faults(process.crash, rng)
        with suppress(SimulatedCrash):
            host.run(faults, cycle(process.deliveries), _cycle_plans(schedule, process))
        crashed += process.crash is not None and faults.writes == process.crash.write
    check_law(scenario, host)
    return crashed


def _cycle_plans(schedule: Schedule, process: Process) -> Iterator[Plan]:
    query = QUERIES[schedule.query]
    plans = (*query.plans, *query.shed_rates) if schedule.host == "buckets" else query.plans
    return (plans[number % len(plans)] for number in cycle(process.plans))


@cache
def build_scenario(query: int, seed: int) -> Scenario:
    return Scenario(QUERIES[query], seed)


def check_law(scenario: Scenario, host: SimulatedHost) -> None:
    """Check that every input was read once, and that every batch emitted the rows of an uninterrupted run."""
    output = host.output
    numbers = range(len(output.rows))
    assert sorted(output.rows) == [*numbers], f"rows of batches {sorted(output.rows)} were emitted"
    arrivals = [output.arrivals[number] for number in numbers]
    read = [arrival for each in arrivals for arrival in each]
    assert sorted(read) == [*range(ARRIVALS)], f"the batches read {arrivals}"
    expected = scenario.expect_rows(arrivals, [output.plans[number] for number in numbers])
    for number in numbers:
        assert output.rows[number] == expected[number], f"batch {number} emitted other rows"
