"""An input directory that cannot be listed is an error, never an empty directory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from watersmeet.cli.arguments import ReadMode, open_file_stream
from watersmeet.errors import InputError
from watersmeet.metrics import BatchMetrics
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"ts": [1], "k": [1]}), tmp_path / name / "0.parquet")
    return tmp_path


def refuse_listing(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Fail to list one directory, as the system does for a user without permission.

    Tests often run as root, who may list all directories.
    """
    list_directory = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:
        if self == directory:
            raise PermissionError(13, "Permission denied", str(self))
        return list_directory(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)


def incremental_job(path: Path, *, follow: bool) -> IncrementalJob:
    sources: dict[str, Stream | Relation] = {name: Stream(FileSource(path / name, "ts"), "ts") for name in ("a", "b")}
    return IncrementalJob(wm.sql(QUERY), sources, PartFileSink(path / "out"), follow, path / "ckpt", str(path / "out"))


@pytest.mark.parametrize("follow", [False, True])
def test_a_directory_that_cannot_be_listed_stops_the_job(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    refuse_listing(monkeypatch, inputs / "b")
    with pytest.raises(InputError, match=r'/b" cannot be read: Permission denied'):
        run_incremental(incremental_job(inputs, follow=follow), threading.Event(), lambda figures: None)


def test_a_directory_that_can_no_longer_be_listed_stops_the_job(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(figures: BatchMetrics) -> None:
        refuse_listing(monkeypatch, inputs / "a")

    with pytest.raises(InputError, match=r'/a" cannot be read: Permission denied'):
        run_incremental(incremental_job(inputs, follow=True), threading.Event(), observe)


@pytest.mark.parametrize("change", ["removed", "a file", "a loop of links"])
def test_a_directory_that_is_replaced_stops_the_job(inputs: Path, change: str) -> None:
    def observe(figures: BatchMetrics) -> None:
        (inputs / "a").rename(inputs / "elsewhere")
        if change == "a file":
            (inputs / "a").write_text("")
        elif change == "a loop of links":
            (inputs / "a").symlink_to(inputs / "a")

    with pytest.raises(InputError, match="/a"):
        run_incremental(incremental_job(inputs, follow=True), threading.Event(), observe)


def test_a_finite_directory_that_cannot_be_listed_is_refused(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_listing(monkeypatch, inputs / "a")
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        wm.stream(inputs / "a", time="ts")


@pytest.mark.parametrize("reading", ReadMode)
@pytest.mark.parametrize(
    ("name", "reason"), [("loop", "Too many levels of symbolic links"), ("x" * 300, "File name too long")]
)
def test_a_path_that_cannot_be_accessed_is_refused_with_the_reason(
    tmp_path: Path, reading: ReadMode, name: str, reason: str
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match=reason):
        open_file_stream(str(tmp_path / name), {"time": "ts"}, reading=reading)
