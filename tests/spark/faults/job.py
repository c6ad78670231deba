"""The job that is killed: `python job.py FOLDER SINK MASTER QUERY` joins the files of FOLDER into FOLDER/out.

Each file is one batch. The job prints `starting` before the query starts and `done` when all files are joined.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import watersmeet as wm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FROM = """
    FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS], c [RANGE 1 SECOND]
    WHERE a.k = b.k AND b.k = c.k AND a.v < 90
"""
_GROUPS = f"SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total {_FROM} GROUP BY a.k EVERY 1 SECOND"
QUERIES = {
    "join": f"SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id {_FROM}",
    "aggregation": _GROUPS,
    "shedding aggregation": _GROUPS,
}
PLANS = {"shedding aggregation": wm.plan(drop={"a": 0.3})}
STREAMS = ("a", "b", "c")
FIELDS = "ts long, k long, v long, id long"
LATENESS = "500 milliseconds"


#: Additional settings for the executors of a cluster: the path of the package in this process, and little memory.
ON_A_CLUSTER = {"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""), "spark.executor.memory": "1g"}


def main(folder: Path, sink: str, master: str, query: str) -> None:
    settings: dict[str, Any] = {"spark.master": master, "spark.sql.shuffle.partitions": 2, **ON_A_CLUSTER}
    spark = wm.session(**settings)
    streams = {
        name: wm.stream(
            spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1).parquet(str(folder / name)),
            time="ts",
            lateness=LATENESS,
        )
        for name in STREAMS
    }
    joined = wm.on_spark(QUERIES[query], streams, plan=PLANS.get(query))
    print("starting", flush=True)
    writer = joined.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    if sink == "files":
        writer = writer.format("parquet").option("path", str(folder / "out"))
    else:
        writer = writer.foreachBatch(IdempotentSink(folder / "out"))
    writer.start().awaitTermination()
    print("done", flush=True)


class IdempotentSink:
    """Sink of `foreachBatch`: a batch is a folder named by its number; a repeated batch replaces it in one rename."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def __call__(self, rows: DataFrame, batch: int) -> None:
        made, final = self.out / f".batch-{batch}", self.out / f"batch-{batch}"
        rows.write.mode("overwrite").parquet(str(made))
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
