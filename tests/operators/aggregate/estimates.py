"""A shedding aggregation that keeps every row: its estimates are exact."""

from __future__ import annotations

import watersmeet as wm
from watersmeet.algebra.query import BoundQuery
from watersmeet.operators.build import build_shedding_operator
from watersmeet.runtime.embedded.run import EmbeddedRun, run_operator
from watersmeet.sources.declarations import Sources, read_all_rows


def run_estimates(bound: BoundQuery, sources: Sources) -> EmbeddedRun:
    """Start the estimates of an aggregation from all of its rows."""
    operator = build_shedding_operator(bound, wm.plan(), lambda join_input: read_all_rows(sources[join_input.name]))
    return run_operator(bound, operator, sources, {})
