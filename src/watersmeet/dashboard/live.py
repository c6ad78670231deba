"""Live state of a run for the page: the metrics of recent batches, totals, and the log of plan changes.

Either host feeds it from its own thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from watersmeet.algebra.plan import Plan, describe_plan
from watersmeet.metrics import BatchMetrics

#: Batches kept for the charts; totals count all of them.
MAX_BATCHES = 2_000
_MAX_CHANGES = 200


@dataclass
class LiveRun:
    """Metrics of a run. A host calls `observe` after each batch, from any thread; the page calls `since`."""

    recent: deque[BatchMetrics] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES))
    changes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MAX_CHANGES))
    status: str = "waiting"
    seen: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    shed: int = 0
    _plan: Plan | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def observe(self, metrics: BatchMetrics) -> None:
        """Add the metrics of a batch, and log a plan change if its plan differs from that of the last batch."""
        with self._lock:
            if self._plan is not None and metrics.plan != self._plan:
                self._note(metrics.batch, _describe_plan_change(self._plan, metrics.plan))
            elif self._plan is None:
                self._note(metrics.batch, f"started with {describe_plan(metrics.plan)}")
            self._plan = metrics.plan
            self.recent.append(metrics)
            self.seen += 1
            self.rows_in += sum(metrics.rows_in.values())
            self.rows_out += metrics.rows_out
            self.late += sum(metrics.late.values())
            self.shed += sum(metrics.shed.values())
            self.status = "running"

    def note(self, text: str) -> None:
        """Add a line to the log of decisions."""
        with self._lock:
            self._note(self.recent[-1].batch if self.recent else 0, text)

    def end(self, status: str) -> None:
        with self._lock:
            self.status = status

    def since(self, seen: int) -> dict[str, Any]:
        """Return the metrics of batches after the first `seen`, the totals and the whole log."""
        with self._lock:
            new = min(max(self.seen - seen, 0), len(self.recent))
            latest = list(self.recent)[len(self.recent) - new :]
            return {
                "status": self.status,
                "seen": self.seen,
                "totals": {"rows_in": self.rows_in, "rows_out": self.rows_out, "late": self.late, "shed": self.shed},
                "figures": [each.to_dict() for each in latest],
                "changes": list(self.changes),
            }

    def _note(self, batch: int, text: str) -> None:
        self.changes.append({"at_s": time.time(), "batch": batch, "words": text})


def _describe_plan_change(before: Plan, now: Plan) -> str:
    """Describe a plan change. Plans with the same description differ in their probe orders."""
    old, new = describe_plan(before), describe_plan(now)
    return f"{new} as before, with a new probe order" if new == old else f"now {new}, before {old}"
