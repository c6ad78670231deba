"""Relations between runs, searched by Hypothesis with the same building blocks the seeded cases are made of."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from .arrivals import in_any_batches, within_lateness
from .cases import Case
from .engine import assert_same, collect, collect_arriving, expected
from .generators import generate_with
from .relations import only_ids, shifted, with_a_larger_window, with_ids_first, with_renamed_keys, without_calendar

EXAMPLES = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

#: Hypothesis stands behind every draw of the generator, so that it can shrink what fails.
randomness = st.randoms(use_true_random=False)


@EXAMPLES
@given(randomness)
def test_collect_gives_the_oracles_rows(rng: Random) -> None:
    case = generate_with(rng)
    assert_same(case, collect(case).rows, expected(case))


@EXAMPLES
@given(randomness)
def test_any_split_gives_the_rows_of_one_batch(rng: Random) -> None:
    case = generate_with(rng)
    assert_same(case, collect_arriving(case, in_any_batches(rng, case)).rows, collect(case).rows)


@EXAMPLES
@given(randomness)
def test_any_order_within_the_lateness_gives_the_rows_of_one_batch(rng: Random) -> None:
    case = generate_with(rng)
    assert_same(case, collect_arriving(case, within_lateness(rng, case)).rows, collect(case).rows)


@EXAMPLES
@given(randomness)
def test_shifting_all_times_shifts_the_result_only(rng: Random) -> None:
    case = only_ids(without_calendar(generate_with(rng)))
    assert_same(case, collect(_given(shifted(rng, case))).rows, collect(case).rows)


@EXAMPLES
@given(randomness)
def test_renaming_keys_by_a_bijection_renames_the_result_only(rng: Random) -> None:
    case = only_ids(with_ids_first(generate_with(rng)))
    assert_same(case, collect(_given(with_renamed_keys(rng, case))).rows, collect(case).rows)


@EXAMPLES
@given(randomness)
def test_a_larger_window_gives_a_superset(rng: Random) -> None:
    case = only_ids(generate_with(rng))
    lost = collect(case).rows - collect(_given(with_a_larger_window(rng, case))).rows
    assert not lost, f"{case}\nlost: {lost}"


def _given(case: Case | None) -> Case:
    assume(case is not None)
    assert case is not None
    return case
