"""A Spark cluster on this machine: a master and two workers as separate processes, on the loopback interface only."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from ..faults.kills import list_children, read_command_line, wait_before_next_poll
from ..sessions import QUICK_TO_START

HOME = Path(pyspark.__file__).parent
WORKERS = 2
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass(frozen=True)
class Cluster:
    """URL of the master, and the processes that start executors."""

    url: str
    workers: tuple[int, ...]

    @property
    def executors(self) -> list[int]:
        return [
            pid
            for worker in self.workers
            for pid in list_children(worker)
            if "CoarseGrainedExecutorBackend" in read_command_line(pid)
        ]


@contextmanager
def run_standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster within the context; its files are in the folder."""
    with ExitStack() as running:
        master = running.enter_context(_daemon(folder, "master.Master", "--port", "0"))
        url = _wait_for_log(master, _MASTER_URL)
        resources = ("--cores", "1", "--memory", "1g")
        workers = [
            running.enter_context(_daemon(folder / str(n), "worker.Worker", *resources, url)) for n in range(WORKERS)
        ]
        for worker in workers:
            _wait_for_log(worker, re.compile("(Successfully registered with master)"))
        yield Cluster(url, tuple(worker.process.pid for worker in workers))


@dataclass(frozen=True)
class _Daemon:
    process: subprocess.Popen[str]
    log: Path


@contextmanager
def _daemon(folder: Path, kind: str, *arguments: str) -> Iterator[_Daemon]:
    folder.mkdir(exist_ok=True)
    log = folder / f"{kind}.log"
    places = {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder), "SPARK_HOME": str(HOME)}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [
                HOME / "bin" / "spark-class",
                f"org.apache.spark.deploy.{kind}",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                *arguments,
            ],
            env=os.environ | places | {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_TO_START},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )
    try:
        yield _Daemon(process, log)
    finally:
        process.terminate()
        process.wait()


def _wait_for_log(daemon: _Daemon, pattern: re.Pattern[str]) -> str:
    """Wait until the daemon's log contains the pattern; return the match of its first group."""
    while daemon.process.poll() is None:
        match = pattern.search(daemon.log.read_text(errors="replace"))
        if match is not None:
            return match[1]
        wait_before_next_poll()
    raise AssertionError(daemon.log.read_text(errors="replace")[-4000:])
