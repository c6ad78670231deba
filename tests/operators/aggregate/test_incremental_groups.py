"""Groups over growing directories: a job that stops after every file emits the same groups as one that does not."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, evaluations, every_instants, table_rows
from tests.oracle.values import Instant
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream, bind_query
from watersmeet.sources.directories import FileSource

SECOND = 1_000_000
FAR_S = 60  # a last row per input, so that the watermark passes all earlier rows

TILES = "SELECT COUNT(*) AS n FROM a [TUMBLE 4 SECONDS], b [TUMBLE 4 SECONDS] WHERE a.k = b.k EVERY 4 SECONDS"
HIDDEN = """SELECT a.k, MAX(b.v) AS m FROM a [TUMBLE 4 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k
            GROUP BY a.k HAVING MOD(COUNT(*), 2) = 0 EVERY 1 SECOND"""


@pytest.mark.parametrize("query", [TILES, HIDDEN])
def test_a_job_stopped_after_every_file_emits_the_oracles_groups(tmp_path: Path, query: str) -> None:
    files = {
        name: [*(rows(name, 5 * n, 5 * n + 6) for n in range(4)), rows(name, FAR_S, FAR_S + 1)] for name in ("a", "b")
    }
    for number in range(5):
        for name, parts in files.items():
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(parts[number], tmp_path / name / f"{number:03d}.parquet")
        run_incremental(job(tmp_path, query), threading.Event(), lambda figures: None)
    tables = {name: pa.concat_tables(each) for name, each in files.items()}
    bound = bind_query(query, {name: wm.stream(table, time="ts") for name, table in tables.items()})
    final = [at_us for at_us in every_instants(bound, tables) if at_us < (FAR_S - 2) * SECOND]
    wanted = [(*each.row, Instant(1_000 * each.as_of_us)) for each in evaluations(bound, tables, final)]
    assert len(wanted) > 3
    found = pa.concat_tables([pq.read_table(part) for part in sorted((tmp_path / "out").glob("part-*.parquet"))])
    assert as_multiset(table_rows(found)) == as_multiset(wanted)


def job(path: Path, query: str) -> IncrementalJob:
    sources: dict[str, Stream | Relation] = {
        name: Stream(FileSource(path / name, "ts"), "ts", lateness_us=2 * SECOND) for name in ("a", "b")
    }
    return IncrementalJob(
        wm.sql(query), sources, PartFileSink(path / "out"), False, path / "checkpoint", str(path / "out")
    )


def rows(name: str, from_s: int, until_s: int) -> pa.Table:
    """A row every second and one a microsecond before, overlapping with the next file by the lateness."""
    times = [at * SECOND - early for at in range(from_s, until_s) for early in (0, 1)]
    shift = 1 if name == "a" else 2
    return pa.table(
        {
            "ts": times,
            "k": [(time // SECOND + shift) % 3 for time in times],
            "v": [time // SECOND % 4 for time in times],
        }
    )
