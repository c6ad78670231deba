"""Costs of probing and updating a window by structure: list, hash, B+tree, T-tree, and the grouped runs of production.

The first four are measured inside the join that uses them. Window B has the structure. In a probe-only load, rows of A
arrive and probe B without a match. In an update-only load, rows of B arrive, each evicts one row, and each probes a
window A that holds one row. A load is processed in one batch, without delays, at rising sizes and rates. The time to
lay out the window before the first arrival is measured separately and subtracted.

All four run in the same loops (`kernels.nested_loops`), so their weights are comparable. The fixed part of a lookup
includes the loops' own work for the arriving row, and its insertion into a list. The update weight is the cost beyond
that.

Grouped runs are built, then probed. An update counts once per row: a pane is evicted as a whole, so expiration touches
no row.

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams", section 4.2, "Estimating the
Weight Factors".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.algebra.plan import DEFAULT_NODE_ROWS, Index, Plan
from watersmeet.calibration.measurement import (
    A,
    B,
    TimedResult,
    build_join_config,
    build_window_pane,
    draw_even_keys,
    draw_odd_keys,
    fit_weights,
    measure_cpu,
)
from watersmeet.kernels.grouped_run import count_matches, fill_matches
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import GroupedRun, Int64s, Pane
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import DerivedState
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.kang import btree_path_rows, ttree_path_rows
from watersmeet.planner.models.profile import Structure

#: Few enough buckets that comparing the rows of a long one takes as long as finding it.
INDEXES = {
    "list": Index(),
    "hash": Index("hash", 101),
    "btree": Index("btree", DEFAULT_NODE_ROWS),
    "ttree": Index("ttree", DEFAULT_NODE_ROWS),
}
PATH_ROWS = {"btree": btree_path_rows, "ttree": ttree_path_rows}

#: Arrivals at the lowest rate: enough for a few milliseconds.
ARRIVALS = 20_000

#: Rows of the windows: from buckets of ten rows and trees of one node up, to separate fixed from growing costs.
SIZES = {
    "list": (500, 1000, 2500, 5000, 20_000),
    "hash": (1000, 2000, 5000, 10_000, 40_000),
    "btree": (100, 1000, 5000, 20_000, 80_000),
    "ttree": (100, 1000, 5000, 20_000, 80_000),
}


@dataclass(frozen=True, slots=True)
class IndexLoad:
    """Rows of a window, and the number of arrivals that probe or update it."""

    window_rows: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """A probe-only load: rows compared as the cost model counts them, lookups, seconds, and layout seconds."""

    compared: float
    lookups: int
    layout_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class UpdatePoint:
    """An update-only load: rows touched as the cost model counts them, seconds, and the seconds of layout and loops.

    The seconds of the loops are measured with the same rows entering a list that no row leaves.
    """

    touched: float
    layout_s: float
    loops_s: float
    seconds: float


def probe_loads(kind: str, *, quick: bool) -> list[IndexLoad]:
    """Return the probe loads: the update loads, with fewer arrivals if each of them compares a whole list."""
    return [
        IndexLoad(each.window_rows, max(1000, each.arrivals * 500 // each.window_rows)) if kind == "list" else each
        for each in update_loads(kind, quick=quick)
    ]


def update_loads(kind: str, *, quick: bool) -> list[IndexLoad]:
    """Return twenty loads of rising size and rate, as many as the paper's; six if `quick`."""
    sizes, rates = (SIZES[kind][::2], (1, 2)) if quick else (SIZES[kind], (1, 2, 3, 4))
    return [IndexLoad(rows, rate * ARRIVALS) for rows in sizes for rate in rates]


def fit_structure(probed: list[ProbePoint], updated: list[UpdatePoint]) -> Structure:
    """Fit the weights to both kinds of load."""
    compare_s, lookup_s = fit_weights(
        [(each.compared, each.lookups) for each in probed],
        [each.seconds for each in probed],
        [each.layout_s for each in probed],
    )
    (update_s,) = fit_weights(
        [(each.touched,) for each in updated],
        [each.seconds for each in updated],
        [each.layout_s + each.loops_s for each in updated],
    )
    return Structure(compare_s, update_s, lookup_s)


def measure_probes(kind: str, load: IndexLoad, repeats: int) -> ProbePoint:
    """Measure a probe-only load: rows of A probe a full window B and find no match."""
    rng = np.random.default_rng([load.window_rows, load.arrivals])
    config = build_join_config(_plan(kind))
    window = build_window_pane(config, B, np.arange(load.window_rows), draw_even_keys(rng, load.window_rows))
    keys = draw_odd_keys(rng, load.arrivals)

    def new(arrivals: int) -> dict[int, Pane]:
        return {
            A: build_window_pane(config, A, np.full(arrivals, load.window_rows), keys[:arrivals]),
            B: _no_rows(config, B),
        }

    whole, layout = _measure_join_and_layout(config, [(), (window,)], new(load.arrivals), new(1), repeats)
    lookups, compared = int(whole.result.probes[A, B]), float(whole.result.comparisons[A, B])
    touched = lookups * _path_rows(kind, load.window_rows) if kind in PATH_ROWS else compared
    return ProbePoint(touched, lookups, layout.seconds, whole.seconds)


