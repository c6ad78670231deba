"""The weight factors of our own structures, by the paper's method, and the cost of a pair of structures with them."""

from __future__ import annotations

import math
from functools import lru_cache

from watersmeet.calibration import structures
from watersmeet.planner.models.kang import LETTERS, Load, TwoStreams
from watersmeet.planner.models.profile import Structure
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Table
from watersmeet_lab.papers.kang.runs import BUCKET_ROWS, NODE_ROWS
from watersmeet_lab.papers.series import FigureLines, figure_from_points

StructureWeights = dict[str, Structure]


def calibrate_structures(effort: Effort) -> StructureWeights:
    """Weights by structure: a probe-only and an update-only workload at rising rates, fitted. Measured once per process
    and effort.
    """
    return _calibrate(effort.quick)


@lru_cache
def _calibrate(quick: bool) -> StructureWeights:  # a key of the cache
    repeats = 2 if quick else 4
    found = {}
    for kind in structures.INDEXES:
        probed = [structures.probed(kind, load, repeats) for load in structures.probe_loads(kind, quick=quick)]
        updated = [structures.updated(kind, load, repeats) for load in structures.update_loads(kind, quick=quick)]
        found[kind] = structures.structure(probed, updated)
    return found


def window_cost(kind: str, load: Load, weights: Structure) -> float:
    """Seconds per second to keep and to probe a window, with a fixed part per lookup beside what the rows touched cost.

    References: Kang, Naughton, Viglas, eqs. 3 to 6. The fixed part is ours: without it short lists and small buckets
    look free.
    """
    path = structures.PATH_ROWS[kind](load.rows, NODE_ROWS) if kind in structures.PATH_ROWS else None
    compared = path if path is not None else load.rows if kind == "list" else min(BUCKET_ROWS, load.rows)
    touched = path if path is not None else 1.0
    probes = load.probes_per_s * (compared * weights.compare_s + weights.lookup_s)
    return probes + 2 * load.arrivals_per_s * touched * weights.update_s


def estimate_pair_cost(pair: str, streams: TwoStreams, weights: StructureWeights) -> float:
    """CPU seconds per second of a join whose window A has the first structure and window B the second."""
    kinds = [LETTERS[letter] for letter in pair]
    return math.fsum(window_cost(kind, load, weights[kind]) for kind, load in zip(kinds, streams.loads, strict=True))


def estimate_pair_costs(
    pairs: tuple[str, ...], rates: tuple[float, ...], rows: float, weights: StructureWeights
) -> FigureLines:
    """Every pair over the share of A in a thousand arrivals per second."""
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
