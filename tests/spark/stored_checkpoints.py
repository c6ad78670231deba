"""Checkpoints of Spark queries in every released format: `python -m tests.spark.stored_checkpoints` writes them.

Each holds the state after two batches. Spark remembers the paths of the files that it has read, and of its own state. A
stored checkpoint has a placeholder for them.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.runtime.stored_checkpoints import FOLDER, PLANS, QUERIES, add_files
from watersmeet import framing

from .sessions import open_small_session

STORED = ("join", "aggregation")
COMMITTED, BATCHES = 2, 4
_ANY_FOLDER = "/folder-of-the-query"


def run_query(spark: SparkSession, name: str, folder: Path, batches: range) -> None:
    """Add one file per stream and batch, and run the query over them into `folder / "out"`."""
    for number in batches:
        add_files(folder, number)
        streams = {
            each: wm.stream(folder / each, time="ts", unit="us", lateness="2 s", follow=True) for each in ("a", "b")
        }
        write_available(wm.on_spark(QUERIES[name], streams, session=spark, plan=PLANS.get(name)), folder)


def write_available(frame: DataFrame, folder: Path) -> None:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(folder / "ckpt")).trigger(availableNow=True).start().awaitTermination()


def store(spark: SparkSession, name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_query(spark, name, Path(directory), range(COMMITTED))
        copy_checkpoint(Path(directory) / "ckpt", target, directory, _ANY_FOLDER)


def unpack(stored: Path, folder: Path) -> None:
    """Copy a stored checkpoint and the files that it has read into a folder."""
    copy_checkpoint(stored, folder / "ckpt", _ANY_FOLDER, str(folder))
    for number in range(COMMITTED):
        add_files(folder, number)


def copy_checkpoint(source: Path, target: Path, old_folder: str, new_folder: str) -> None:
    """Copy a checkpoint and replace a folder in its text files. The checksums of these files are left out."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.crc"))
    for file in target.rglob("*"):
        if file.is_file() and old_folder.encode() in file.read_bytes():
            file.write_text(file.read_text().replace(f"{old_folder}/", f"{new_folder}/"))


if __name__ == "__main__":
    for each in STORED:
        store(open_small_session(), each, FOLDER / f"format-{framing.FORMAT_VERSION}" / "spark" / each)
