"""Errata are shown by computation where the paper has formulas, and each belongs to a paper of the report."""

from __future__ import annotations

import math

from watersmeet.planner.models.kang import best_pairs_by_ratio
from watersmeet_lab.papers.errata import ERRATA, list_errata
from watersmeet_lab.papers.registry import PAPERS


def test_every_erratum_belongs_to_a_paper_and_is_listed_once() -> None:
    assert {erratum.paper for erratum in ERRATA} <= {paper.name for paper in PAPERS}
    assert len({(erratum.paper, erratum.place, erratum.printed) for erratum in ERRATA}) == len(ERRATA)
    assert sum(len(list_errata(paper.name)) for paper in PAPERS) == len(ERRATA)


def test_only_the_outer_crossings_of_kang_s_figure_2_move_right_with_a_larger_a_and_a_smaller_b() -> None:
    equal, larger_a = (
        [ratio for _, ratio in best_pairs_by_ratio(rows_a, rows_b) if ratio < math.inf]
        for rows_a, rows_b in ((5000, 5000), (7000, 3000))
    )
    assert [after > before for before, after in zip(equal, larger_a, strict=True)] == [True, False, False, True]
