"""Benchmark results as values: ratios, files, and differences between two runs."""

from pathlib import Path

import pytest

from watersmeet.errors import InputError, WatersmeetError
from watersmeet_lab.bench.results import (
    PeerComparison,
    SystemResult,
    list_differences,
    load_comparison,
    save_comparison,
)


def comparison(ours: float = 800.0, *, rows_in: int = 1000) -> PeerComparison:
    systems = (
        SystemResult("watersmeet-embedded", 2000.0),
        SystemResult("watersmeet-spark", ours, p50_ms=5.0),
        SystemResult("spark-hdfs", 100.0),
        SystemResult("spark-rocksdb", 50.0),
        SystemResult("flink", 160.0),
    )
    return PeerComparison("two-way", rows_in, 40, 7, systems, {"duckdb": "not installed"})


def test_the_ratio_divides_our_speed_on_spark_by_the_best_speed_of_each_peer() -> None:
    assert comparison().ratio == {"spark": 8.0, "flink": 5.0}


def test_without_a_run_on_spark_the_embedded_one_is_compared() -> None:
    only = PeerComparison(
        "embedded", 10, 1, 0, (SystemResult("watersmeet-embedded", 30.0), SystemResult("duckdb", 20.0))
    )
    assert only.ratio == {"duckdb": 1.5}


def test_a_saved_comparison_reads_back_and_names_its_machine(tmp_path: Path) -> None:
    path = save_comparison(comparison(), tmp_path)
    assert load_comparison(path) == comparison()
    assert '"cores"' in path.read_text()
    assert '"pyarrow"' in path.read_text()


def test_two_runs_are_compared_system_by_system() -> None:
    lines = list(list_differences(comparison(400.0), comparison(800.0)))
    assert any("watersmeet-spark" in line and "2.00 times" in line for line in lines)
    assert [" ".join(line.split()) for line in lines[-2:]] == [
        "ours over spark 4.00 → 8.00",
        "ours over flink 2.50 → 5.00",
    ]


def test_runs_over_different_rows_are_not_compared() -> None:
    with pytest.raises(InputError, match="not the same workload"):
        list(list_differences(comparison(), comparison(rows_in=5)))


def test_a_file_that_is_no_benchmark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="not a saved benchmark"):
        load_comparison(tmp_path / "x.json")


def test_a_system_without_rows_is_refused() -> None:
    with pytest.raises(WatersmeetError, match="processed no rows"):
        SystemResult("flink", 0.0)
