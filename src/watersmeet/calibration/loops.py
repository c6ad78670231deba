"""What the engine spends on nested loops besides touching rows, on predicates asked of candidates, on small batches and
on counted rows.

Short runs of whole meets, as in `around`. Of what such a run takes, the structures' weights and those around the
kernels account for a part by then; least squares split the rest over rows laid out, matches handed on and batches. A
predicate, a probe of a small batch and the counting of a ROWS window cost what a run takes longer with them than
without.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.calibration.around import BATCHES, WINDOW_BATCHES, BatchWeights, generate_batches, run_batches
from watersmeet.calibration.measurement import FIELDS, build_join_config, fit_weights, measure_cpu
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.profile import Structure
from watersmeet.sql import bind, parse


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
