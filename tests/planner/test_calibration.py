"""Calibration: weights are positive, predict a load they were not fitted to, and equal the least squares solution."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from watersmeet.calibration import (
    aggregation,
    batch_overhead,
    default_profile,
    load_profile,
    measure_profile,
    structures,
)
from watersmeet.calibration.measurement import B, TimedResult, fit_weights
from watersmeet.cli.calibrate import render_weights, run_calibration
from watersmeet.errors import InternalError
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.early_aggregation import EarlyWeights
from watersmeet.planner.models.profile import SCALARS, STRUCTURES, Profile

#: Weights that the noise of a busy machine may hide: a list evicts a row in a nanosecond.
MAY_BE_ZERO = {
    "list.update_s",
    "match_s",
    "select_s",
    "group_s",
    "check_s",
    "probe_batch_s",
    "loop_match_s",
    "layout_s",
    "loops_batch_s",
    "node_batch_s",
}


@pytest.fixture(scope="module")
def measured_profile() -> Profile:
    return measure_profile(quick=True)


def test_measured_weights_are_positive_and_below_a_second(measured_profile: Profile) -> None:
    weights = {
        f"{kind}.{name}": value
        for kind in STRUCTURES
        for name, value in asdict(measured_profile.structure(kind)).items()
    }
    weights |= {name: getattr(measured_profile, name) for name in SCALARS}
    assert all(0 <= value < 1 for value in weights.values())
    # A fit may attribute the whole cost of a probe to one of these two.
    probes = {f"{kind}.{name}" for kind in STRUCTURES for name in ("compare_s", "lookup_s")}
    assert {name for name, value in weights.items() if not value} <= MAY_BE_ZERO | probes
    assert all(
        measured_profile.structure(kind).compare_s + measured_profile.structure(kind).lookup_s > 0
        for kind in STRUCTURES
    )
    assert measured_profile.list.compare_s > 0


def test_expressions_are_measured_by_kind(measured_profile: Profile) -> None:
    weights = asdict(measured_profile.expressions)
    assert all(0 <= value < 1e-4 for value in weights.values())
    assert measured_profile.expressions.pattern_s > measured_profile.expressions.number_s > 0


def test_aggregation_weights_are_measured_not_assumed(measured_profile: Profile) -> None:
    weights = asdict(measured_profile.early)
    assert all(0 <= value < 1e-3 for value in weights.values())
    assert sum(value > 0 for value in weights.values()) >= 2
    assert measured_profile.early != EarlyWeights()
    assert Profile.from_json(measured_profile.to_json()) == measured_profile


def test_more_matches_cost_a_late_plan_more_and_an_early_one_nothing() -> None:
    few, many = (aggregation.AggregationLoad(2_000, matches, 1, early=()) for matches in (2, 40))
    late, later = (
        dict(zip(aggregation.WEIGHTS, aggregation.model_quantities(load), strict=True)) for load in (few, many)
    )
    assert later["result_s"] == pytest.approx(20 * late["result_s"])
    early, earlier = (aggregation.AggregationLoad(2_000, matches, 1, early=("a", "b")) for matches in (40, 400))
    assert aggregation.model_quantities(earlier)[-1] < aggregation.model_quantities(early)[-1]


def test_a_profile_names_its_machine(measured_profile: Profile) -> None:
    assert (measured_profile.name, measured_profile.unit) == ("calibrated", "s")
    assert measured_profile.source.startswith("quickly measured on ")


def test_the_weights_predict_a_larger_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count work instead of timing it, so that the prediction is exact and no other process disturbs it."""
    compare_s, lookup_s, update_s = 2e-9, 3e-8, 5e-8

    def count_seconds(call: Callable[[], WorkCounters], repeats: int) -> TimedResult[WorkCounters]:
        tally = call()
        updates = tally.inserts[B] + tally.expirations[B]
        return TimedResult(
            tally, float(tally.comparisons.sum() * compare_s + tally.probes.sum() * lookup_s + updates * update_s)
        )

    monkeypatch.setattr(structures, "measure_cpu", count_seconds)
    probed = [structures.measure_probes("list", load, repeats=1) for load in structures.probe_loads("list", quick=True)]
    updated = [
        structures.measure_updates("list", load, repeats=1) for load in structures.update_loads("list", quick=True)
    ]
    weights = structures.fit_structure(probed, updated)
    larger = structures.measure_probes("list", structures.IndexLoad(window_rows=100_000, arrivals=400), repeats=1)
    assert larger.compared == 100_000 * 400
    predicted_s = larger.layout_s + larger.compared * weights.compare_s + larger.lookups * weights.lookup_s
    assert predicted_s == pytest.approx(larger.seconds, rel=0.01)


def test_loads_count_the_quantities_of_the_model() -> None:
    tree = structures.measure_probes("btree", structures.IndexLoad(window_rows=5000, arrivals=10), repeats=1)
    assert (tree.compared, tree.lookups) == (10 * 14, 10)
    steady = structures.measure_updates("list", structures.IndexLoad(window_rows=50, arrivals=100), repeats=1)
    assert steady.touched == 100 + 99  # the oldest row is still valid when the first one arrives
    assert structures.measure_run_point(1000, 4, repeats=1).matches == pytest.approx(4000, rel=0.1)


def test_a_run_counts_matches_with_and_without_output() -> None:
    silent, loud = (
        batch_overhead.measure_batch_point(500, 3, repeats=1, selects=True, emits=emits) for emits in (False, True)
    )
    assert silent.matches == loud.matches == loud.emitted > 0
    assert silent.emitted == 0
    batches = batch_overhead.BATCHES
    assert (loud.rows, loud.selected) == (batches * 1000, batches * 500)
    assert loud.lookups >= batches * 500


def test_no_weight_is_negative_and_known_seconds_are_subtracted() -> None:
    # 2 s per unit of the first quantity; the second would have to be negative
    assert fit_weights([[1, 0], [2, 1], [4, 3]], [2.0, 3.9, 7.7])[1] == 0.0
    assert fit_weights([[1], [2]], [3.0, 5.0], known_s=[1.0, 1.0]) == (2.0,)
    assert fit_weights([[1], [1]], [0.0, 2.0]) == (2.0,)  # zero seconds carry no information
    assert fit_weights([[1, 1]], [0.0]) == (0.0, 0.0)
    with pytest.raises(InternalError, match="do not belong"):
        fit_weights([[1]], [1.0, 2.0])


def test_the_command_saves_the_measured_profile(
    measured_profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("watersmeet.cli.calibrate.measure_profile", lambda progress, quick: measured_profile)
    run_calibration(quick=True, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    saved = replace(measured_profile, spark=default_profile().spark)  # which only --spark measures
    assert Profile.from_json(json.dumps(printed["profile"])) == saved == load_profile()
    assert printed["saved"] == str(tmp_path / "watersmeet" / "profile.json")
    run_calibration(quick=True)
    shown = capsys.readouterr().out
    assert "a row compared in a lookup" in shown
    assert "saved in" in shown
    of_aggregations, of_spark, of_expressions = 5, 6, 8
    rows = 3 * len(STRUCTURES) + len(SCALARS) + of_aggregations + of_spark + of_expressions
    assert render_weights(measured_profile).row_count == rows
