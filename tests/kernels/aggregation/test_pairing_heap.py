"""The first value of each group against all of its values, under insertion and removal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.aggregation.pairing_heap import first_values_definition
from watersmeet.operators.aggregate.codes import OrderCodes
from watersmeet.operators.aggregate.extremes import Extremes

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5), st.integers(1, 3), st.booleans()), max_size=60)


@given(EVENTS, st.booleans())
@settings(deadline=None)
def test_the_first_value_of_a_group_is_the_smallest_it_holds(
    events: list[tuple[int, int, int, bool]], largest: bool
) -> None:
    held: list[dict[int, int]] = [{}, {}, {}]
    extremes = Extremes(OrderCodes.for_type(pa.int64()), largest)
    nothing = np.empty(0, np.int64)
    for group, value, count, more in events:
        signed = count if more else -min(count, held[group].get(value, 0))
        held[group][value] = held[group].get(value, 0) + signed
        one = np.array([group]), np.zeros(1, np.int64), np.array([value]), np.array([signed])
        extremes.add_values(*one, nothing, nothing, 3)
        asked = np.array([group])
        now, _ = extremes.add_values(nothing, nothing, nothing, nothing, np.zeros(1, np.int64), asked, 3)
        wanted = first_values_definition({-key if largest else key: n for key, n in held[group].items()})
        assert extremes.decode_values(now).to_pylist() == [wanted if wanted is None or not largest else -wanted]


def test_a_group_queried_at_two_instants_has_its_first_value_as_the_one_before() -> None:
    extremes = Extremes(OrderCodes.for_type(pa.int64()), is_max=False)
    groups, instants, codes, weights = np.array([0, 0]), np.array([0, 1]), np.array([5, 3]), np.array([1, 1])
    now, before = extremes.add_values(groups, instants, codes, weights, np.array([0, 1]), np.array([0, 0]), 1)
    assert extremes.decode_values(now).to_pylist() == [5, 3]
    assert extremes.decode_values(before).to_pylist() == [None, 5]
