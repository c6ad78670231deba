"""Claims: three verdicts, numbers to the paper's digits, and a reason for every failure."""

from __future__ import annotations

import json

import pytest

from watersmeet.errors import InternalError
from watersmeet_lab.papers.claims import Claim, exact_claim, shape_claim, words_claim


def test_a_figure_is_compared_to_the_digits_the_paper_prints() -> None:
    assert exact_claim("t.a", "cost", paper=47976.9, ours=47976.949, digits=1).holds
    assert not exact_claim("t.b", "cost", paper=47976.9, ours=47976.96, digits=1).holds
    assert exact_claim("t.c", "costs", paper=(150, 180), ours=[150.2, 179.8]).ours == (150, 180)


def test_a_claim_has_one_of_three_verdicts() -> None:
    def verdict(*, holds: bool, difference: str = "") -> str:
        return shape_claim(
            "t.d", "A beats B", "twice", "by half", holds=holds, difference=difference, reason="B is better"
        ).verdict

    assert verdict(holds=True) == "holds"
    assert verdict(holds=True, difference="by less") == "holds with a difference"
    assert verdict(holds=False, difference="by less") == "does not hold"


def test_a_claim_that_does_not_hold_needs_a_reason() -> None:
    with pytest.raises(InternalError, match="has no reason"):
        Claim("t.e", "shape", "A beats B", "twice", "not at all", holds=False)
    assert words_claim("t.f", "the best order", "1234", "2134").difference
    with pytest.raises(InternalError, match="a name and a statement"):
        Claim("", "shape", "A beats B", "twice", "thrice", holds=True)


def test_a_claim_as_json_states_verdict_and_difference_in_fields_of_their_own() -> None:
    claim = shape_claim("t.g", "A beats B", "twice", "by half", holds=True, difference="by less")
    fields = json.loads(json.dumps(claim.to_dict()))
    assert list(fields) == ["id", "kind", "statement", "paper", "ours", "holds", "verdict", "difference"]
    assert fields["ours"] == "by half"
    assert fields["verdict"] == "holds with a difference"
    assert fields["difference"] == "by less"
    assert exact_claim("t.h", "costs", paper=(1, 2), ours=(1, 2)).to_dict()["paper"] == [1, 2]
