"""Kill -9 at a chosen moment: who dies, in which phase of a batch, and what of the checkpoint stood on disk then.

The phases are seen in the checkpoint's own files, so that nothing has to be built into what is killed:

    offsets/N            state/…/N+1            out/_spark_metadata/N or out/batch-N      commits/N
    |  operator running   |  before the sink     |  after the sink, before the commit      |  before the next offsets
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

JOB = Path(__file__).with_name("job.py")
VICTIMS = ("driver", "jvm", "worker")
PHASES = ("recovery", "before-offsets", "operator", "before-sink", "before-commit")


@dataclass(frozen=True, slots=True)
class Kill:
    """Who dies, and when."""

    victim: str
    phase: str


@dataclass(frozen=True, slots=True)
class Killed:
    """A kill that was carried out, and the last batch that had offsets, and that was committed, when it was."""

    kill: Kill
    planned: int
    committed: int


class Job:
    """The job as processes: the Python driver, its Java process, and that one's Python workers."""

    def __init__(self, folder: Path, sink: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, JOB, folder, sink], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_until_starting(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "starting":
                return

    def finish(self) -> None:
        _, errors = self.process.communicate()
        assert self.process.returncode == 0, errors[-4000:]

    def kill(self, victim: str) -> bool:
        """Whether there was someone to kill."""
        pids = {"driver": [self.process.pid], "jvm": self.jvm, "worker": self.workers[:1]}[victim]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    @property
    def jvm(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if "java" in command(pid)]

    @property
    def workers(self) -> list[int]:
        """Python workers, the busiest first. They are the children of a daemon that is a child of the Java process."""
        daemons = [pid for jvm in self.jvm for pid in children(jvm) if "pyspark.daemon" in command(pid)]
        return sorted((pid for daemon in daemons for pid in children(daemon)), key=cpu_ticks, reverse=True)

    def end(self) -> None:
        """Waits for the driver, which ends by itself when its Java process is gone."""
        self.process.communicate()


def carry_out(kill: Kill, folder: Path, sink: str) -> Killed | None:
    """Starts the job and kills as told; None when the job ended before the moment came."""
    job = Job(folder, sink)
    job.wait_until_starting()
    jvm = job.jvm
    batch = committed(folder) + 1
    if kill.phase != "recovery" and not _reached(job, moment(kill.phase, folder, batch)):
        job.finish()
        return None
    struck = job.kill(kill.victim)
    seen = Killed(kill, planned(folder), committed(folder))
    if kill.victim == "worker":  # the task is tried again and the query goes on: to its next commit, to keep files for other kills
        _reached(job, moment("before-offsets", folder, batch))
        job.kill("driver")
    job.end()
    wait_for_the_end_of(jvm)
    return seen if struck else None


def moment(phase: str, folder: Path, batch: int) -> Callable[[], bool]:
    """Whether the phase has come, for the first batch after the last committed one (the one after it, before offsets)."""
    checkpoint = folder / "checkpoint"
    sunk = (folder / "out" / "_spark_metadata" / str(batch), folder / "out" / f"batch-{batch}")
    return {
        "before-offsets": (checkpoint / "commits" / str(batch)).exists,
        "operator": (checkpoint / "offsets" / str(batch)).exists,
        "before-sink": lambda: any((checkpoint / "state").rglob(f"{batch + 1}.*")),
        "before-commit": lambda: any(path.exists() for path in sunk),
    }[phase]


def _reached(job: Job, has_come: Callable[[], bool]) -> bool:
    while job.running:
        if has_come():
            return True
    return False


def planned(folder: Path) -> int:
    return _last(folder / "checkpoint" / "offsets")


def committed(folder: Path) -> int:
    return _last(folder / "checkpoint" / "commits")


def _last(log: Path) -> int:
    return max((int(path.name) for path in log.iterdir() if path.name.isdecimal()), default=-1) if log.exists() else -1


def children(parent: int) -> list[int]:
    return [pid for pid, about in _processes() if int(about.split()[1]) == parent]


def command(pid: int) -> str:
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


def wait_for_the_end_of(pids: list[int]) -> None:
    while any(Path(f"/proc/{pid}").exists() and " Z " not in _stat(pid) for pid in pids):
        os.sched_yield()


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))):
            yield int(entry.name), stat.rpartition(")")[2]


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
