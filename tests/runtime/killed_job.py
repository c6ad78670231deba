"""The embedded job that is killed: `python killed_job.py FOLDER QUERY` joins the files of FOLDER into FOLDER/out.

Each file is one batch. The job prints `started` before its first batch, and ends when all files are read.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import watersmeet as wm
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

_FROM = "FROM a [RANGE 4 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k"
QUERIES = {
    "join": f"SELECT a.id AS left_id, b.id AS right_id {_FROM}",
    "aggregation": f"SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total, MAX(a.v) AS top {_FROM} GROUP BY a.k EVERY 1 SECOND",
    "shedding aggregation": f"SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total {_FROM} GROUP BY a.k EVERY 1 SECOND",
}


@dataclass
class SingleFiles(FileSource):
    """Files of a directory, one per batch."""

    def list_new_files(self) -> list[str]:
        return super().list_new_files()[:1]


def build_job(folder: Path, query: str, source: type[FileSource] = SingleFiles) -> IncrementalJob:
    sources: dict[str, Stream | Relation] = {
        name: Stream(source(folder / name, "ts"), "ts", lateness_us=1_000_000) for name in ("a", "b")
    }
    plan = wm.plan(drop={"a": 0.3}) if query.startswith("shedding") else None
    out = folder / "out"
    return IncrementalJob(
        wm.sql(QUERIES[query]),
        sources,
        PartFileSink(out),
        follow=False,
        checkpoint=folder / "ckpt",
        out=str(out),
        choose_plan=lambda: plan,
    )


def main(folder: Path, query: str) -> None:
    run_incremental(
        build_job(folder, query),
        threading.Event(),
        lambda metrics: None,
        on_start=lambda run: print("started", flush=True),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
