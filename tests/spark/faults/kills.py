"""Kill -9 in a chosen phase of a batch: choose the victim and the phase, and record the state of the checkpoint.

The phases are recognised by the files of the checkpoint, so the killed code needs no hooks:

    offsets/N            state/…/N+1            out/_spark_metadata/N or out/batch-N      commits/N
    |  operator running   |  before the sink     |  after the sink, before the commit      |  before the next offsets
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..sessions import quick_environment

JOB = Path(__file__).with_name("job.py")

#: `recovery` is the phase in which Spark finds a planned, uncommitted batch and runs it again.
PHASES = ("before-offsets", "operator", "recovery", "before-sink", "before-commit")


@dataclass(frozen=True, slots=True)
class Kill:
    """Victim of a kill (the Python `driver`, its `jvm`, or a Python `worker`), and the phase."""

    victim: str
    phase: str


@dataclass(frozen=True, slots=True)
class KillRecord:
    """A kill that was carried out, with the last planned and the last committed batch at that time."""

    kill: Kill
    last_planned_batch: int
    last_committed_batch: int


class JobProcess:
    """Processes of the job: the Python driver, its Java process, and the Python workers of the Java process."""

    def __init__(self, folder: Path, sink: str, master: str = "local[*,4]", query: str = "join") -> None:
        self.folder = folder
        local = folder / "local"
        local.mkdir(exist_ok=True)
        self.log_file = folder / "job.log"
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, JOB, folder, sink, master, query],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=quick_environment() | {"SPARK_LOCAL_DIRS": str(local)},
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_until_starting(self) -> None:
        assert self.process.stdout is not None
        assert any(line.strip() == "starting" for line in self.process.stdout), self.log_tail

    def finish(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0, self.log_tail

    @property
    def log_tail(self) -> str:
        return self.log_file.read_text(errors="replace")[-4000:]

    def kill(self, victim: str) -> bool:
        """Kill a victim; return whether it existed."""
        pids = {"driver": [self.process.pid], "jvm": self.jvm, "worker": self.workers[:1]}[victim]
        return self.strike(pids)

    def strike(self, pids: Sequence[int]) -> bool:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    @property
    def jvm(self) -> list[int]:
        return [pid for pid in list_children(self.process.pid) if "java" in read_command_line(pid)]

    @property
    def workers(self) -> list[int]:
        """Python workers, the busiest first. They are the children of a daemon that is a child of the Java process."""
        daemons = [pid for jvm in self.jvm for pid in list_children(jvm) if "spark.daemon" in read_command_line(pid)]
        return sorted((pid for daemon in daemons for pid in list_children(daemon)), key=cpu_ticks, reverse=True)

    def end(self) -> None:
        """Wait for the driver, which exits when its Java process has ended."""
        self.process.communicate()


def run_with_kills(kills: Sequence[Kill], folder: Path, sink: str) -> list[KillRecord]:
    """Start the job and carry out the kills; return those whose phase was reached.

    Each kill happens in the batch after the last committed one. The job survives the death of a worker: Spark retries
    the task and the query continues, so other kills may follow. If the last victim is a worker, the job runs until its
    next commit and is ended there, to keep files for other kills.
    """
    job = JobProcess(folder, sink)
    job.wait_until_starting()
    jvm = job.jvm
    done = [killed for kill in kills if (killed := _strike_in_phase(job, kill)) is not None]
    if kills[-1].victim == "worker" and wait_for_phase(
        job, phase_check("before-offsets", job, last_committed_batch(folder) + 1)
    ):
        job.kill("jvm")
    job.end()
    wait_for_exit(jvm)
    return done


def _strike_in_phase(job: JobProcess, kill: Kill) -> KillRecord | None:
    if not wait_for_phase(job, phase_check(kill.phase, job, last_committed_batch(job.folder) + 1)):
        return None
    while job.running and not job.kill(kill.victim):  # workers are forked for the first task
        wait_before_next_poll()
    return KillRecord(kill, last_planned_batch(job.folder), last_committed_batch(job.folder))


def phase_check(phase: str, job: JobProcess, batch: int) -> Callable[[], bool]:
    """Return a function that tells whether a batch has reached the phase; `before-offsets` is stat the next batch."""
    checkpoint, out = job.folder / "checkpoint", job.folder / "out"
    sunk = (out / "_spark_metadata" / str(batch), out / f"batch-{batch}")
    return {
        "recovery": lambda: True,
        "before-offsets": (checkpoint / "commits" / str(batch)).exists,
        "planned": (checkpoint / "offsets" / str(batch)).exists,
        "operator": lambda: (checkpoint / "offsets" / str(batch)).exists() and bool(job.workers),
        "before-sink": lambda: any((checkpoint / "state").rglob(f"{batch + 1}.*")),
        "before-commit": lambda: any(path.exists() for path in sunk),
    }[phase]


def wait_for_phase(job: JobProcess, is_reached: Callable[[], bool]) -> bool:
    while job.running:
        if is_reached():
            return True
        wait_before_next_poll()
    return False


def wait_before_next_poll() -> None:
    """Wait a few milliseconds: polling without a pause would take a core from the processes under test."""
    threading.Event().wait(0.003)


def last_planned_batch(folder: Path) -> int:
    return _last(folder / "checkpoint" / "offsets")


def last_committed_batch(folder: Path) -> int:
    return _last(folder / "checkpoint" / "commits")


def _last(log: Path) -> int:
    return max((int(path.name) for path in log.iterdir() if path.name.isdecimal()), default=-1) if log.exists() else -1


def list_children(parent: int) -> list[int]:
    return [pid for pid, stat in _processes() if int(stat.split()[1]) == parent]


def read_command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def wait_for_exit(pids: list[int]) -> None:
    while any(Path(f"/proc/{pid}").exists() and " Z " not in _stat(pid) for pid in pids):
        wait_before_next_poll()


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))):
            yield int(entry.name), stat.rpartition(")")[2]


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