def measure_updates(kind: str, load: IndexLoad, repeats: int) -> UpdatePoint:
    """Measure an update-only load: rows of B evict each other from a full window and probe one row of window A."""
    steady, layout = _measure_arrivals(kind, load, repeats, window_us=load.window_rows)
    bare, bare_layout = _measure_arrivals("list", load, repeats, window_us=2 * (load.window_rows + load.arrivals))
    updates = int(steady.result.inserts[B] + steady.result.expirations[B])
    touched = updates * _path_rows(kind, load.window_rows)
    return UpdatePoint(touched, layout.seconds, max(0.0, bare.seconds - bare_layout.seconds), steady.seconds)


def _measure_arrivals(
    kind: str, load: IndexLoad, repeats: int, window_us: int
) -> tuple[TimedResult[WorkCounters], TimedResult[WorkCounters]]:
    """Measure the join of rows of B that arrive one microsecond apart."""
    rng = np.random.default_rng([load.window_rows, load.arrivals, 1])
    config = build_join_config(_plan(kind), window_b_us=window_us)
    window = build_window_pane(config, B, np.arange(load.window_rows), draw_even_keys(rng, load.window_rows))
    other = build_window_pane(config, A, np.array([load.window_rows]), draw_odd_keys(rng, 1))
    keys = draw_even_keys(rng, load.arrivals)

    def new(arrivals: int) -> dict[int, Pane]:
        times = load.window_rows + np.arange(arrivals)
        return {A: _no_rows(config, A), B: build_window_pane(config, B, times, keys[:arrivals])}

    return _measure_join_and_layout(config, [(other,), (window,)], new(load.arrivals), new(1), repeats)


def _measure_join_and_layout(
    config: JoinConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane], single_arrival: dict[int, Pane], repeats: int
) -> tuple[TimedResult[WorkCounters], TimedResult[WorkCounters]]:
    """Measure the join of all arrivals, and of a single one, which is the time to lay out the windows."""
    return measure_cpu(lambda: _join_once(config, old, new), repeats), measure_cpu(
        lambda: _join_once(config, old, single_arrival), repeats
    )


def _join_once(config: JoinConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane]) -> WorkCounters:
    tally = WorkCounters(len(config.inputs))
    for _ in find_tactic(config.plan).compile_plan(config, config.plan)(config, old, new, tally, DerivedState()):
        pass
    return tally


def _plan(kind: str) -> Plan:
    return Plan("window-join", indexes=(("b", INDEXES[kind]),))


def _no_rows(config: JoinConfig, number: int) -> Pane:
    nothing = np.empty(0, np.int64)
    return build_window_pane(config, number, nothing, nothing)


def _path_rows(kind: str, rows: int) -> float:
    """Return the rows that the model counts on the way to a row's place: a path down a tree, else one."""
    return PATH_ROWS[kind](rows, DEFAULT_NODE_ROWS) if kind in PATH_ROWS else 1.0


_BY_KEY = (0,)  # the only equality class of two streams that join on one key


@dataclass(frozen=True, slots=True)
class RunPoint:
    """Rows in a run and as many lookups, their matches, and the seconds of building and of probing the run."""

    rows: int
    matches: int
    build_s: float
    probe_s: float


def fit_run_weights(points: list[RunPoint]) -> Structure:
    """Fit the weights of grouped runs."""
    (update_s,) = fit_weights([(each.rows,) for each in points], [each.build_s for each in points])
    compare_s, lookup_s = fit_weights([(each.matches, each.rows) for each in points], [each.probe_s for each in points])
    return Structure(compare_s, update_s, lookup_s)


def measure_run_points(repeats: int, *, quick: bool) -> list[RunPoint]:
    """Measure runs of every size and number of matches per lookup."""
    sizes = (8_000, 64_000) if quick else (8_000, 32_000, 128_000, 512_000)
    return [
        measure_run_point(rows, matches, repeats)
        for rows in sizes
        for matches in ((1, 8) if quick else (1, 2, 4, 8, 16))
    ]


def measure_run_point(rows: int, matches_per_lookup: int, repeats: int) -> RunPoint:
    """Measure as many lookups as the run has rows, in the order in which new rows of the other input make them."""
    rng = np.random.default_rng([rows, matches_per_lookup])
    config = build_join_config(Plan())
    times, keys = np.arange(rows), rng.integers(0, max(1, rows // matches_per_lookup), (2, rows))
    window, probing = build_window_pane(config, B, times, keys[0]), build_window_pane(config, A, times, keys[1])
    run = window.run(_BY_KEY)
    probes = probing.codes[0][probing.run(_BY_KEY).rows]
    build = measure_cpu(lambda: _without_runs(window).run(_BY_KEY), repeats)
    found = measure_cpu(lambda: _look_up(run, probes, rows), repeats)
    return RunPoint(rows, found.result, build.seconds, found.seconds)


def _without_runs(window: Pane) -> Pane:
    """Return the same rows without the runs that were built before."""
    return Pane(window.times, window.columns, window.keys, window.codes)


def _look_up(run: GroupedRun, keys: Int64s, until_us: int) -> int:
    """Count, allocate and fill as the production tactic does; return the number of matches."""
    since, until = np.zeros(keys.size, np.int64), np.full(keys.size, until_us, np.int64)
    first, count = np.empty(keys.size, np.int64), np.empty(keys.size, np.int32)
    total = count_matches(
        run.slots, run.group_keys, run.offsets, run.times, run.ends, keys, since, until, since, first, count
    )
    lookups, rows = np.empty(total, np.int32), np.empty(total, np.int32)
    return fill_matches(run.rows, first, count, 0, lookups, rows, 0)
