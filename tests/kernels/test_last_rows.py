"""The last rows of each partition against plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.last_rows import NONE, push_rows, push_rows_definition


@given(st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5), st.integers(1, 4))
@settings(deadline=None, max_examples=200)
def test_a_full_partition_gives_up_its_oldest_row(batches: list[list[int]], capacity: int) -> None:
    total = sum(len(batch) for batch in batches)
    oldest, newest, held = np.full(4, NONE), np.full(4, NONE), np.zeros(4, np.int64)
    node_seq, node_next = np.full(total, NONE), np.full(total, NONE)
    plain: dict[int, list[int]] = {}
    nodes = seq = 0
    for batch in batches:
        leaving, nodes = push_rows(
            np.array(batch, np.int64), seq, capacity, oldest, newest, held, node_seq, node_next, nodes
        )
        assert leaving.tolist() == push_rows_definition(plain, batch, seq, capacity)
        seq += len(batch)
    assert nodes == sum(len(rows) for rows in plain.values()), "nodes grow with rows held, not with rows seen"
