"""Metrics of one batch, the same for both hosts: the live view, the dashboard and logs read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from watersmeet.algebra.plan import Plan


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """Metrics of one batch: rows by stream, duration, state size and watermark.

    `ended_s` is the wall clock at the end of the batch and `took_s` its duration. `operators_s` are CPU seconds by
    operator, named as in the cost model (`ingest a`, `store a`, `probe a`, `emit`, and `batches` for the rest).
    `newest_us` is the largest event time seen so far.
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
        """Distance of the watermark from the newest event time: how late a row may still arrive."""
        if self.watermark_us is None or self.newest_us is None:
            return None
        return (self.newest_us - self.watermark_us) / 1e6

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as JSON values."""
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


#: Called after every batch.
Observer = Callable[[BatchMetrics], None]


def ignore_metrics(metrics: BatchMetrics) -> None:
    """Observe nothing."""
