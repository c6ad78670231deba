"""Run the batches of an embedded run and measure each of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.metrics.batch import BatchFigures, Observer
from watersmeet.operators.parallel import cpu_seconds
from watersmeet.operators.window_join.work_counters import ALL, PROBE
from watersmeet.runtime.embedded.run import EmbeddedRun


def collect_with_metrics(run: EmbeddedRun, observe: Observer) -> pa.Table:
    """All results of an embedded run over finite data, every batch shown to the observer when it is over."""
    results: list[pa.RecordBatch] = []
    waiting: dict[str, pa.Table] = {}
    number = 0
    for tables in run.rounds():  # one round behind, to know which is the last
        if waiting:
            found, figures = run_batch_with_metrics(run, number, waiting)
            observe(figures)
            results += found
            number += 1
        waiting = tables
    found, figures = run_batch_with_metrics(run, number, waiting, last=True)
    observe(figures)
    return run.gathered(results + found)


def run_batch_with_metrics(
    run: EmbeddedRun, batch: int, tables: Mapping[str, pa.Table], *, last: bool = False
) -> tuple[list[pa.RecordBatch], BatchFigures]:
    """One batch of an embedded run, with its figures."""
    spent = dict(run.tally.watch.spent_s)
    started, before_s = time.perf_counter(), cpu_seconds()
    results = run.advance(tables, last=last)
    took_s, spent_s = time.perf_counter() - started, cpu_seconds() - before_s
    figures = BatchFigures(
        batch=batch,
        ended_s=time.time(),
        took_s=took_s,
        rows_in={name: table.num_rows for name, table in tables.items()},
        rows_out=sum(each.num_rows for each in results),
        late={name: entry.late for name, entry in run.batch_ledger.items()},
        shed={name: entry.shed for name, entry in run.batch_ledger.items()},
        state_rows=run.state_rows,
        state_bytes=run.state_bytes,
        watermark_us=run.watermark.value_us if run.watermark.value_us > -FOREVER_US else None,
        newest_us=max(run.watermark.newest_us.values(), default=None),
        operators_s=_operators(run, spent, spent_s),
        plan=run.config.plan,
    )
    return results, figures


def _operators(run: EmbeddedRun, before: Mapping[tuple[str, int], float], worked_s: float) -> dict[str, float]:
    """Seconds of this batch by operator; work of no single input goes by the operator's name alone, and `batches` is
    what is left.
    """
    aliases = {each.number: f" {each.alias}" for each in run.config.inputs} | {ALL: ""}
    spent = {key: seconds - before.get(key, 0.0) for key, seconds in run.tally.watch.spent_s.items()}
    by_origin = sum(
        seconds for (operator, number), seconds in spent.items() if operator == PROBE and number != ALL
    )  # in the sum of all probes
    rest = max(0.0, worked_s - (sum(spent.values()) - by_origin))
    return {**{operator + aliases[number]: seconds for (operator, number), seconds in spent.items()}, "batches": rest}
