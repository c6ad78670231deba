"""A run that adapts its plan after a rate jump, against one with the right plan and one with the wrong plan.

The three run in turns, batch by batch, in one process, so that other load on the machine slows all of them alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet.operators.parallel import cpu_seconds
from watersmeet.runtime.embedded.adaptive import Decision
from watersmeet.runtime.embedded.run import EmbeddedRun
from watersmeet_lab.workloads.rate_jump import JUMP_QUERY, RateJump

#: Batches of one second until the window of the fast stream has filled after a jump.
_WINDOW_FILL_BATCHES = 10


@dataclass(frozen=True, slots=True)
class AdaptationResult:
    """CPU seconds per batch after the jump, by run.

    Includes the decisions of the adaptive run, and the number of plan changes of a run on steady streams.
    """

    adaptive_s: float
    right_s: float
    wrong_s: float
    decisions: tuple[Decision, ...]
    steady_changes: int

    @property
    def ratio(self) -> float:
        """CPU time relative to a run with the right plan from the start."""
        return self.adaptive_s / self.right_s


def measure_adaptation(workload: RateJump | None = None) -> AdaptationResult:
    """Run the adaptive run, the one with the right plan and the one with the wrong plan."""
    workload = workload or RateJump(rows_per_s=5_000, batches=100, at=40)
    scout = wm.run(JUMP_QUERY, workload.streams())
    before = scout.config.plan
    _cpu_s_per_batch([scout], workload)
    runs = [
        wm.run(JUMP_QUERY, workload.streams()),
        wm.run(JUMP_QUERY, workload.streams(), plan=scout.config.plan),
        wm.run(JUMP_QUERY, workload.streams(), plan=before),
    ]
    adaptive_s, right_s, wrong_s = _cpu_s_per_batch(runs, workload)
    steady = wm.run(JUMP_QUERY, replace(workload, at=workload.batches).streams())
    _cpu_s_per_batch([steady], replace(workload, at=workload.batches))
    late_changes = [
        decision for decision in steady.decisions if decision.changed and decision.batch > _WINDOW_FILL_BATCHES
    ]
    return AdaptationResult(adaptive_s, right_s, wrong_s, tuple(runs[0].decisions), len(late_changes))


def _cpu_s_per_batch(runs: list[EmbeddedRun], workload: RateJump) -> list[float]:
    """Return CPU seconds per batch of every run after the window has refilled; check that row counts agree."""
    tables = {name: workload.tables(name) for name in "abc"}
    spent, rows = [0.0] * len(runs), [0] * len(runs)
    measured = range(workload.at + _WINDOW_FILL_BATCHES, workload.batches)
    for number in range(workload.batches):
        for place, run in enumerate(runs):
            started = cpu_seconds()
            rows[place] += sum(
                batch.num_rows for batch in run.advance({name: parts[number] for name, parts in tables.items()})
            )
            spent[place] += (cpu_seconds() - started) * (number in measured)
    if len(set(rows)) > 1:
        raise WatersmeetError(f"the runs give different numbers of rows: {rows}")
    return [each / max(1, len(measured)) for each in spent]
