"""Calibration of Spark's overhead: run short streaming queries and measure the CPU time of all their processes.

A query runs over a few batches and over more of them. The difference is the cost of the additional batches, without
start and stop. From it we subtract the join, measured on the same batches in this process, and packing and state, which
the workers time themselves. Least squares split the rest over input rows, output rows and micro-batches.

References: Kang, Naughton, Viglas, section 4.2, whose loads likewise differ in one thing at a time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from watersmeet.algebra.plan import Plan
from watersmeet.calibration.measurement import fit_weights
from watersmeet.errors import InternalError
from watersmeet.operators.build import build_operator
from watersmeet.operators.parallel import on_cores
from watersmeet.operators.protocol import Clock, InputBatch, exhaust
from watersmeet.planner.models.profile import SparkCosts
from watersmeet.runtime.planning import choose_plan, read_planning_input
from watersmeet.runtime.processes import measure_cpu_s
from watersmeet.runtime.spark.batch_metrics import list_batches
from watersmeet.runtime.spark.host import on_spark
from watersmeet.runtime.spark.session import session
from watersmeet.runtime.watermark import Watermark, collect_lateness
from watersmeet.sources.declarations import bind_query, read_all_rows, stream
from watersmeet.sources.directories import write_numbered_files
from watersmeet.sources.times import extract_event_times_us

#: Batches of the shorter and of the longer run of a load.
SHORT_RUN_BATCHES, LONG_RUN_BATCHES = 1, 4

_NAMES = "ab"


@dataclass(frozen=True, slots=True)
class SparkLoad:
    """Rows of each stream in a batch, and matches per row in the other stream."""

    rows: int
    matches: int

    @property
    def query(self) -> str:
        window = f"[RANGE {self.rows} MICROSECONDS]"
        return f"SELECT a.k, a.id AS a_id, b.id AS b_id FROM a {window}, b {window} WHERE a.k = b.k"

    def table(self, number: int, batch: int) -> pa.Table:
        """Return one row per microsecond."""
        rng = np.random.default_rng([self.rows, self.matches, number, batch])
        times = pa.array(batch * self.rows + np.arange(self.rows)).cast(pa.timestamp("us", "UTC"))
        distinct = max(1, 2 * self.rows // max(1, self.matches))
        keys = rng.integers(0, distinct, self.rows) + (0 if self.matches else number * distinct)
        return pa.table({"ts": times, "k": pa.array(keys), "id": pa.array(np.arange(self.rows))})


@dataclass(frozen=True, slots=True)
class RunCost:
    """Cost of a run: rows in and out, batches, and CPU seconds in total, for packing and for state.

    `join_s` are the CPU seconds of the same join without Spark.
    """

    rows_in: float
    rows_out: float
    batches: float
    cpu_s: float
    pack_s: float
    state_s: float
    join_s: float

    def __sub__(self, other: RunCost) -> RunCost:
        return RunCost(*(getattr(self, name) - getattr(other, name) for name in RunCost.__slots__))


def calibrate_spark(report: Callable[[str], None], *, quick: bool, spark: SparkSession | None = None) -> SparkCosts:
    """Measure the costs of Spark on this machine, in CPU seconds."""
    spark_session = spark or session()
    loads = (
        [SparkLoad(1_000, 1), SparkLoad(50_000, 0), SparkLoad(50_000, 4)]
        if quick
        else [SparkLoad(1_000, 1), SparkLoad(200_000, 0), SparkLoad(200_000, 1), SparkLoad(200_000, 8)]
    )
    # Warm up: start all processes before the first measurement.
    _measure_run(spark_session, loads[0], SHORT_RUN_BATCHES)
    points = []
    for load in loads:
        report(f"Spark: batches of {2 * load.rows:,} rows, {load.matches} matches per row")
        points.append(
            _measure_run(spark_session, load, LONG_RUN_BATCHES) - _measure_run(spark_session, load, SHORT_RUN_BATCHES)
        )
    return fit_costs(points)


def fit_costs(points: list[RunCost]) -> SparkCosts:
    """Fit the costs to the measured points. Packing and state have their own clocks; least squares split the rest.

    >>> sizes = [(100, 0), (1e6, 0), (1e6, 1e6)]
    >>> points = [RunCost(n, m, 4, 2e-6 * n + 1e-6 * m + 2.0, 1e-6 * n, 5e-7 * n, 1e-7 * n) for n, m in sizes]
    >>> fit_costs(points)
    SparkCosts(pack_s=1e-06, shuffle_s=4e-07, state_s=5e-07, out_s=1e-06, batch_s=0.5, assumed=False, driver_s=0.65)
    """
    rows = sum(each.rows_in for each in points)
    pack_s, state_s = (max(0.0, sum(getattr(each, name) for each in points)) / rows for name in ("pack_s", "state_s"))
    shuffle_s, out_s, batch_s = fit_weights(
        [(each.rows_in, each.rows_out, each.batches) for each in points],
        [each.cpu_s for each in points],
        [each.join_s + each.pack_s + each.state_s for each in points],
    )
    return SparkCosts(float(f"{pack_s:.6g}"), shuffle_s, float(f"{state_s:.6g}"), out_s, batch_s, assumed=False)


def _measure_run(spark: SparkSession, load: SparkLoad, batches: int) -> RunCost:
    with tempfile.TemporaryDirectory(prefix="watersmeet-calibrate-") as name:
        place = Path(name)
        tables = [_write_tables(place / each, load, number, batches) for number, each in enumerate(_NAMES)]
        sources = {each: stream(place / each, time="ts", follow=True, files_per_batch=1) for each in _NAMES}
        before_s = measure_cpu_s()
        writer = on_spark(load.query, sources, plan=Plan("runs"), session=spark).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        spent_s, metrics = measure_cpu_s() - before_s, list_batches(query)
        if len(metrics) < batches:
            raise InternalError(f"only {len(metrics)} of {batches} batches of a calibration reported metrics")
    return RunCost(
        rows_in=2 * load.rows * batches,
        rows_out=sum(each.results for each in metrics),
        batches=batches,
        cpu_s=spent_s,
        pack_s=sum(each.pack_us for each in metrics) / 1e6,
        state_s=sum(each.state_read_us + each.state_write_us for each in metrics) / 1e6,
        join_s=_measure_join_s(load, tables),
    )


def _write_tables(place: Path, load: SparkLoad, number: int, batches: int) -> list[pa.Table]:
    tables = [load.table(number, batch) for batch in range(batches)]
    write_numbered_files(place, tables)
    return tables


def _measure_join_s(load: SparkLoad, tables: list[list[pa.Table]]) -> float:
    """Measure the CPU seconds of the same batches joined in this process."""
    sources = {name: stream(each, time="ts") for name, each in zip(_NAMES, tables, strict=True)}
    bound = bind_query(load.query, sources)
    plan = choose_plan(bound, *read_planning_input(bound, sources, {}), Plan("runs"))
    operator = build_operator(bound, plan, lambda each: read_all_rows(sources[each.name]))
    state, watermark = operator.empty(), Watermark.start(collect_lateness(operator.config, sources))
    start = time.process_time()
    for batch in zip(*tables, strict=True):
        inputs = {
            number: InputBatch(table, extract_event_times_us(_NAMES[number], table, "ts", None))
            for number, table in enumerate(batch)
        }
        seen_us = {_NAMES[number]: (int(each.times.min()), int(each.times.max())) for number, each in inputs.items()}
        following = watermark.after_batch(seen_us)
        clock = Clock(watermark.value_us, following.value_us, following.largest_us)
        with on_cores(os.cpu_count() or 1):
            _, (state, _) = exhaust(operator.advance(state, inputs, clock))
        watermark = following
    return time.process_time() - start
