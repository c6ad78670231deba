"""What one batch did, as a value: the terminal's live view, the dashboard and a log read nothing else, whichever host ran the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.cores import worked_s
from watersmeet.operators.meet.watch import ALL, PROBE
from watersmeet.runtime.embedded import EmbeddedRun


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """One batch: rows by stream, how long it took, what is kept, how far the watermark is.

    `ended_s` is the wall clock when the batch was over and `took_s` its length; `operators_s` are seconds of CPU by operator, named as
    the cost model names them (`take in a`, `keep a`, `probe a`, `rows out`, and
    `batches` for the rest). `newest_us` is the largest event time seen so far.
    """

    batch: int
    ended_s: float
    took_s: float
    rows_in: Mapping[str, int]
    rows_out: int
    state_rows: int
    state_bytes: int
    late: Mapping[str, int] = field(default_factory=dict)
    shed: Mapping[str, int] = field(default_factory=dict)
    watermark_us: int | None = None
    newest_us: int | None = None
    operators_s: Mapping[str, float] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)

    @property
    def watermark_lag_s(self) -> float | None:
        """How far the watermark is behind the newest event time: how long a row may still be waited for."""
        if self.watermark_us is None or self.newest_us is None:
            return None
        return (self.newest_us - self.watermark_us) / 1e6

    def to_dict(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "ended_s": self.ended_s,
            "took_s": self.took_s,
            "rows_in": dict(self.rows_in),
            "rows_out": self.rows_out,
            "late": dict(self.late),
            "shed": dict(self.shed),
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "watermark_us": self.watermark_us,
            "newest_us": self.newest_us,
            "watermark_lag_s": self.watermark_lag_s,
            "operators_s": dict(self.operators_s),
        }


#: Whoever wants to see each batch when it is over.
Observer = Callable[[BatchFigures], None]


def observed(run: EmbeddedRun, observe: Observer) -> pa.Table:
    """All results of an embedded run over finite data, every batch shown to the observer when it is over."""
    results: list[pa.RecordBatch] = []
    waiting: dict[str, pa.Table] = {}
    number = 0
    for tables in run.rounds():  # one round behind, to know which is the last
        if waiting:
            found, figures = advanced(run, number, waiting)
            observe(figures)
            results += found
            number += 1
        waiting = tables
    found, figures = advanced(run, number, waiting, last=True)
    observe(figures)
    return run.gathered(results + found)


def advanced(
    run: EmbeddedRun, batch: int, tables: Mapping[str, pa.Table], *, last: bool = False
) -> tuple[list[pa.RecordBatch], BatchFigures]:
    """One batch of an embedded run, with its figures."""
    spent = dict(run.tally.watch.spent_s)
    started, before_s = time.perf_counter(), worked_s()
    results = run.advance(tables, last=last)
    took_s, spent_s = time.perf_counter() - started, worked_s() - before_s
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
    """Seconds of this batch by operator; work of no single input goes by the operator's name alone, and `batches` is what is left."""
    aliases = {each.number: f" {each.alias}" for each in run.config.inputs} | {ALL: ""}
    spent = {key: seconds - before.get(key, 0.0) for key, seconds in run.tally.watch.spent_s.items()}
    by_origin = sum(
        seconds for (operator, number), seconds in spent.items() if operator == PROBE and number != ALL
    )  # in the sum of all probes
    rest = max(0.0, worked_s - (sum(spent.values()) - by_origin))
    return {**{operator + aliases[number]: seconds for (operator, number), seconds in spent.items()}, "batches": rest}
