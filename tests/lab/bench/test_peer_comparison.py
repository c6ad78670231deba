"""Workloads against peers: one value, each system's query text, and equal rows before a time counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from watersmeet.cli import main as cli
from watersmeet.errors import InputError
from watersmeet_lab.bench import duckdb_comparison
from watersmeet_lab.bench.catalogue import CATALOGUE, DUCKDB_ONLY
from watersmeet_lab.bench.duckdb_comparison import collect_with_watersmeet, compare_with_duckdb, run_on_finite_tables
from watersmeet_lab.bench.expected_rows import DifferentRowsError, ExpectedRows, row_checksum
from watersmeet_lab.bench.flink import flink_select
from watersmeet_lab.bench.growth import GrowthPoint, measure_growth
from watersmeet_lab.bench.join_workloads import CommonKeyStreams, JoinWorkload
from watersmeet_lab.bench.portable_joins import (
    JoinAggregate,
    LookBackWindow,
    PortableJoin,
    SlidingWindow,
    TumblingTile,
    ValueBand,
)
from watersmeet_lab.bench.results_page import list_saved_workloads, save_growth, write_page
from watersmeet_lab.bench.suite import BenchmarkFinding, run_benchmarks
from watersmeet_lab.bench.time_profile import profile_embedded
from watersmeet_lab.cli import bench_command

SCALE = 0.002
SYSTEM = {"name", "rows_per_s", "p50_ms", "p99_ms", "peak_bytes", "state_bytes"}


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_embedded_engine_and_duckdb_give_the_same_rows(name: str) -> None:
    workload = CATALOGUE[name](SCALE if name not in ("nexmark-4", "nexmark-7") else 0.02)
    found = run_on_finite_tables(workload, workload.tables(), repeats=1)
    assert found.expected.rows > 0
    assert {each.name for each in found.systems} == {"watersmeet-embedded", "duckdb", "duckdb-1-thread"}


def test_systems_with_different_rows_get_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = DUCKDB_ONLY["embedded"](SCALE)

    def one_row_short(*given: object) -> pa.Table:
        return collect_with_watersmeet(workload, workload.tables()).slice(1)

    monkeypatch.setattr(duckdb_comparison, "collect_with_watersmeet", one_row_short)
    with pytest.raises(DifferentRowsError, match="duckdb gives"):
        compare_with_duckdb(workload)


def test_a_row_that_differs_in_one_value_is_found() -> None:
    rows = pa.table({"a": [1, 2, 3], "b": [1, 1, 1]})
    other = pa.table({"a": [1, 2, 3], "b": [1, 1, 2]})
    assert row_checksum(rows) == row_checksum(rows.take([2, 0, 1]))
    assert row_checksum(rows) != row_checksum(other)


def tile_count_workload() -> JoinWorkload:
    join = PortableJoin({"a": "a"}, TumblingTile(10), (), aggregates=(JoinAggregate("COUNT", "a.k", "n"),))
    return JoinWorkload("tallied", join, CommonKeyStreams(rows=30).table, batches=3)


def test_a_stream_shows_only_finished_windows_of_an_aggregation() -> None:
    #  as_of   10   20   30
    #  n        1    2    3
    given = ExpectedRows.from_result(tile_count_workload(), pa.table({"as_of": [20, 10, 30], "n": [2, 1, 3]}))
    given.check("over", 2, row_checksum(pa.table({"as_of": [10, 20], "n": [1, 2]})))
    with pytest.raises(DifferentRowsError):
        given.check("others", 2, row_checksum(pa.table({"as_of": [10, 30], "n": [1, 3]})))


def test_the_window_in_which_the_input_ends_is_ignored() -> None:
    given = ExpectedRows.from_result(tile_count_workload(), pa.table({"as_of": [10, 20], "n": [1, 2]}))
    given.check_table("all", pa.table({"as_of": [10, 20, 30], "n": [1, 2, 1]}))
    with pytest.raises(DifferentRowsError):
        given.check_table("too few", pa.table({"as_of": [10, 20, 30], "n": [1, 1, 1]}))


def test_a_condition_goes_to_the_first_join_that_knows_all_its_aliases() -> None:
    join = PortableJoin(
        {"a": "x", "b": "y", "c": "z"},
        SlidingWindow(5),
        (),
        equal=(("a.k", "b.k"), ("a.j", "c.j")),
        where=("a.v > 1", "b.v < c.v"),
    )
    assert [(step.alias, step.equal, step.where, len(step.bounds)) for step in join.steps()] == [
        ("a", (), ("a.v > 1",), 0),
        ("b", (("a.k", "b.k"),), (), 1),
        ("c", (("a.j", "c.j"),), ("b.v < c.v",), 2),
    ]


def test_flink_gets_an_interval_join_exact_to_the_microsecond() -> None:
    join = PortableJoin(
        {"b": "bid", "a": "auction"}, LookBackWindow({"a": 90_001_000}), (("b.k", "k"),), equal=(("b.k", "a.k"),)
    )
    assert flink_select(join) == (
        "SELECT b.k AS `k` FROM `bid` AS b JOIN `auction` AS a ON b.k = a.k"
        " AND a.et BETWEEN b.et + INTERVAL '-0 00:01:30.001' DAY TO SECOND(3) AND b.et + INTERVAL '0 00:00:00.000' "
        "DAY TO SECOND(3)"
        " AND a.ts BETWEEN b.ts + -90001000 AND b.ts + 0"
    )


def test_without_an_equality_flink_joins_on_cells() -> None:
    text = flink_select(
        PortableJoin({"a": "a", "b": "b"}, SlidingWindow(1_000_000), (), band=ValueBand("a.x", "b.x", 7))
    )
    assert "a.cell = b.cell AND ABS(a.x - b.x) < 7" in text
    assert "UNNEST(ARRAY[`x` / 7 - 1, `x` / 7, `x` / 7 + 1])" in text


def test_aggregates_need_tumbling_windows() -> None:
    with pytest.raises(InputError, match="tumbling"):
        PortableJoin({"a": "a"}, SlidingWindow(10), (), aggregates=(JoinAggregate("COUNT", "a.k", "n"),))


def test_the_last_line_of_json_has_systems_and_ratios() -> None:
    result = CliRunner().invoke(cli.app, ["bench", "embedded", "--scale", str(SCALE), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["workload"] == "embedded"
    assert all(set(system) == SYSTEM for system in found["systems"])
    assert set(found["ratio"]) == {"duckdb"}


def test_results_are_saved_with_a_plot_and_a_page_and_skipped_on_resume(tmp_path: Path) -> None:
    command = ["bench", "embedded", "--scale", str(SCALE), "--save", str(tmp_path)]
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    assert list_saved_workloads(tmp_path) == {"embedded"}
    assert "<svg" in (tmp_path / "embedded.svg").read_text()
    assert "| watersmeet-embedded |" in (tmp_path / "README.md").read_text()
    again = CliRunner().invoke(cli.app, [*command, "--resume"])
    assert (again.exit_code, again.stdout) == (0, "")


def test_a_profile_names_kernels_and_operators() -> None:
    found = profile_embedded(DUCKDB_ONLY["embedded"](SCALE))
    assert any(name.startswith("count_matches") for name in found.parts_s["kernels"])
    assert "emit" in found.parts_s["operators"]


def test_an_unknown_benchmark_is_refused_with_a_list() -> None:
    with pytest.raises(InputError, match="no benchmark") as refused:
        next(run_benchmarks("nexmark-99"))
    assert "nexmark-9" in str(refused.value)


@pytest.fixture(scope="module")
def growth_points() -> list[GrowthPoint]:
    return list(measure_growth(0.001))


def test_growth_reports_time_per_row_over_the_smallest_size(growth_points: list[GrowthPoint]) -> None:
    assert [point.size for point in growth_points if point.dimension == "streams"] == [2, 3, 4, 5, 6]
    assert all(
        point.over_first == 1.0
        for point in growth_points
        if point.size == min(p.size for p in growth_points if p.dimension == point.dimension)
    )


def test_growth_is_saved_and_plotted_on_the_page(growth_points: list[GrowthPoint], tmp_path: Path) -> None:
    save_growth([point.to_dict() for point in growth_points], tmp_path, is_complete=True)
    write_page(tmp_path)
    assert "<svg" in (tmp_path / "growth.svg").read_text()
    assert "| rows in windows | embedded |" in (tmp_path / "README.md").read_text()


def test_an_interrupted_run_keeps_the_growth_points_and_resume_measures_them_again(
    growth_points: list[GrowthPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_interrupted(*_: object) -> Iterator[BenchmarkFinding]:
        yield from (BenchmarkFinding(str(point), point.to_dict()) for point in growth_points[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_command, "run_benchmarks", run_interrupted)
    with pytest.raises(KeyboardInterrupt):
        _run_growth_benchmark(tmp_path)
    assert len(json.loads((tmp_path / "growth.json").read_text())["points"]) == 2
    assert "growth" not in list_saved_workloads(tmp_path)

    def run_to_the_end(*_: object) -> Iterator[BenchmarkFinding]:
        return (BenchmarkFinding(str(point), point.to_dict()) for point in growth_points)

    monkeypatch.setattr(bench_command, "run_benchmarks", run_to_the_end)
    _run_growth_benchmark(tmp_path)
    assert len(json.loads((tmp_path / "growth.json").read_text())["points"]) == len(growth_points)
    assert "growth" in list_saved_workloads(tmp_path)


def _run_growth_benchmark(results_dir: Path) -> None:
    bench_command.run_and_save("growth", SCALE, as_json=True, results_dir=results_dir, resume=True, excluded_peers=[])


def test_spark_and_flink_skip_windows_that_are_too_large() -> None:
    assert set(CATALOGUE["large-window"](1.0).excluded_peers) == {"spark", "flink"}
    assert not CATALOGUE["large-window"](0.01).excluded_peers
