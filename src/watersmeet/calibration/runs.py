"""What grouped runs cost, the production structure: a row put into a run, a lookup in one, a match found.

An update is counted once per row: a pane leaves as a whole, so expiration touches no row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.algebra.plan import Plan
from watersmeet.calibration.measurement import A, B, build_join_config, build_pane, fit_weights, measure_cpu
from watersmeet.kernels.grouped_run import count_matches, fill_matches
from watersmeet.operators.window_join.pane import GroupedRun, Int64s, Pane
from watersmeet.planner.models.profile import Structure

_BY_KEY = (0,)  # the only equality class of two streams that join on one key


@dataclass(frozen=True, slots=True)
class RunPoint:
    """Rows in the run and as many lookups, the matches they found, and the seconds of building the run and of looking
    it up.
    """

    rows: int
    matches: int
    build_s: float
    probe_s: float


def fit_run_weights(points: list[RunPoint]) -> Structure:
    (update_s,) = fit_weights([(each.rows,) for each in points], [each.build_s for each in points])
    compare_s, lookup_s = fit_weights([(each.matches, each.rows) for each in points], [each.probe_s for each in points])
    return Structure(compare_s, update_s, lookup_s)


def measure_run_points(repeats: int, *, quick: bool) -> list[RunPoint]:
    sizes = (8_000, 64_000) if quick else (8_000, 32_000, 128_000, 512_000)
    return [
        measure_run_point(rows, matches, repeats)
        for rows in sizes
        for matches in ((1, 8) if quick else (1, 2, 4, 8, 16))
    ]


def measure_run_point(rows: int, matches_per_lookup: int, repeats: int) -> RunPoint:
    """As many lookups as the run has rows, in the order in which new rows of the other input make them."""
    rng = np.random.default_rng([rows, matches_per_lookup])
    config = build_join_config(Plan())
    times, keys = np.arange(rows), rng.integers(0, max(1, rows // matches_per_lookup), (2, rows))
    window, probing = build_pane(config, B, times, keys[0]), build_pane(config, A, times, keys[1])
    run = window.run(_BY_KEY)
    probes = probing.codes[0][probing.run(_BY_KEY).rows]
    build = measure_cpu(lambda: _without_runs(window).run(_BY_KEY), repeats)
    found = measure_cpu(lambda: _look_up(run, probes, rows), repeats)
    return RunPoint(rows, found.result, build.seconds, found.seconds)


def _without_runs(window: Pane) -> Pane:
    """The same rows without the runs that were built before."""
    return Pane(window.times, window.columns, window.keys, window.codes)


def _look_up(run: GroupedRun, keys: Int64s, until_us: int) -> int:
    """Counts, then allocates, then fills, as the production tactic does; returns the matches."""
    since, until = np.zeros(keys.size, np.int64), np.full(keys.size, until_us, np.int64)
    first, count = np.empty(keys.size, np.int64), np.empty(keys.size, np.int32)
    total = count_matches(
        run.slots, run.group_keys, run.offsets, run.times, run.ends, keys, since, until, since, first, count
    )
    lookups, rows = np.empty(total, np.int32), np.empty(total, np.int32)
    return fill_matches(run.rows, first, count, 0, lookups, rows, 0)
