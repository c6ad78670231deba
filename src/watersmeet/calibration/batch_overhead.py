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
from watersmeet.operators.window_join.admission import InputBatch
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import join_batch
from watersmeet.operators.window_join.state import empty_state
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.profile import Structure
from watersmeet.sql import bind, parse

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


@dataclass(frozen=True, slots=True)
class LoopPoint:
    """A short run of nested loops: rows in, rows laid out over all batches, matches, what its kernel counted, seconds."""

    kind: str
    rows: int
    laid_out: int
    matches: int
    compared: int
    lookups: int
    updates: int
    seconds: float

    def known_s(self, structure: Structure, around: BatchWeights) -> float:
        loops = (
            self.compared * structure.compare_s + self.lookups * structure.lookup_s + self.updates * structure.update_s
        )
        return loops + BATCHES * around.batch_s + self.rows * around.row_in_s + self.matches * around.row_out_s


@dataclass(frozen=True, slots=True)
class LoopWeights:
    """The weights, named as in a profile."""

    loop_match_s: float
    layout_s: float
    loops_batch_s: float
    measure_check_s: float
    measure_probe_batch_s: float
    measure_count_s: float
    measure_scan_s: float
    measure_node_batch_s: float


def measure_loop_weights(
    structures: dict[str, Structure], around: BatchWeights, repeats: int, *, quick: bool
) -> LoopWeights:
    found = measure_loop_points(repeats, quick=quick)
    match_s, layout_s, batch_s = fit_weights(
        [(each.matches, each.laid_out, BATCHES) for each in found],
        [each.seconds for each in found],
        [each.known_s(structures[each.kind], around) for each in found],
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
    sizes, densities = ((1, 1000), (1, 8)) if quick else ((1, 500, 2000), (1, 8, 64))
    return [
        measure_loop_point(kind, rows, matches, repeats)
        for kind in ("list", "hash")
        for rows in sizes
        for matches in densities
    ]


def measure_loop_point(kind: str, rows: int, matches_per_row: int, repeats: int) -> LoopPoint:
    window_us = WINDOW_BATCHES * rows
    index = Index("hash", 1021) if kind == "hash" else Index()
    config = build_join_config(
        Plan("window-join", indexes=(("a", index), ("b", index))), window_a_us=window_us, window_b_us=window_us
    )
    batches, tally = generate_batches(rows, matches_per_row), WorkCounters(2)
    ran = run_batches(config, batches, tally)
    seconds = measure_cpu(lambda: run_batches(config, batches), repeats).seconds
    held = sum(min(number, WINDOW_BATCHES) for number in range(BATCHES)) * 2 * rows
    updates = int(tally.inserts.sum() + tally.expirations.sum())
    compared, lookups = int(tally.comparisons.sum()), int(tally.probes.sum())
    return LoopPoint(
        kind, BATCHES * 2 * rows, held + BATCHES * 2 * rows, ran.results, compared, lookups, updates, seconds
    )


def measure_check_s(rows: int, repeats: int) -> float:
    """Seconds per candidate that a comparison between two streams is evaluated on."""
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
    """Seconds per pane that a batch of next to nothing looks into: twelve such probes in a join of four, two in a join
    of two.
    """
    few, many = (_measure_small_batches(streams, repeats) for streams in (2, 4))
    rows = 2 * few  # inputs cost as well: the part of a batch that grows with them is not a probe's
    return max(0.0, many - rows) / (BATCHES * (12 - 2 * 2) * 2)


def measure_node_batch_s(repeats: int) -> float:
    """Seconds per node and batch of next to nothing, as a tree of four streams with its three nodes takes them longer
    than runs do.
    """
    longer = _measure_small_batches(4, repeats, Plan("tree")) - _measure_small_batches(4, repeats)
    return max(0.0, longer) / (BATCHES * 3)


def _measure_small_batches(streams: int, repeats: int, plan: Plan | None = None) -> float:
    config = _build_common_key_join(streams, ["RANGE 10 MICROSECONDS"] * streams, plan)
    one = generate_batches(1, 1)
    batches = [{i: batch[i % 2] for i in range(streams)} for batch in one]
    return measure_cpu(lambda: run_batches(config, batches), repeats).seconds


def measure_count_s(rows: int, repeats: int) -> float:
    """Seconds per row of a ROWS window, which is put in order and counted, beyond those of a window in time."""
    batches, held = generate_batches(rows, 0), WINDOW_BATCHES * rows

    def seconds(window: str) -> float:
        config = _build_common_key_join(2, [window, window])
        return measure_cpu(lambda: run_batches(config, batches), repeats).seconds

    return max(0.0, seconds(f"ROWS {held}") - seconds(f"RANGE {held} MICROSECONDS")) / (BATCHES * 2 * rows)


def measure_scan_s(rows: int, repeats: int) -> float:
    """Seconds per row of a window that no equality leads into, so that times and conditions of all of it are looked at."""
    text = "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.id > b.id + 1000000000 AND b.k > a.k + 1000000000"
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
