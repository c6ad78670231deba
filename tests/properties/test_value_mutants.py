"""Every mutant in `value_mutants` is caught by a generated case or by an example."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.properties.engine import assert_same, collect, expected_rows
from tests.properties.generators.aggregation_cases import collect_groups, expected_groups_by_row, generate_aggregation
from tests.properties.generators.join_cases import generate_case, generate_tie_case
from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.mutants.value_mutants import EXAMPLE_MUTANTS, SUM_MUTANTS, TIE_MUTANTS, VALUE_MUTANTS

MAX_SEEDS = 600

Check = Callable[[int], None]


def check_one_batch(seed: int) -> None:
    case = generate_case(seed)
    assert_same(case, collect(case).rows, expected_rows(case))


def check_ties(seed: int) -> None:
    case = generate_tie_case(seed)
    assert_same(
        case, collect(case).rows, expected_rows(case), lambda smaller: collect(smaller).rows != expected_rows(smaller)
    )


def check_sums(seed: int) -> None:
    case = generate_aggregation(seed, every=False)
    if "AVG(CAST" in case.text:
        assert collect_groups(case, evaluate="row") == expected_groups_by_row(case), str(case)


def test_rows_of_equal_times_leave_a_rows_window_in_the_oracles_order() -> None:
    for seed in range(MAX_SEEDS):
        check_ties(seed)


@pytest.mark.parametrize("mutant", VALUE_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_a_generated_query_catches_the_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutant, check_one_batch, monkeypatch)


@pytest.mark.parametrize("mutant", TIE_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_a_generated_tie_catches_the_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutant, check_ties, monkeypatch)


@pytest.mark.parametrize("mutant", SUM_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_a_generated_aggregation_catches_the_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutant, check_sums, monkeypatch)


@pytest.mark.parametrize("mutant", EXAMPLE_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_an_example_catches_the_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXAMPLES[mutant.mistake]()
    apply_mutant(mutant, monkeypatch)
    assert not EXAMPLES[mutant.mistake](), f"nothing catches: {mutant.mistake}"


def assert_caught(mutant: Mutant, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    assert any(is_caught(check, seed) for seed in range(MAX_SEEDS)), f"nothing catches: {mutant.mistake}"


def is_caught(check: Check, seed: int) -> bool:
    """Return whether the result is wrong; a mutant that merely crashes does not count."""
    try:
        check(seed)
    except AssertionError:
        return True
    except wm.WatersmeetError:
        return False
    return False


# --- examples by the mistake of the mutant they catch: true with the correct engine, false with the mutant
# ----------------------------------------------------------------------------------------------


def _is_refused(query: str, *times: int) -> bool:
    streams = {
        name: wm.stream(pa.table({"ts": pa.array(times, pa.int64()), "k": [1] * len(times)}), time="ts")
        for name in "abc"
    }
    try:
        wm.collect(query, streams)
    except wm.WatersmeetError:
        return True
    return False


def _last_nanosecond(*times: int) -> int:
    table = pa.table({"ts": pa.array(times, pa.timestamp("ns"))})
    (found,) = (
        wm.collect("SELECT ts FROM a [ROWS 1]", {"a": wm.stream(table, time="ts")})["ts"].cast(pa.int64()).to_pylist()
    )
    assert found is not None
    return int(found)


EXAMPLES: dict[str, Callable[[], bool]] = {
    "integers that look like seconds need no unit": lambda: _is_refused("SELECT k FROM a [LANDMARK]", 1_700_000_000),
    "times after 2038 do not look like seconds": lambda: _is_refused(
        "SELECT k FROM a [LANDMARK]", 1_700_000_000, 4_000_000_000
    ),
    "rows of one microsecond stay in arrival order": lambda: _last_nanosecond(1_002, 1_001) == 1_002,
    "a JOIN's condition sees later sources": lambda: _is_refused(
        "SELECT a.k FROM a [ROWS 1] JOIN b [ROWS 1] ON a.k = c.k JOIN c [ROWS 1] ON TRUE", 5
    ),
}
