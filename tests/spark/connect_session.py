"""A user's program on Spark Connect, in a process of its own. It prints what the user sees, as JSON.

`python connect_session.py FOLDER` starts a server with `remote("local[2]")` and is a client of it. Then it starts
`python connect_session.py FOLDER URL`, a client without Py4J and without the classes of a classic session, like an
installation of `pyspark-client`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.runtime.spark.execution import collect_with_ledger
from watersmeet.runtime.spark.session import ROCKSDB

JOINED = "FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"
JOIN = f"SELECT a.v AS x, b.v AS y {JOINED}"
#: Buckets have partial groups, which a second step merges.
TOTALS = f"SELECT a.v + b.v AS total, COUNT(*) AS n {JOINED} GROUP BY a.v + b.v EVERY 2 SECONDS"
#: Modules that an installation of `pyspark-client` does not have.
CLASSIC = ("py4j", "pyspark.core", "pyspark.java_gateway", "pyspark.rdd")
#: Python runs it at its start.
HIDE_CLASSIC_MODULES = f"""
import sys

def refuse(name, *_):
    if name in {CLASSIC} or name.startswith("py4j."):
        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, type("Hidden", (), {{"find_spec": staticmethod(refuse)}}))
"""
NO_ERROR = "no error"
QUERIES = {"join": JOIN, "aggregation": TOTALS}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def make_rows(offset_us: int, count: int = 60) -> pa.Table:
    times = [number * 1_000_000 + offset_us for number in range(count)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": [number % 5 for number in range(count)],
            "v": list(range(count)),
        }
    )


TABLES = {"a": make_rows(0), "b": make_rows(10)}


def main(folder: Path) -> None:
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    report: dict[str, Any] = run_finite_queries(spark)
    write_files(folder, 0)
    streams = {name: wm.stream(folder / name, time="ts", follow=True) for name in TABLES}
    report["refused"] = catch(lambda: wm.on_spark(JOIN, streams, session=spark))
    spark.conf.set(PROVIDER, ROCKSDB)
    report["without streams"] = catch(lambda: wm.on_spark(JOIN, streams, session=spark))
    if report["without streams"] == NO_ERROR:
        run_streaming_queries(spark, streams, folder, report)
    print(json.dumps(report), flush=True)
    os._exit(0)  # the server is in the Java process of this one


def run_streaming_queries(
    spark: SparkSession, streams: dict[str, wm.Stream], folder: Path, report: dict[str, Any]
) -> None:
    for kind, query in QUERIES.items():
        report[f"streaming paths, {kind}"] = run_stream(spark, query, streams, folder / kind)
    write_files(folder, 1)
    for kind, query in QUERIES.items():
        report[f"restart, {kind}"] = run_stream(spark, query, streams, folder / kind)
    report["streaming frames"] = run_stream(spark, JOIN, open_frames(spark, folder), folder / "frames")
    report["bad row"] = catch(lambda: run_stream(spark, JOIN, add_row_without_time(folder), folder / "bad"))
    report["thin client"] = run_thin_client(folder)


def run_finite_queries(spark: SparkSession) -> dict[str, Any]:
    """Run both queries over tables of this process and over frames of Spark, with their ledgers."""
    tables = {name: wm.stream(rows, time="ts") for name, rows in TABLES.items()}
    frames = {name: wm.stream(spark.createDataFrame(rows), time="ts") for name, rows in TABLES.items()}
    report: dict[str, Any] = {}
    for kind, query in QUERIES.items():
        report[f"finite tables, {kind}"] = list_rows(wm.on_spark(query, tables, session=spark).toArrow())
        collected = collect_with_ledger(query, frames, None)
        report[f"finite frames, {kind}"] = list_rows(collected)
        report[f"finite ledger, {kind}"] = json.loads((collected.schema.metadata or {})[b"watersmeet"])["ledger"]
    return report


def write_files(folder: Path, part: int) -> None:
    """Write one half of each stream."""
    for name, rows in TABLES.items():
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(rows.slice(30 * part, 30), folder / name / f"{part}.parquet")


def open_frames(spark: SparkSession, folder: Path) -> dict[str, wm.Stream]:
    schema = spark.createDataFrame(TABLES["a"]).schema
    return {name: wm.stream(spark.readStream.schema(schema).parquet(str(folder / name)), time="ts") for name in TABLES}


def run_stream(spark: SparkSession, query: str, streams: dict[str, wm.Stream], folder: Path) -> dict[str, Any]:
    """Process the available rows; return all rows written so far and what the query reports."""
    running = wm.start(
        query,
        streams,
        to=folder / "out",
        checkpoint=folder / "checkpoint",
        trigger="availableNow",
        session=spark,
    )
    running.await_termination()
    return {
        "rows": list_rows(spark.read.parquet(str(folder / "out")).toArrow()),
        "ledger": {name: entry.arrived for name, entry in running.ledger.items()},
        "rows out": [batch.rows_out for batch in running.progress],
    }


def add_row_without_time(folder: Path) -> dict[str, wm.Stream]:
    (folder / "c").mkdir()
    without = TABLES["a"].set_column(0, "ts", pa.nulls(60, pa.timestamp("us", "UTC")))
    pq.write_table(without, folder / "c" / "0.parquet")
    return {name: wm.stream(folder / path, time="ts", follow=True) for name, path in (("a", "c"), ("b", "b"))}


def run_thin_client(folder: Path) -> Any:
    from pyspark.sql.connect.client import DefaultChannelBuilder

    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(HIDE_CLASSIC_MODULES)
    paths = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, __file__, folder, f"sc://localhost:{DefaultChannelBuilder.default_port()}"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else ran.stderr


def run_as_thin_client(folder: Path, url: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.conf.set(PROVIDER, ROCKSDB)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    tables = {name: wm.stream(rows, time="ts") for name, rows in TABLES.items()}
    streams = {name: wm.stream(folder / name, time="ts", follow=True) for name in TABLES}
    report = {
        "finite tables": list_rows(wm.on_spark(JOIN, tables, session=spark).toArrow()),
        "streaming paths": run_stream(spark, JOIN, streams, folder / "thin"),
        "classic modules": [name for name in sys.modules if name in CLASSIC],
    }
    print(json.dumps(report), flush=True)


def list_rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows in order, without the times of evaluations, whose types differ between formats."""
    columns = [column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)
               if name != "as_of"]  # fmt: skip
    return sorted(list(row) for row in zip(*columns, strict=True))


def catch(call: Any) -> str:
    try:
        call()
    except wm.WatersmeetError as error:
        return f"{type(error).__name__}: {error}"
    return NO_ERROR


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_as_thin_client(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(sys.argv[1]))
