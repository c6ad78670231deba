"""The table of algorithms: every tactic has a row, and each row names the function that proposes its plans."""

from __future__ import annotations

import pytest

import watersmeet as wm
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.tactics.registry import TACTICS
from watersmeet.planner import algorithms
from watersmeet.planner.algorithms import ALGORITHMS, PROPOSALS

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS] WHERE a.k = b.k AND b.k = c.k"
#: A query that all algorithms run.
RANGE_QUERY = f"{QUERY} AND a.k <= c.x"
STATS = {name: wm.stats(rate=100, distinct={"k": 50, "x": 50}) for name in "abc"}


def test_every_tactic_has_a_row_and_every_row_a_tactic() -> None:
    assert set(ALGORITHMS) == set(TACTICS)
    assert all(row.tactic.name == name for name, row in ALGORITHMS.items())


def test_a_proposal_function_proposes_exactly_the_algorithms_whose_rows_name_it() -> None:
    explanation = wm.explain(RANGE_QUERY, STATS)
    for propose in PROPOSALS:
        proposed = propose(explanation.config, explanation.workload, explanation.profile)
        assert {plan.algorithm for plan in proposed} == {
            name for name, row in ALGORITHMS.items() if row.propose is propose
        }


@pytest.mark.parametrize("name", TACTICS)
def test_an_algorithm_without_a_row_is_refused_and_not_costed_as_another_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {other: row for other, row in ALGORITHMS.items() if other != name}
    monkeypatch.setattr(algorithms, "ALGORITHMS", kept)
    with pytest.raises(PlanError, match=f'the cost of "{name}" is not modelled'):
        wm.explain(RANGE_QUERY, STATS, plan=wm.plan(name))
