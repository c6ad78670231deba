"""The planner never gives an input an order that would be slow if the batch rule put it in another position.

By the batch rule, the input with the fewest new rows of a batch meets old rows only. If there are none, every order of
it looks free. But numbers of rows vary from batch to batch, so it may become the input that finds all matches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm

CHAIN = (
    "SELECT a.k AS a, b.k AS b, c.j AS c FROM a [RANGE 20 SECONDS], b [RANGE 20 SECONDS], c [RANGE 20 SECONDS] "
    "WHERE a.k = b.k AND b.j = c.j"
)


@pytest.mark.parametrize("smallest", ["a", "b", "c"])
def test_the_ends_of_a_chain_are_never_combined_first(smallest: str) -> None:
    streams = {name: wm.stream(_draw_rows(5_000 - 10 * (name == smallest)), time="ts") for name in "abc"}
    plan = wm.explain(CHAIN, streams).plan
    assert plan.algorithm == "runs"
    orders = dict(plan.orders)
    assert (orders["a"][0], orders["c"][0]) == ("b", "b")


def _draw_rows(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    times = np.sort(rng.integers(0, 600_000_000, rows))
    keys = {name: pa.array(rng.integers(0, 500, rows)) for name in ("k", "j")}
    return pa.table({"ts": pa.array(times), **keys})
