"""The grid of buckets follows the rates of the streams, `explain` predicts it, a checkpoint keeps it. Needs no Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from watersmeet.runtime.buckets.bucket_grid import GridStore
from watersmeet.runtime.buckets.execution_plan import SparkExecutionPlan, build_execution_plan
from watersmeet.sources.declarations import bind_query

THETA = (
    "SELECT big.id AS a, small.id AS b FROM big [RANGE 1 SECOND], small [RANGE 1 SECOND] WHERE big.x < small.x - 990"
)
TOTALS = (
    "SELECT COUNT(*) AS n FROM big [RANGE 1 SECOND], small [RANGE 1 SECOND] WHERE big.x < small.x - 990 EVERY 1 SECOND"
)


def rows(count: int, seconds: float = 100.0) -> pa.Table:
    rng = np.random.default_rng(count)
    times = np.sort(rng.integers(0, int(seconds * 1e6), count))
    return pa.table(
        {
            "ts": pa.array(times),
            "x": pa.array(rng.integers(0, 1000, count)),
            "k": pa.array(rng.integers(0, 9, count)),
            "id": pa.array(np.arange(count)),
        }
    )


def build_streams(big: int, small: int) -> dict[str, wm.Stream]:
    return {"big": wm.stream(rows(big), time="ts"), "small": wm.stream(rows(small), time="ts")}


def write_directories(folder: Path, big: int, small: int) -> dict[str, wm.Stream]:
    for name, count in (("big", big), ("small", small)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(count), folder / name / "0.parquet")
    return {name: wm.stream(folder / name, time="ts", follow=True) for name in ("big", "small")}


def build_plan(text: str, sources: Any, buckets: int = 8, **how: Any) -> SparkExecutionPlan:
    return build_execution_plan(bind_query(text, sources), sources, None, buckets, buckets, **how)


def count_copies(plan: SparkExecutionPlan) -> list[int]:
    return [len(plan.bucket.grid.copies(number)) for number in range(2)]


@pytest.mark.parametrize("text", [THETA, TOTALS])
def test_the_large_input_is_split_and_the_small_one_copied(text: str) -> None:
    assert count_copies(build_plan(text, build_streams(20_000, 20))) == [1, 8]
    assert count_copies(build_plan(text, build_streams(20, 20_000))) == [8, 1]


@pytest.mark.parametrize("text", [THETA, TOTALS])
def test_explain_predicts_the_rows_that_are_shuffled(text: str) -> None:
    sources = build_streams(200_000, 200)
    explanation = wm.explain(text, sources, engine="spark", buckets=8)
    assert "shuffles 201,600 rows to 8 buckets: big once, small 8 times" in str(explanation)
    shuffle = explanation.to_dict()["shuffle"]
    assert shuffle["rows"] == 201_600
    assert shuffle["copies"] == {"big": 1, "small": 8}
    assert count_copies(build_plan(text, sources)) == [1, 8]


def test_rows_that_fail_their_own_predicate_are_not_counted() -> None:
    sources = build_streams(20_000, 20_000)
    assert count_copies(build_plan(f"{THETA} AND big.k = 0 AND big.x < 10", sources)) == [8, 1]


def test_declared_rates_take_precedence_over_measured_ones() -> None:
    stats = {"big": wm.stats(rate=1), "small": wm.stats(rate=1000)}
    assert count_copies(build_plan(THETA, build_streams(20_000, 20), stats=stats)) == [8, 1]
    assert wm.explain(THETA, build_streams(20_000, 20), stats=stats, engine="spark", buckets=8).to_dict()["shuffle"][
        "copies"
    ] == {
        "big": 8,
        "small": 1,
    }


def test_a_stream_of_unknown_rate_is_assumed_as_fast_as_the_fastest_known_one(tmp_path: Path) -> None:
    sources = write_directories(tmp_path, 2_000, 20)  # unbounded, so their rows are not measured without a checkpoint
    assert sorted(count_copies(build_plan(THETA, sources, stats={"big": wm.stats(rate=5)}))) == [2, 4]
    assert sorted(count_copies(build_plan(THETA, sources))) == [2, 4]


def test_copies_have_a_cost() -> None:
    sources = build_streams(20_000, 5_000)
    costs = {
        buckets: {
            part.name: part
            for part in wm.explain(THETA, sources, engine="spark", buckets=buckets).chosen.cost.operators
        }
        for buckets in (1, 8)
    }
    for name in ("spark: shuffle", "spark: state"):
        few, many = (costs[buckets][name] for buckets in (1, 8))
        assert many.rows_per_s > 1.5 * few.rows_per_s
        assert many.cpu_per_s > 1.5 * few.cpu_per_s
    assert costs[1]["spark: pack"] == costs[8]["spark: pack"]


@pytest.mark.parametrize("text", [THETA, TOTALS])
def test_a_restart_with_other_rates_keeps_its_grid(text: str, tmp_path: Path) -> None:
    store = GridStore(tmp_path / "checkpoint")
    first = build_plan(text, write_directories(tmp_path, 2_000, 20), checkpoint=store)
    assert count_copies(first) == [1, 8]
    _mark_started(store)
    again = build_plan(text, write_directories(tmp_path, 20, 2_000), checkpoint=store)
    assert again.bucket.grid == first.bucket.grid
    assert again.signature == first.signature


def test_a_checkpoint_that_has_not_started_takes_the_new_grid(tmp_path: Path) -> None:
    store = GridStore(tmp_path / "checkpoint")
    build_plan(THETA, write_directories(tmp_path, 2_000, 20), checkpoint=store)
    assert count_copies(build_plan(THETA, write_directories(tmp_path, 20, 2_000), checkpoint=store)) == [8, 1]


def test_a_checkpoint_without_a_stored_grid_continues_with_equal_rates(tmp_path: Path) -> None:
    store = GridStore(tmp_path / "checkpoint")
    _mark_started(store)
    sources = write_directories(tmp_path, 2_000, 20)
    assert build_plan(THETA, sources, checkpoint=store).signature == build_plan(THETA, sources).signature


def test_a_streaming_grid_without_a_checkpoint_ignores_measured_rates(tmp_path: Path) -> None:
    grids = [
        build_plan(THETA, write_directories(tmp_path, *counts)).bucket.grid for counts in ((2_000, 20), (20, 2_000))
    ]
    assert grids[0] == grids[1]
    declared = {"big": wm.stats(rate=1000), "small": wm.stats(rate=1)}
    assert count_copies(build_plan(THETA, write_directories(tmp_path, 20, 2_000), stats=declared)) == [1, 8]


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace('"share": 8', '"share": 4'), lambda _: "[]"]
)
def test_a_damaged_grid_is_refused_by_name(damage: Any, tmp_path: Path) -> None:
    store = GridStore(tmp_path / "checkpoint")
    sources = write_directories(tmp_path, 2_000, 20)
    build_plan(THETA, sources, checkpoint=store)
    _mark_started(store)
    file = tmp_path / "checkpoint" / "watersmeet" / "grid.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(wm.InputError, match=r'grid\.json" is damaged'):
        build_plan(THETA, sources, checkpoint=store)


def test_another_number_of_buckets_changes_the_signature(tmp_path: Path) -> None:
    store = GridStore(tmp_path / "checkpoint")
    sources = write_directories(tmp_path, 2_000, 20)
    first = build_plan(THETA, sources, checkpoint=store)
    _mark_started(store)
    assert build_plan(THETA, sources, buckets=4, checkpoint=store).signature["the number of buckets"] == "4"
    assert build_plan(THETA, sources, checkpoint=store).signature == first.signature


def test_a_checkpoint_on_another_file_system_is_refused_and_a_local_one_is_not() -> None:
    with pytest.raises(wm.InputError, match="only a checkpoint in a file system of this machine"):
        GridStore.at("hdfs://namenode/checkpoint")
    assert GridStore.at("file:///tmp/checkpoint").checkpoint == Path("/tmp/checkpoint")
    assert GridStore.at("relative/checkpoint").checkpoint == Path("relative/checkpoint")


def _mark_started(store: GridStore) -> None:
    """Write the offsets that Spark has written after the first batch."""
    (store.checkpoint / "offsets").mkdir(parents=True)
    (store.checkpoint / "offsets" / "0").write_text("v1")
