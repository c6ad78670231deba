"""Changes of one entry at one instant, added together, against their sums."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.aggregation.arguments import EntryChanges
from watersmeet.kernels.aggregation.as_join import net_changes, net_changes_definition


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([-1, 1])), max_size=60))
@settings(deadline=None)
def test_changes_of_an_entry_at_an_instant_become_one(listed: list[tuple[int, int, int]]) -> None:
    listed.sort(key=lambda change: change[0])
    instant, entry, rows = (np.array([change[place] for change in listed], np.int64) for place in range(3))
    ints, floats = 10 * rows[:, None], np.stack([rows * 0.5, np.zeros(rows.size)], axis=1)
    extremes = np.empty((rows.size, 0), np.int64)
    changes = EntryChanges(
        entry % 2, entry.copy(), rows.copy(), instant.copy(), ints, ints.astype(np.float64), floats, extremes
    )
    used = net_changes(changes, np.full(5, -1, np.int64))
    found = {(int(changes.instant[at]), int(changes.entry[at])): int(changes.rows[at]) for at in range(used)}
    assert found == net_changes_definition(listed)
    assert len(found) == used
    assert np.array_equal(changes.ints[:used, 0], 10 * changes.rows[:used])
    assert np.array_equal(changes.pairs[:used, 0], 0.5 * changes.rows[:used])
    assert np.array_equal(changes.input[:used], changes.entry[:used] % 2)
