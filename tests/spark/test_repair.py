"""A Spark checkpoint torn by a disk, mended, and gone on with: every row is there, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from watersmeet.cli import main as cli

pytestmark = pytest.mark.xdist_group("spark")

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 2 MINUTES], b [RANGE 2 MINUTES] WHERE a.k = b.k"


def add(path: Path, number: int) -> None:
    """Ten rows on each side. Keys are the same in every file, so rows meet those of the file before, out of the state."""
    for name in ("a", "b"):
        (path / name).mkdir(exist_ok=True)
        rows = "".join(f"{i},{1_700_000_000_000_000 + number * 90_000_000 + i * 1000}\n" for i in range(10))
        (path / name / f"{number}.csv").write_text("k,ts\n" + rows)


def run(path: Path) -> Any:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={path / name},time=ts,lateness=1s")]
    more = ["--engine", "spark", "--checkpoint", str(path / "ckpt"), "--out", str(path / "out"), "--format", "jsonl"]
    return CliRunner().invoke(cli.app, ["run", str(path / "query.sql"), *streams, *more])


def repaired(path: Path, *more: str) -> Any:
    return CliRunner().invoke(cli.app, ["repair", str(path / "ckpt"), "--out", str(path / "out"), *more])


def torn(place: Path) -> None:
    content = place.read_bytes()
    place.write_bytes(content[: len(content) // 2])


def torn_commit(checkpoint: Path, batch: int) -> None:
    torn(checkpoint / "commits" / str(batch))


def torn_state(checkpoint: Path, batch: int) -> None:
    torn(checkpoint / "state" / "0" / "0" / f"{batch + 1}.changelog")


def lost_state(checkpoint: Path, batch: int) -> None:
    (checkpoint / "state" / "0" / "1" / f"{batch + 1}.changelog").unlink()


def torn_decision(checkpoint: Path, batch: int) -> None:
    """A batch that was decided and did nothing more: what a power cut leaves of it."""
    before = (checkpoint / "offsets" / str(batch)).read_bytes()
    (checkpoint / "offsets" / str(batch + 1)).write_bytes(before[:20])


BREAKS: list[Callable[[Path, int], None]] = [torn_commit, torn_state, lost_state, torn_decision]


def test_a_torn_checkpoint_is_mended_and_the_query_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    assert run(tmp_path).exit_code == 0
    assert "has no problems" in repaired(tmp_path).output
    for batch, spoil in enumerate(BREAKS):
        spoil(tmp_path / "ckpt", batch)
        found = repaired(tmp_path)
        assert found.exit_code == 1, spoil.__name__
        assert "--fix moves it aside" in found.output, spoil.__name__
        if spoil in (torn_commit, torn_state, lost_state):
            check_that_a_lost_input_is_named(tmp_path, tmp_path / "a" / f"{batch}.csv")
        add(tmp_path, batch + 1)
        if spoil is lost_state:
            alone = CliRunner().invoke(cli.app, ["repair", str(tmp_path / "ckpt"), "--mend"])
            assert (alone.exit_code, "--out DIR" in alone.output) == (1, True)
        if spoil is torn_state:  # and a batch that is decided and fails is in the way of going back, so it is forgotten
            refused = run(tmp_path)
            assert refused.exit_code == 1
            assert "Traceback" not in refused.output
        assert repaired(tmp_path, "--mend").exit_code == 0, spoil.__name__
        assert "has no problems" in repaired(tmp_path).output, spoil.__name__
        result = run(tmp_path)
        assert result.exit_code == 0, (spoil.__name__, result.output)
    rows = spark.read.json(
        str(tmp_path / "out")
    ).collect()  # by the sink's log: a task of a batch that failed may leave a file beside it
    files = len(BREAKS) + 1
    assert len(rows) == 10 * (files + 2 * (files - 1))  # a key meets itself in its own file, and both ways in the next
    assert len(set(rows)) == len(rows)


def check_that_a_lost_input_is_named(path: Path, lost: Path) -> None:
    """The last batch has to run again, which it cannot without its files."""
    aside = lost.rename(path / lost.name)
    found = repaired(path, "--fix")
    assert found.exit_code == 1
    assert f'its input "{lost}" is missing' in found.output
    aside.rename(lost)


def test_two_jobs_cannot_share_an_output_directory(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    assert run(tmp_path).exit_code == 0
    rows = spark.read.json(str(tmp_path / "out")).count()
    (tmp_path / "ckpt").rename(tmp_path / "first")
    refused = run(tmp_path)
    assert refused.exit_code == 1
    assert f'checkpoint "{tmp_path / "ckpt"}"' in refused.output
    assert "a second time" in refused.output
    (tmp_path / "first").rename(tmp_path / "moved")  # the checkpoint itself may move: its id stays
    add(tmp_path, 1)
    (tmp_path / "ckpt" / "lock").unlink()
    for file in (tmp_path / "ckpt").iterdir():
        file.unlink()
    (tmp_path / "ckpt").rmdir()
    (tmp_path / "moved").rename(tmp_path / "ckpt")
    assert run(tmp_path).exit_code == 0
    assert spark.read.json(str(tmp_path / "out")).count() == rows + 30


def test_what_cannot_be_mended_is_said(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    assert run(tmp_path).exit_code == 0
    torn(tmp_path / "ckpt" / "sources" / "0" / "0")
    found = repaired(tmp_path, "--mend")
    assert found.exit_code == 1
    assert "would be read twice" in found.output
    assert "cannot be fixed" in found.output
