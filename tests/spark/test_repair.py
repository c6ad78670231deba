"""A damaged Spark checkpoint is repaired and the query resumes: every row is emitted exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from watersmeet.cli import main as cli

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 2 MINUTES], b [RANGE 2 MINUTES] WHERE a.k = b.k"


def add(path: Path, number: int) -> None:
    """Add ten rows per stream. All files have the same keys, so rows match those of the previous file in the state."""
    for name in ("a", "b"):
        (path / name).mkdir(exist_ok=True)
        rows = "".join(f"{i},{1_700_000_000_000_000 + number * 90_000_000 + i * 1000}\n" for i in range(10))
        (path / name / f"{number}.csv").write_text("k,ts\n" + rows)


def run(path: Path) -> Any:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={path / name},time=ts,lateness=1s")]
    more = ["--engine", "spark", "--checkpoint", str(path / "ckpt"), "--out", str(path / "out"), "--format", "jsonl"]
    return CliRunner().invoke(cli.app, ["run", str(path / "query.sql"), *streams, *more])


def run_repair(path: Path, *more: str) -> Any:
    return CliRunner().invoke(cli.app, ["repair", str(path / "ckpt"), "--out", str(path / "out"), *more])


def truncate_file(place: Path) -> None:
    content = place.read_bytes()
    place.write_bytes(content[: len(content) // 2])


def truncate_commit(checkpoint: Path, batch: int) -> None:
    truncate_file(checkpoint / "commits" / str(batch))


def truncate_state(checkpoint: Path, batch: int) -> None:
    truncate_file(checkpoint / "state" / "0" / "0" / f"{batch + 1}.changelog")


def delete_state(checkpoint: Path, batch: int) -> None:
    (checkpoint / "state" / "0" / "1" / f"{batch + 1}.changelog").unlink()


def truncate_offsets(checkpoint: Path, batch: int) -> None:
    """Leave a truncated offset file of a batch that was planned and not run, as after a power cut."""
    before = (checkpoint / "offsets" / str(batch)).read_bytes()
    (checkpoint / "offsets" / str(batch + 1)).write_bytes(before[:20])


DAMAGES: list[Callable[[Path, int], None]] = [truncate_commit, truncate_state, delete_state, truncate_offsets]


def test_a_damaged_checkpoint_is_repaired_and_the_query_resumes(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    assert run(tmp_path).exit_code == 0
    assert "has no problems" in run_repair(tmp_path).output
    for batch, damage in enumerate(DAMAGES):
        damage(tmp_path / "ckpt", batch)
        found = run_repair(tmp_path)
        assert found.exit_code == 1, damage.__name__
        assert "--fix moves it aside" in found.output, damage.__name__
        if damage in (truncate_commit, truncate_state, delete_state):
            check_missing_input_is_named(tmp_path, tmp_path / "a" / f"{batch}.csv")
        add(tmp_path, batch + 1)
        if damage is delete_state:
            alone = CliRunner().invoke(cli.app, ["repair", str(tmp_path / "ckpt"), "--mend"])
            assert (alone.exit_code, "--out DIR" in alone.output) == (1, True)
        if damage is truncate_state:  # a planned batch that fails prevents the rollback, so repair removes it
            refused = run(tmp_path)
            assert refused.exit_code == 1
            assert "Traceback" not in refused.output
        assert run_repair(tmp_path, "--mend").exit_code == 0, damage.__name__
        assert "has no problems" in run_repair(tmp_path).output, damage.__name__
        result = run(tmp_path)
        assert result.exit_code == 0, (damage.__name__, result.output)
    # Spark reads by the sink's log: a task of a failed batch may leave a file that the log does not list.
    rows = spark.read.json(str(tmp_path / "out")).collect()
    files = len(DAMAGES) + 1
    assert len(rows) == 10 * (files + 2 * (files - 1))  # a key matches in its own file, and both ways in the next
    assert len(set(rows)) == len(rows)


def check_missing_input_is_named(path: Path, lost: Path) -> None:
    """Check that repair names a missing input: the last batch has to run again and needs its files."""
    aside = lost.rename(path / lost.name)
    found = run_repair(path, "--fix")
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
    (tmp_path / "first").rename(tmp_path / "moved")  # a checkpoint may be moved: it keeps its id
    add(tmp_path, 1)
    (tmp_path / "ckpt" / "lock").unlink()
    for file in (tmp_path / "ckpt").iterdir():
        file.unlink()
    (tmp_path / "ckpt").rmdir()
    (tmp_path / "moved").rename(tmp_path / "ckpt")
    assert run(tmp_path).exit_code == 0
    assert spark.read.json(str(tmp_path / "out")).count() == rows + 30


def test_damage_that_cannot_be_repaired_is_reported(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    assert run(tmp_path).exit_code == 0
    truncate_file(tmp_path / "ckpt" / "sources" / "0" / "0")
    found = run_repair(tmp_path, "--mend")
    assert found.exit_code == 1
    assert "would be read twice" in found.output
    assert "cannot be fixed" in found.output
