"""Metamorphic relations between runs of the engine, without the oracle.

They cover splits, arrival orders, shifted times, renamed keys and larger windows. Hypothesis draws the seeds; our own
shrinker, which knows the structure of a case, makes a failing case small.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tests.properties.generators.arrival_orders import arrive_in_any_batches, arrive_within_lateness
from tests.properties.generators.cases import QueryCase
from tests.properties.generators.join_cases import generate_case
from tests.properties.generators.related_cases import (
    drop_calendar_predicates,
    enlarge_a_window,
    put_ids_first,
    rename_keys,
    select_only_ids,
    shift_times,
)
from tests.volume import scale_volume

from .engine import Rows, assert_same, collect, collect_arriving

EXAMPLES = settings(
    max_examples=scale_volume(75),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    print_blob=False,
)

seeds = st.integers(0, 2**32 - 1)

#: Runs the case in another way and returns its rows, or None if that way does not apply.
AlternativeRun = Callable[[Random, QueryCase], Rows | None]


@EXAMPLES
@given(seeds)
def test_any_split_gives_the_rows_of_one_batch(seed: int) -> None:
    check_equal(
        seed, generate_case(seed), lambda rng, case: collect_arriving(case, arrive_in_any_batches(rng, case)).rows
    )


@EXAMPLES
@given(seeds)
def test_any_order_within_the_lateness_gives_the_rows_of_one_batch(seed: int) -> None:
    check_equal(
        seed, generate_case(seed), lambda rng, case: collect_arriving(case, arrive_within_lateness(rng, case)).rows
    )


@EXAMPLES
@given(seeds)
def test_shifting_all_times_keeps_the_same_matches(seed: int) -> None:
    check_equal(
        seed,
        select_only_ids(drop_calendar_predicates(generate_case(seed))),
        lambda rng, case: _rows(shift_times(rng, case)),
    )


@EXAMPLES
@given(seeds)
def test_renaming_keys_by_a_bijection_keeps_the_same_matches(seed: int) -> None:
    check_equal(
        seed, select_only_ids(put_ids_first(generate_case(seed))), lambda rng, case: _rows(rename_keys(rng, case))
    )


@EXAMPLES
@given(seeds)
def test_a_larger_window_gives_a_superset(seed: int) -> None:
    case = select_only_ids(generate_case(seed))
    larger = _rows(enlarge_a_window(Random(seed), case))
    assume(larger is not None)
    assert larger is not None
    rows = collect(case).rows
    assert_same(case, rows & larger, rows)


def check_equal(seed: int, case: QueryCase, run_otherwise: AlternativeRun) -> None:
    found = run_otherwise(Random(seed), case)
    assume(found is not None)
    assert found is not None
    assert_same(case, found, collect(case).rows, partial(_differs, seed, run_otherwise))


def _differs(seed: int, run_otherwise: AlternativeRun, case: QueryCase) -> bool:
    found = run_otherwise(Random(seed), case)
    return found is not None and found != collect(case).rows


def _rows(case: QueryCase | None) -> Rows | None:
    return None if case is None else collect(case).rows
