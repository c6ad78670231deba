"""Range joins return the same rows as DuckDB, and the planner chooses sorted ranges for them."""

from __future__ import annotations

import pytest

import watersmeet as wm
from watersmeet_lab.bench.duckdb_comparison import run_on_finite_tables
from watersmeet_lab.bench.range_workloads import RANGE_WORKLOADS


@pytest.mark.parametrize("name", RANGE_WORKLOADS)
def test_range_joins_return_the_rows_of_duckdb(name: str) -> None:
    workload = RANGE_WORKLOADS[name](0.002 if name == "band-large" else 0.05)
    tables = workload.tables()
    found = run_on_finite_tables(workload, tables, repeats=1)  # raises if the rows differ
    assert found.expected.rows > 0
    streams = {each: wm.stream(table, time="ts", unit="us") for each, table in tables.items()}
    assert wm.explain(workload.join.to_watersmeet_sql(), streams).plan.algorithm == "sorted-ranges"
