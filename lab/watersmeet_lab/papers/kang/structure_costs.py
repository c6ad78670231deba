"""CPU cost of window structures: calibrated weights, estimates for pairs, and measured joins.

In the measured joins, A and B arrive evenly at their rates, and the windows are just long enough for the required rows.
Keys never match, so the cost is probing and updating only. Laying out the windows before the first row is measured
separately and subtracted.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from watersmeet.algebra.plan import Index, Plan
from watersmeet.calibration import structures
from watersmeet.calibration.measurement import A, B, build_join_config, build_window_pane, draw_even_keys, draw_odd_keys
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import Int64s, Pane
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import DerivedState
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.kang import LETTERS, TwoStreams, WindowLoad
from watersmeet.planner.models.profile import Structure
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import FigureLines, Table, figure_from_points

BUCKET_ROWS, NODE_ROWS = 10, 100
_SECOND_US = 1_000_000

#: A shorter difference of two CPU times is noise. It is not reported as zero, because costs are divided by each other.
_SHORTEST_S = 1e-6
_KEYS = {A: draw_even_keys, B: draw_odd_keys}
StructureWeights = dict[str, Structure]


@dataclass(frozen=True, slots=True)
class JoinCase:
    """A join ready to run: its windows, the arrivals of some seconds, and the first arrival alone."""

    config: JoinConfig
    old: list[tuple[Pane, ...]]
    new: dict[int, Pane]
    first: dict[int, Pane]
    seconds: float


def measure_pairs(effort: Effort, streams: TwoStreams, pairs: Sequence[str], seconds: float) -> dict[str, float]:
    """Measure CPU seconds per second of arrivals for each pair of structures; the pairs run in turns."""
    cases = {pair: build_join_case(pair, streams, seconds) for pair in pairs}
    return _measure_in_turns(effort, cases)


def build_join_case(pair: str, streams: TwoStreams, seconds: float) -> JoinCase:
    rates, rows = {A: streams.a_per_s, B: streams.b_per_s}, {A: int(streams.rows_a), B: int(streams.rows_b)}
    lengths_us = {i: round(rows[i] / rates[i] * _SECOND_US) for i in (A, B)}
    indexes = {i: structure_index(letter, rows[i]) for i, letter in zip((A, B), pair, strict=True)}
    plan = Plan("window-join", indexes=(("a", indexes[A]), ("b", indexes[B])))
    config = build_join_config(plan, window_a_us=lengths_us[A], window_b_us=lengths_us[B])
    start_us = max(lengths_us.values())
    rng = np.random.default_rng(0)
    old, new = {}, {}
    for i in (A, B):
        gap_us = _SECOND_US / rates[i]
        before = start_us - np.ceil(np.arange(rows[i], 0, -1) * gap_us).astype(np.int64) + 1
        after = start_us + 1 + np.floor((np.arange(round(rates[i] * seconds)) + 0.5) * gap_us).astype(np.int64)
        old[i] = build_window_pane(config, i, before, _KEYS[i](rng, before.size))
        new[i] = (after, _KEYS[i](rng, after.size))
    first = min((int(times[0]), i) for i, (times, _) in new.items() if times.size)[1]
    return JoinCase(
        config,
        [(old[A],), (old[B],)],
        {i: build_window_pane(config, i, *new[i]) for i in (A, B)},
        {i: build_window_pane(config, i, *_first_rows(*new[i], 1 if i == first else 0)) for i in (A, B)},
        seconds,
    )


def structure_index(letter: str, rows: int) -> Index:
    """Return the structure with the paper's ten rows per bucket and hundred per node.

    >>> str(structure_index("H", 5000)), str(structure_index("T", 5000)), str(structure_index("N", 5000))
    ('hash(500)', 'ttree(100)', 'list')
    """
    kind = LETTERS[letter]
    return Index(kind, {"hash": max(1, rows // BUCKET_ROWS), "btree": NODE_ROWS, "ttree": NODE_ROWS}.get(kind, 0))


def _first_rows(times: Int64s, keys: Int64s, rows: int) -> tuple[Int64s, Int64s]:
    return times[:rows], keys[:rows]


def _measure_in_turns(effort: Effort, cases: Mapping[str, JoinCase]) -> dict[str, float]:
    whole, layout = dict.fromkeys(cases, np.inf), dict.fromkeys(cases, np.inf)
    for turn in range(effort.repeats + 1):
        gc.collect()
        for name, each in cases.items():
            spent, laid_out = _time_join(each, each.new), _time_join(each, each.first)
            if turn:  # the first turn warms up
                whole[name], layout[name] = min(whole[name], spent), min(layout[name], laid_out)
    return {name: max(_SHORTEST_S, whole[name] - layout[name]) / each.seconds for name, each in cases.items()}


def _time_join(each: JoinCase, new: dict[int, Pane]) -> float:
    search = find_tactic(each.config.plan).compile_plan(each.config, each.config.plan)
    start = time.process_time()
    for _ in search(each.config, each.old, new, WorkCounters(2), DerivedState()):
        pass
    return time.process_time() - start


def calibrate_structures(effort: Effort) -> StructureWeights:
    """Fit the weights of each structure to a probe-only and an update-only workload at rising rates.

    The measurement runs once per process and effort.
    """
    return _calibrate(effort.quick)


@lru_cache
def _calibrate(quick: bool) -> StructureWeights:  # `quick` is the cache key
    repeats = 2 if quick else 4
    found = {}
    for kind in structures.INDEXES:
        probed = [structures.measure_probes(kind, load, repeats) for load in structures.probe_loads(kind, quick=quick)]
        updated = [
            structures.measure_updates(kind, load, repeats) for load in structures.update_loads(kind, quick=quick)
        ]
        found[kind] = structures.fit_structure(probed, updated)
    return found


def window_cost(kind: str, load: WindowLoad, weights: Structure) -> float:
    """Estimate CPU seconds per second to maintain and probe a window, with a fixed cost per lookup.

    References: Kang, Naughton, Viglas, eqs. 3 to 6. The fixed cost is our addition: without it, short lists and small
    buckets appear free.
    """
    path = structures.PATH_ROWS[kind](load.rows, NODE_ROWS) if kind in structures.PATH_ROWS else None
    compared = path if path is not None else load.rows if kind == "list" else min(BUCKET_ROWS, load.rows)
    touched = path if path is not None else 1.0
    probes = load.probes_per_s * (compared * weights.compare_s + weights.lookup_s)
    return probes + 2 * load.arrivals_per_s * touched * weights.update_s


def estimate_pair_cost(pair: str, streams: TwoStreams, weights: StructureWeights) -> float:
    """Estimate CPU seconds per second of a join whose windows A and B have the given structures."""
    kinds = [LETTERS[letter] for letter in pair]
    return math.fsum(window_cost(kind, load, weights[kind]) for kind, load in zip(kinds, streams.loads, strict=True))


def estimate_pair_costs(
    pairs: tuple[str, ...], rates: tuple[float, ...], rows: float, weights: StructureWeights
) -> FigureLines:
    """Estimate the cost of every pair of structures for each rate of A.

    A and B together have 1,000 arrivals per second.
    """
    points = {
        a: {pair: estimate_pair_cost(pair, TwoStreams(rows, rows, a, 1000 - a), weights) for pair in pairs}
        for a in rates
    }
    return figure_from_points("a_per_s", points)


def weights_table(weights: StructureWeights) -> Table:
    rows = tuple(
        (kind, 1e9 * each.compare_s, 1e9 * each.update_s, 1e9 * each.lookup_s) for kind, each in weights.items()
    )
    columns = ("structure", "ns per row compared (P)", "ns per row touched by an update (I)", "ns per lookup")
    return Table("weights", "Weight factors of our structures on this machine", columns, rows)
