"""A batch touches the rows that enter or leave, and a large batch is processed in time ranges."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.operators.aggregate import input_window, step, window_changes
from watersmeet.operators.aggregate.window_rows import WindowRows

QUERY = """
    SELECT a.g, COUNT(*) AS n, SUM(b.v) AS total, MAX(b.v) AS most
    FROM a [{window}] AS a, b [{window}] AS b WHERE a.k = b.k
    GROUP BY a.g EVERY 1 SECOND
"""
WINDOWS = ("RANGE 5 SECONDS", "TUMBLE 4 SECONDS", "LANDMARK", "ROWS 20")


def make_rows(seed: int, rows: int = 400) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(random.integers(0, 60_000_000, rows)),
            "k": pa.array(random.integers(0, 10, rows)),
            "g": pa.array(random.integers(0, 4, rows)),
            "v": pa.array(random.integers(0, 100, rows)),
        }
    )


def collect_groups(window: str, early: list[str]) -> list[dict[str, object]]:
    streams = {name: wm.stream(make_rows(seed), time="ts", unit="us") for name, seed in (("a", 1), ("b", 2))}
    table = wm.collect(wm.sql(QUERY.format(window=window)), streams, plan=wm.plan(early=early))
    return sorted(table.to_pylist(), key=lambda row: (row["as_of"], row["g"]))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("early", [[], ["a"], ["a", "b"]])
def test_time_ranges_of_a_large_batch_give_the_same_groups(
    window: str, early: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = collect_groups(window, early)
    monkeypatch.setattr(step, "SLICE_ROWS", 16)
    monkeypatch.setattr(input_window, "MERGE_ROWS", 8)
    assert collect_groups(window, early) == whole
    assert whole


@pytest.mark.parametrize("early", [[], ["b"], ["a", "b"]])
def test_a_discarded_tile_gives_the_same_groups_with_half_the_work(
    early: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    touched, groups = {}, {}
    for least in (1, 1_000_000):
        monkeypatch.setattr(window_changes, "MIN_DISCARDED_ROWS", least)
        streams = {name: wm.stream(make_rows(seed), time="ts", unit="us") for name, seed in (("a", 1), ("b", 2))}
        run = wm.run(QUERY.format(window="TUMBLE 4 SECONDS"), streams, plan=wm.plan(early=early))
        rows = run.collect().to_pylist()
        groups[least] = sorted(rows, key=lambda row: (row["as_of"], row["g"]))
        touched[least] = int(run.tally.touched.sum())
    assert groups[1] == groups[1_000_000]
    assert 0 < touched[1] < 0.75 * touched[1_000_000]


def test_a_batch_copies_no_rows_that_stay_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    take = WindowRows.take

    def count_rows(self: WindowRows, chosen: object) -> WindowRows:
        nonlocal taken
        found = take(self, chosen)  # type: ignore[arg-type]
        taken += len(found)
        return found

    batches = 40
    tables = {name: make_rows(seed, 20_000).sort_by("ts") for name, seed in (("a", 1), ("b", 2))}
    streams = {
        name: wm.stream(
            pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=20_000 // batches)),
            time="ts",
            unit="us",
        )
        for name, table in tables.items()
    }
    query = """
        SELECT COUNT(*) AS n FROM a [RANGE 30 SECONDS] AS a, b [RANGE 30 SECONDS] AS b
        WHERE a.k = b.k AND a.v = b.v EVERY 1 SECOND
    """
    monkeypatch.setattr(WindowRows, "take", count_rows)
    wm.collect(wm.sql(query), streams, plan=wm.plan(early=["a", "b"]))
    # A row is taken when it enters, when it leaves, and once for each time that small segments are merged. A copy of
    # the windows with every batch would take 40 × 20,000 rows.
    assert taken < 8 * 40_000
