"""Costs of the embedded engine outside the index structures: batches, rows in, predicates, matches, rows out, loops.

Short runs of whole joins are measured, from empty windows to windows that slide. So merging panes and concatenating
columns are part of the weights, at their usual frequency. The cost of the structures is already known. Least squares
splits the rest over the quantities that differ between runs. These are rows per batch, matches per row, whether a
predicate is evaluated on each row of `a`, and whether rows are emitted.

The same method gives the costs of nested loops outside the structures: rows laid out, matches passed on, and batches.
The cost of a predicate, of a probe in a small batch and of counting rows for a ROWS window is the extra time of a run
with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.calibration.measurement import (
    FIELDS,
    A,
    B,
    build_input_batch,
    build_join_config,
    fit_weights,
    measure_cpu,
)
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import join_batch
from watersmeet.operators.window_join.state import empty_state
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.profile import Structure
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

BATCHES, WINDOW_BATCHES = 12, 4


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """A short run: rows in, rows that a predicate was evaluated on, lookups, matches, rows emitted, seconds."""

    rows: int
    selected: int
    lookups: int
    matches: int
    emitted: int
    seconds: float

    def runs_s(self, runs: Structure) -> float:
        """Return the seconds that grouped runs account for."""
        return self.rows * runs.update_s + self.lookups * runs.lookup_s + self.matches * runs.compare_s


@dataclass(frozen=True, slots=True)
class BatchWeights:
    """Weights of a batch, named as in a profile."""

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
    """Fit the weights to the time that grouped runs do not account for."""
    return BatchWeights(
        *fit_weights(
            [(BATCHES, each.rows, each.selected, each.matches, each.emitted) for each in points],
            [each.seconds for each in points],
            [each.runs_s(runs) for each in points],
        )
    )


def measure_batch_points(repeats: int, *, quick: bool) -> list[BatchPoint]:
    """Measure runs with every combination of batch size, matches per row, predicate and output."""
    sizes, densities = ((1, 5_000), (1, 8)) if quick else ((1, 2_000, 10_000, 50_000), (0, 1, 8))
    return [
        measure_batch_point(rows, matches, repeats, selects=selects, emits=emits)
        for rows in sizes
        for matches in densities
        for selects in (False, True)
        for emits in (False, True)
    ]


def measure_batch_point(rows: int, matches_per_row: int, repeats: int, *, selects: bool, emits: bool) -> BatchPoint:
    """Measure a run with `rows` rows of each stream per batch, each with `matches_per_row` matches in a full window.

    The predicate passes every row: its saving shows in rows and matches, not in its weight.
    """
    window_us = WINDOW_BATCHES * rows
    emitting = build_join_config(
        Plan(), window_a_us=window_us, window_b_us=window_us, where=" AND a.id >= 0" if selects else ""
    )
    config = emitting if emits else replace(emitting, outputs=(), result=pa.schema([]))
    batches = generate_batches(rows, matches_per_row)
    matches = run_batches(emitting, batches).results
    taken = measure_cpu(lambda: run_batches(config, batches), repeats)
    return BatchPoint(
        rows=BATCHES * 2 * rows,
        selected=BATCHES * rows if selects else 0,
        lookups=taken.result.lookups,
        matches=matches,
        emitted=matches if emits else 0,
        seconds=taken.seconds,
    )


def generate_batches(rows: int, matches_per_row: int) -> list[dict[int, InputBatch]]:
    """Generate batches with one row of each stream per microsecond."""
    rng = np.random.default_rng([rows, matches_per_row])
    distinct = max(1, WINDOW_BATCHES * rows // max(1, matches_per_row))
    first_key = {A: 0, B: 0 if matches_per_row else distinct}  # without matches, keys of A and B are disjoint
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
    """Run the join and count lookups and results.

    By the batch rule, new rows of A probe the old panes of B, and new rows of B probe the old panes of A and the new
    one.
    """
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


@dataclass(frozen=True, slots=True)
class LoopPoint:
    """A short run of nested loops: rows in, rows laid out over all batches, matches, kernel counters, seconds."""

    kind: str
    rows: int
    laid_out: int
    matches: int
    compared: int
    lookups: int
    updates: int
    seconds: float

    def known_s(self, structure: Structure, batch_weights: BatchWeights) -> float:
        """Return the seconds that the structure and the batch weights account for."""
        loops = (
            self.compared * structure.compare_s + self.lookups * structure.lookup_s + self.updates * structure.update_s
        )
        return (
            loops
            + BATCHES * batch_weights.batch_s
            + self.rows * batch_weights.row_in_s
            + self.matches * batch_weights.row_out_s
        )


@dataclass(frozen=True, slots=True)
class LoopWeights:
    """Weights of nested loops and small batches, named as in a profile."""

    loop_match_s: float
    layout_s: float
    loops_batch_s: float
    check_s: float
    probe_batch_s: float
    count_s: float
    scan_s: float
    node_batch_s: float


def measure_loop_weights(
    structures: dict[str, Structure], batch_weights: BatchWeights, repeats: int, *, quick: bool
) -> LoopWeights:
    """Measure the weights of nested loops, predicates on candidates, small batches and counted rows."""
    found = measure_loop_points(repeats, quick=quick)
    match_s, layout_s, batch_s = fit_weights(
        [(each.matches, each.laid_out, BATCHES) for each in found],
        [each.seconds for each in found],
        [each.known_s(structures[each.kind], batch_weights) for each in found],
    )
    rows = 2_000 if quick else 10_000
    small = (
        measure_probe_batch_s(repeats),
        measure_count_s(rows, repeats),
        measure_scan_s(rows // 4, repeats),
        measure_node_batch_s(repeats),
    )
    return LoopWeights(match_s, layout_s, batch_s, measure_check_s(rows, repeats), *small)


def measure_loop_points(repeats: int, *, quick: bool) -> list[LoopPoint]:
    """Measure runs of nested loops with every combination of structure, batch size and matches per row."""
    sizes, densities = ((1, 1000), (1, 8)) if quick else ((1, 500, 2000), (1, 8, 64))
    return [
        measure_loop_point(kind, rows, matches, repeats)
        for kind in ("list", "hash")
        for rows in sizes
        for matches in densities
    ]


def measure_loop_point(kind: str, rows: int, matches_per_row: int, repeats: int) -> LoopPoint:
    """Measure one run of nested loops over lists or hash indexes."""
    window_us = WINDOW_BATCHES * rows
    index = Index("hash", 1021) if kind == "hash" else Index()
    config = build_join_config(
        Plan("window-join", indexes=(("a", index), ("b", index))), window_a_us=window_us, window_b_us=window_us
    )
    batches, tally = generate_batches(rows, matches_per_row), WorkCounters(2)
    ran = run_batches(config, batches, tally)
    seconds = measure_cpu(lambda: run_batches(config, batches), repeats).seconds
    updates = int(tally.inserts.sum() + tally.expirations.sum())
    compared, lookups = int(tally.comparisons.sum()), int(tally.probes.sum())
    laid_out = BATCHES * 2 * rows * (2 if kind == "hash" else 1)  # once flat, and once more into buckets
    return LoopPoint(kind, BATCHES * 2 * rows, laid_out, ran.results, compared, lookups, updates, seconds)


def measure_check_s(rows: int, repeats: int) -> float:
    """Measure seconds per candidate that a comparison between two streams is evaluated on."""
    window_us = WINDOW_BATCHES * rows
    plain, checked = (
        build_join_config(Plan(), window_a_us=window_us, window_b_us=window_us, where=where)
        for where in ("", " AND a.id <= b.id + 1000000000")
    )
    batches = generate_batches(rows, 8)
    candidates = run_batches(plain, batches).results
    longer = (
        measure_cpu(lambda: run_batches(checked, batches), repeats).seconds
        - measure_cpu(lambda: run_batches(plain, batches), repeats).seconds
    )
    return max(0.0, longer) / candidates


def measure_probe_batch_s(repeats: int) -> float:
    """Measure seconds per pane that a tiny batch probes: twelve probes in a join of four, two in a join of two."""
    few, many = (_measure_small_batches(streams, repeats) for streams in (2, 4))
    rows = 2 * few  # twice as many inputs also cost twice as much outside the probes
    return max(0.0, many - rows) / (BATCHES * (12 - 2 * 2) * 2)


def measure_node_batch_s(repeats: int) -> float:
    """Measure seconds per node and tiny batch: the extra time of a tree of four streams, which has three nodes."""
    longer = _measure_small_batches(4, repeats, Plan("tree")) - _measure_small_batches(4, repeats)
    return max(0.0, longer) / (BATCHES * 3)


def _measure_small_batches(streams: int, repeats: int, plan: Plan | None = None) -> float:
    config = _build_common_key_join(streams, ["RANGE 10 MICROSECONDS"] * streams, plan)
    one = generate_batches(1, 1)
    batches = [{i: batch[i % 2] for i in range(streams)} for batch in one]
    return measure_cpu(lambda: run_batches(config, batches), repeats).seconds


def measure_count_s(rows: int, repeats: int) -> float:
    """Measure seconds per row for ordering and counting a ROWS window, in addition to those of a time window."""
    batches, held = generate_batches(rows, 0), WINDOW_BATCHES * rows

    def seconds(window: str) -> float:
        config = _build_common_key_join(2, [window, window])
        return measure_cpu(lambda: run_batches(config, batches), repeats).seconds

    return max(0.0, seconds(f"ROWS {held}") - seconds(f"RANGE {held} MICROSECONDS")) / (BATCHES * 2 * rows)


def measure_scan_s(rows: int, repeats: int) -> float:
    """Measure seconds per row of a window that no equality leads into, so all times and conditions are tested."""
    text = (
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR]"
        " WHERE a.id > b.id + 1000000000 AND b.k > a.k + 1000000000"
    )
    schemas = {name: StreamSchema(name, FIELDS, "ts") for name in ("a", "b")}
    config = compile_join_config(bind(parse(text), schemas), Plan("eager-nlj"))
    batches, tally = generate_batches(rows, 0)[:2], WorkCounters(2)
    run_batches(config, batches, tally)
    return measure_cpu(lambda: run_batches(config, batches), repeats).seconds / int(tally.comparisons.sum())


def _build_common_key_join(streams: int, windows: list[str], plan: Plan | None = None) -> JoinConfig:
    names = "abcd"[:streams]
    sources = ", ".join(f"{name} [{window}]" for name, window in zip(names, windows, strict=True))
    where = " AND ".join(f"a.k = {name}.k" for name in names[1:])
    text = f"SELECT {', '.join(f'{name}.id AS {name}_id' for name in names)} FROM {sources} WHERE {where}"
    return compile_join_config(
        bind(parse(text), {name: StreamSchema(name, FIELDS, "ts") for name in names}), plan or Plan()
    )
