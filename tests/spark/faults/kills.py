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
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

JOB = Path(__file__).with_name("job.py")

#: A Java process that lives for seconds is not worth optimising.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: `recovery` is the time in which a batch that was planned, and not committed, is looked for and run again.
PHASES = ("before-offsets", "operator", "recovery", "before-sink", "before-commit")


@dataclass(frozen=True, slots=True)
class Kill:
    """Who dies (the Python `driver`, its `jvm`, a Python `worker`), and when."""

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

    def __init__(self, folder: Path, sink: str, master: str = "local[*,4]") -> None:
        self.folder = folder
        local = folder / "local"
        local.mkdir(exist_ok=True)
        self.said = folder / "job.log"
        with self.said.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, JOB, folder, sink, master],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"SPARK_LOCAL_DIRS": str(local), "JDK_JAVA_OPTIONS": QUICK_TO_START},
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_until_starting(self) -> None:
        assert self.process.stdout is not None
        assert any(line.strip() == "starting" for line in self.process.stdout), self.last_words

    def finish(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0, self.last_words

    @property
    def last_words(self) -> str:
        return self.said.read_text(errors="replace")[-4000:]

    def kill(self, victim: str) -> bool:
        """Whether there was someone to kill."""
        pids = {"driver": [self.process.pid], "jvm": self.jvm, "worker": self.workers[:1]}[victim]
        return self.strike(pids)

    def strike(self, pids: Sequence[int]) -> bool:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    @property
    def jvm(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if "java" in command(pid)]

    @property
    def workers(self) -> list[int]:
        """Python workers, the busiest first. They are the children of a daemon that is a child of the Java process."""
        daemons = [pid for jvm in self.jvm for pid in children(jvm) if "spark.daemon" in command(pid)]
        return sorted((pid for daemon in daemons for pid in children(daemon)), key=cpu_ticks, reverse=True)

    def end(self) -> None:
        """Waits for the driver, which ends by itself when its Java process is gone."""
        self.process.communicate()


def carry_out(kills: Sequence[Kill], folder: Path, sink: str) -> list[Killed]:
    """Starts the job and kills as told, each time in the batch after the last committed one; those whose moment came
    are returned.

    A worker's death is not the job's: its task is tried again and the query goes on, so a kill of the worker may be
    followed by others. Where the last victim is a worker, the job is let go on to its next commit and ended there, to
    keep files for other kills.
    """
    job = Job(folder, sink)
    job.wait_until_starting()
    jvm = job.jvm
    done = [killed for kill in kills if (killed := _struck(job, kill)) is not None]
    if kills[-1].victim == "worker" and reached(job, moment("before-offsets", job, committed(folder) + 1)):
        job.kill("jvm")
    job.end()
    wait_for_the_end_of(jvm)
    return done


def _struck(job: Job, kill: Kill) -> Killed | None:
    if not reached(job, moment(kill.phase, job, committed(job.folder) + 1)):
        return None
    while job.running and not job.kill(kill.victim):  # workers are forked when the first task asks for one
        look_again()
    return Killed(kill, planned(job.folder), committed(job.folder))


def moment(phase: str, job: Job, batch: int) -> Callable[[], bool]:
    """Whether the phase has come, for this batch; before offsets, for the one after it."""
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


def reached(job: Job, has_come: Callable[[], bool]) -> bool:
    while job.running:
        if has_come():
            return True
        look_again()
    return False


def look_again() -> None:
    """The checkpoint is looked at a few hundred times a second; looking all the time would take a core from those who
    write it.
    """
    threading.Event().wait(0.003)


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
        look_again()


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))):
            yield int(entry.name), stat.rpartition(")")[2]


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
