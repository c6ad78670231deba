"""Archive of the Java classes that Spark loads. `python -m tests.spark.class_archive` writes it, `make test` calls it.

Java takes half of the CPU time up to the first row of a query to load and verify ten thousand classes. It maps an
archive of them instead. Java ignores an archive of another class path, so Spark's home is always in the same place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.runtime.spark.session import start_writing_to

_BUILD = Path(__file__).parents[2] / "build" / "spark"
_ARCHIVE = "classes.jsa"
_QUERIES = (
    "SELECT a.k, b.v FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k",
    "SELECT a.v + b.v AS both, COUNT(*) AS n FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k "
    "GROUP BY a.v + b.v EVERY 1 SECOND",
)


@cache
def find_home() -> Path:
    """Return the home of this Spark and this Java; make it if there is none."""
    home = _BUILD / _identify()
    if not home.exists():
        _BUILD.mkdir(parents=True, exist_ok=True)
        made = _link_files(Path(tempfile.mkdtemp(dir=_BUILD)))
        try:
            made.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return home


def archive_options() -> str:
    """Return the Java options that use the archive; none if it was not written."""
    archive = find_home() / _ARCHIVE
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""


def _identify() -> str:
    """Return a name for the files of PySpark and the Java that starts: an archive is valid for no others."""
    package, java_home = Path(pyspark.__file__).parent, os.environ.get("JAVA_HOME")
    java = Path(shutil.which(str(Path(java_home) / "bin" / "java") if java_home else "java") or "java").resolve()
    changed = [path.stat().st_mtime_ns for path in (package / "jars", java) if path.exists()]
    digest = hashlib.sha256(f"{package} {java} {changed}".encode()).hexdigest()
    return f"{pyspark.__version__}-{digest[:12]}"


def _link_files(home: Path) -> Path:
    """Link the files of PySpark into a home for Spark whose `pyspark.zip` is a directory.

    Workers import PySpark from that file. Python keeps no bytecode of a zip file, so it compiles PySpark in each of the
    processes that Spark starts for a streaming query, which takes a second.
    """
    package = Path(pyspark.__file__).parent
    for path in package.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    library = home / "python" / "lib"
    (library / "pyspark.zip").mkdir(parents=True)
    (library / "pyspark.zip" / "pyspark").symlink_to(package)
    for path in (package / "python" / "lib").glob("py4j-*.zip"):
        (library / path.name).symlink_to(path)
    return home


def write_archive() -> None:
    """Run queries of every kind, and let Java write the classes that it has loaded when it ends."""
    archive = find_home() / _ARCHIVE
    if archive.exists():
        return
    print("Archiving the classes of Spark; this takes a minute the first time", flush=True)
    with tempfile.TemporaryDirectory(dir=find_home()) as folder:
        written = Path(folder) / _ARCHIVE
        os.environ["SPARK_HOME"] = str(find_home())
        options = f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        with (Path(folder) / "log").open("wb") as log:
            start_writing_to(log, {"spark.master": "local[2]", "spark.driver.extraJavaOptions": options})
        spark = wm.session()
        _run_queries(spark, Path(folder))
        _end_java(spark)
        written.rename(archive)


def _run_queries(spark: SparkSession, folder: Path) -> None:
    times = pa.array(range(8), pa.timestamp("us", "UTC"))
    rows = pa.table({"ts": times, "k": [0, 1] * 4, "v": list(range(8))})
    for name in "ab":
        (folder / name).mkdir()
        pq.write_table(rows, folder / name / "0.parquet")
    files = {name: wm.stream(folder / name, time="ts", follow=True) for name in "ab"}
    for number, query in enumerate(_QUERIES):
        wm.on_spark(query, {name: wm.stream(rows, time="ts") for name in "ab"}, session=spark).toArrow()
        out: dict[str, Any] = {"to": folder / f"out-{number}", "checkpoint": folder / f"checkpoint-{number}"}
        wm.start(query, files, **out, trigger="availableNow").await_termination()
        spark.read.parquet(str(folder / f"out-{number}")).collect()


def _end_java(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with the process that started it
    gateway.proc.wait()


if __name__ == "__main__":
    write_archive()
