"""`max_batch`: a backlog of files is processed in batches whose rows fit the trigger interval and the memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from watersmeet.planner.explain import Explanation
from watersmeet.runtime.batch_limit import HEADROOM, check_max_batch, choose_batch_limit
from watersmeet.sources.directories import FileSource

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
MEMORY_BYTES = 1e12


def _explain(engine: str = "spark", row_bytes: int = 24) -> Explanation:
    stats = {
        "a": wm.stats(rate=3_000, distinct={"k": 1_000}, row_bytes=row_bytes),
        "b": wm.stats(rate=1_000, distinct={"k": 1_000}, row_bytes=row_bytes),
    }
    return wm.explain(QUERY, stats, engine=engine, trigger="10 seconds" if engine == "spark" else None)


def test_the_rows_of_a_batch_fit_the_trigger_interval_with_headroom() -> None:
    about = _explain()
    limit = choose_batch_limit(about, "auto", 10.0, MEMORY_BYTES)
    assert about.sustained_rows_per_s is not None
    assert limit.rows == pytest.approx(about.sustained_rows_per_s * 10 * (1 - HEADROOM))
    assert limit.rows_by_stream == pytest.approx({"a": 0.75 * limit.rows, "b": 0.25 * limit.rows})
    assert choose_batch_limit(about, "auto", 2.0, MEMORY_BYTES).rows < limit.rows / 4


def test_little_memory_and_wide_rows_make_batches_smaller() -> None:
    plenty, little = (choose_batch_limit(_explain(), "auto", 10.0, each).rows for each in (MEMORY_BYTES, 2e8))
    wide = choose_batch_limit(_explain(row_bytes=2_400), "auto", 10.0, 2e8).rows
    assert plenty > little > 10 * wide


def test_a_number_of_rows_is_shared_out_by_rate() -> None:
    assert choose_batch_limit(_explain("embedded"), 4_000).rows_by_stream == {"a": 3_000.0, "b": 1_000.0}


@pytest.mark.parametrize("max_batch", [0, -1, "many", True])
def test_other_limits_are_refused(max_batch: int | str) -> None:
    with pytest.raises(wm.WatersmeetError, match="cannot be limited"):
        check_max_batch(max_batch)


def test_a_batch_of_files_ends_before_the_file_that_does_not_fit(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"ts": pa.array(np.arange(1_000) + number * 1_000)}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    size = path.stat().st_size
    source = FileSource(tmp_path, "ts")
    assert len(source.list_new_files()) == 5
    source.bytes_per_batch = int(2.5 * size)
    assert source.list_new_files() == ["0.parquet", "1.parquet"]
    source.bytes_per_batch = 1
    assert source.list_new_files() == ["0.parquet"]
