"""Every golden query is bound, planned and explained as its file says. `make bless` writes the files again."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.golden.golden_plans import FOLDER, answer_path, explain_case, format_answer, list_cases


@pytest.mark.parametrize("name", list_cases())
def test_the_plan_and_its_explanation_are_the_golden_ones(name: str) -> None:
    path = answer_path(name)
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    found = format_answer(explain_case(name))
    diff = unified_diff(golden.splitlines(), found.splitlines(), path.name, "now", lineterm="")
    assert golden == found, "run `make bless` if this is what the change should do\n" + "\n".join(diff)


@pytest.mark.parametrize("name", list_cases())
def test_a_chosen_plan_that_is_pinned_is_explained_as_itself(name: str) -> None:
    chosen = explain_case(name)
    pinned = explain_case(name, plan=chosen.plan)
    assert pinned.plan == chosen.plan
    assert pinned.chosen.cost == chosen.chosen.cost


def test_every_golden_answer_has_a_case() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == list_cases()
