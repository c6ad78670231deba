"""Answers to what-if questions about windows of length 0."""

from __future__ import annotations

import pytest

import watersmeet as wm
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.errors import InputError


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("FROM a [RANGE 0 SECONDS], b [RANGE 1 SECOND]", "window a"),
        ("FROM a, b WINDOW = 0 SECONDS", "all pairs"),
        ("FROM a, b DWINDOW (a, b) = 0 SECONDS", "pair 0"),
    ],
)
def test_the_slider_of_a_zero_window_starts_at_zero_and_can_be_moved_and_moved_back(text: str, key: str) -> None:
    query = wm.sql(f"SELECT a.k {text} WHERE a.k = b.k")
    streams = {name: wm.stats(rate=1000, distinct={"k": 100}) for name in "ab"}
    asked = WhatIf(query, streams, wm.explain(query, streams))
    (control,) = (each for each in asked.controls if each.key == key)
    assert (control.value, control.least, control.linear) == (0, 0, True)
    assert control.most > 0
    longer = asked.answer({key: control.most}).chosen.cost.rows_out_per_s
    assert longer > asked.baseline.chosen.cost.rows_out_per_s
    assert asked.answer({key: 0}).chosen.cost == asked.baseline.chosen.cost
    with pytest.raises(InputError, match="goes from 0 to"):
        asked.answer({key: -1})
