"""A user's program with Spark's default settings, in a process of its own. It prints what the user sees, as JSON.

`python plain_session.py FOLDER WORKER_PYTHON`: the search path finds a `python3` without this package first, and
`WORKER_PYTHON` is another path to it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.runtime.spark.execution import Sink, collect_with_ledger, start_streaming
from watersmeet.runtime.spark.session import ROCKSDB

JOINED = "FROM orders [RANGE 1 MINUTE] AS o, trades [RANGE 1 MINUTE] AS t WHERE o.item = t.item"
JOIN = f"SELECT o.item, t.price {JOINED}"
#: Buckets have partial groups, which a second step merges.
TOTALS = f"SELECT o.price + t.price AS total, COUNT(*) AS n {JOINED} GROUP BY o.price + t.price EVERY 1 SECOND"
LOOKUP = "SELECT o.item, r.label FROM orders [RANGE 1 MINUTE] AS o, items AS r WHERE o.item = r.item"
ROWS = pa.table({"item": [1, 2, 3], "price": [10, 20, 10], "ts": [1_000_000, 2_000_000, 3_000_000]})
#: A relation of 3 MB. By default, Spark sends functions of up to 1 MB.
ITEMS = pa.table({name: pa.array(np.arange(200_000)) for name in ("item", "label")})


def main(folder: Path, worker_python: str) -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    report: dict[str, Any] = {"finite rows": run_finite_queries(spark)}
    streams = {"orders": wm.stream(write_orders(folder), time="ts", follow=True)}
    sources = streams | {"items": wm.relation(ITEMS)}
    report["refused"] = catch(lambda: wm.on_spark(LOOKUP, sources))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    report["warned"] = [warn_messages(lambda: wm.on_spark(LOOKUP, sources)) for _ in range(2)]
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    report["streamed rows"], report["query names"] = run_streaming_query(sources, folder)
    report["interface"] = read_interface(spark)
    report["python of other steps"] = spark.sparkContext.pythonExec
    spark.stop()
    os.environ["PYSPARK_PYTHON"] = worker_python
    daemon = {"spark.python.daemon.module": "watersmeet.runtime.spark.daemon"}
    report["worker without the package"] = [refuse_worker(settings) for settings in ({}, daemon)]
    del os.environ["PYSPARK_PYTHON"]
    report["lost Java process"] = lose_java_process()
    print(json.dumps(report), flush=True)
    os._exit(0)  # PySpark cannot end a session whose Java process has ended


def run_finite_queries(spark: SparkSession) -> list[int]:
    frame = wm.stream(spark.createDataFrame(ROWS), time="ts")
    tables = {"orders": frame, "trades": wm.stream(ROWS, time="ts")}
    return [collect_with_ledger(query, tables, None).num_rows for query in (JOIN, TOTALS)]


def write_orders(folder: Path) -> Path:
    (folder / "orders").mkdir()
    pq.write_table(ROWS, folder / "orders" / "0.parquet")
    return folder / "orders"


def run_streaming_query(sources: dict[str, Any], folder: Path) -> tuple[list[int], list[str | None]]:
    """Return the rows of a streaming query, and the names of this and a second query that runs meanwhile."""
    found: list[Any] = []
    sink = Sink(folder / "checkpoint", show=lambda batch, rows: found.extend(rows["label"].to_pylist()))
    frame = wm.on_spark(LOOKUP, sources)
    query = start_streaming(LOOKUP, frame, sink, follow=True)
    second = start_streaming(LOOKUP, frame, Sink(folder / "second checkpoint"), follow=True)
    try:
        query.processAllAvailable()
        return sorted(found), [query.name, second.name]
    finally:
        query.stop()
        second.stop()


def read_interface(spark: SparkSession) -> dict[str, list[str]]:
    """Return the descriptions of jobs, stages and SQL queries, and their plans, from Spark's REST interface."""
    root = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"

    def read(what: str) -> Any:
        with urllib.request.urlopen(f"{root}/{what}") as answer:
            return json.load(answer)

    queries = read("sql?details=true&planDescription=true&length=100")
    return {
        "jobs": [job.get("description", "") for job in read("jobs")],
        "stages": [stage.get("description", "") for stage in read("stages?status=complete")],
        "queries": [query["description"] for query in queries],
        "plans": [query["planDescription"] for query in queries],
    }


def refuse_worker(settings: dict[str, str]) -> str:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        return catch(lambda: wm.on_spark(JOIN, {name: wm.stream(ROWS, time="ts") for name in ("orders", "trades")}))
    finally:
        spark.stop()


def lose_java_process() -> tuple[str, bool, str]:
    """Kill the Java process of a running query; return the error, whether the query is active, and its text."""
    spark = wm.session(spark_master="local[1,1]")
    rows = spark.readStream.format("rate").load()
    running = wm.start("SELECT value FROM a [RANGE 1 SECOND]", {"a": wm.stream(rows, time="timestamp")}, format="noop")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    os.kill(gateway.proc.pid, signal.SIGKILL)
    return catch(running.await_termination), running.is_active, repr(running)


def catch(call: Callable[[], object]) -> str:
    try:
        call()
    except wm.WatersmeetError as error:
        return str(error)
    return "no error"


def warn_messages(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if issubclass(each.category, wm.WatersmeetWarning)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
