"""What the embedded engine spends around the kernels: on a batch, a row that comes in, a predicate, a match, a row that
goes out.

Short runs of the meet are measured, from nothing to windows that slide, so that keeping panes few and putting columns
together is in the weights at the rate at which it happens. What grouped runs account for is known by then; the rest is
split by least squares over what differs: rows per batch, matches per row, whether a predicate is asked of each row of
`a`, whether rows are put out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.calibration.measurement import A, B, build_input_batch, build_join_config, fit_weights, measure_cpu
from watersmeet.operators.window_join.admission import InputBatch
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import join_batch
from watersmeet.operators.window_join.state import empty_state
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.profile import Structure

BATCHES, WINDOW_BATCHES = 12, 4


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """A short run: rows that came in, rows a predicate was asked of, lookups, matches, rows put out, seconds."""

    rows: int
    asked: int
    lookups: int
    matches: int
    put_out: int
    seconds: float

    def runs_s(self, runs: Structure) -> float:
        return self.rows * runs.update_s + self.lookups * runs.lookup_s + self.matches * runs.compare_s


@dataclass(frozen=True, slots=True)
class BatchWeights:
    """The weights, named as in a profile."""

    batch_s: float
    row_in_s: float
    select_s: float
    match_s: float
    row_out_s: float


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """Lookups and results of a run."""

    lookups: int
    results: int


def fit_batch_weights(points: list[BatchPoint], runs: Structure) -> BatchWeights:
    return BatchWeights(
        *fit_weights(
            [(BATCHES, each.rows, each.asked, each.matches, each.put_out) for each in points],
            [each.seconds for each in points],
            [each.runs_s(runs) for each in points],
        )
    )


def measure_batch_points(repeats: int, *, quick: bool) -> list[BatchPoint]:
    sizes, densities = ((1, 5_000), (1, 8)) if quick else ((1, 2_000, 10_000, 50_000), (0, 1, 8))
    return [
        measure_batch_point(rows, matches, repeats, selects=selects, puts_out=puts_out)
        for rows in sizes
        for matches in densities
        for selects in (False, True)
        for puts_out in (False, True)
    ]


def measure_batch_point(rows: int, matches_per_row: int, repeats: int, *, selects: bool, puts_out: bool) -> BatchPoint:
    """A run with `rows` rows of each stream in a batch, each of which meets so many in a full window.

    The predicate lets every row pass: what it saves is counted in rows and matches, not in its weight.
    """
    window_us = WINDOW_BATCHES * rows
    loud = build_join_config(
        Plan(), window_a_us=window_us, window_b_us=window_us, where=" AND a.id >= 0" if selects else ""
    )
    config = loud if puts_out else replace(loud, outputs=(), result=pa.schema([]))
    batches = generate_batches(rows, matches_per_row)
    matches = run_batches(loud, batches).results
    taken = measure_cpu(lambda: run_batches(config, batches), repeats)
    return BatchPoint(
        rows=BATCHES * 2 * rows,
        asked=BATCHES * rows if selects else 0,
        lookups=taken.result.lookups,
        matches=matches,
        put_out=matches if puts_out else 0,
        seconds=taken.seconds,
    )


def generate_batches(rows: int, matches_per_row: int) -> list[dict[int, InputBatch]]:
    """One row of each stream per microsecond."""
    rng = np.random.default_rng([rows, matches_per_row])
    distinct = max(1, WINDOW_BATCHES * rows // max(1, matches_per_row))
    first_key = {A: 0, B: 0 if matches_per_row else distinct}  # keys that never meet where there are to be no matches
    return [
        {
            i: build_input_batch(number * rows + np.arange(rows), first_key[i] + rng.integers(0, distinct, rows))
            for i in (A, B)
        }
        for number in range(BATCHES)
    ]


def run_batches(
    config: JoinConfig, batches: list[dict[int, InputBatch]], tally: WorkCounters | None = None
) -> CalibrationRun:
    """By the batch rule, new rows of A look up the old panes of B, and new rows of B the old ones of A and the new one."""
    state = empty_state(config)
    lookups = results = 0
    for batch in batches:
        after_us = int(batch[A].times[-1]) + 1
        before, stepped = state.inputs, join_batch(config, state, batch, -FOREVER_US, after_us)
        lookups += len(batch[A]) * len(before[B].panes) + len(batch[B]) * (len(before[A].panes) + 1)
        results += stepped.counters.results
        if tally is not None:
            tally.add(stepped.counters.tally)
        state = stepped.state
    return CalibrationRun(lookups, results)
