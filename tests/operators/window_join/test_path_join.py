"""Directed path joins in both directions, by every algorithm that supports them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, join_rows, table_rows
from watersmeet.algebra.query import reverse_path
from watersmeet.errors import QueryError
from watersmeet.sql.binder import bind

PATH = """
    SELECT a.id AS ia, b.id AS ib, c.id AS ic, d.id AS id
    FROM a, b, c, d
    DWINDOW (a, b) = 4 SECONDS AND DWINDOW (b, c) = 2 SECONDS AND DWINDOW (c, d) = 3 SECONDS
    WHERE a.k = b.k AND b.k = c.k AND c.k = d.k
"""


def _tables(seed: int) -> dict[str, pa.Table]:
    rng = Random(seed)
    return {
        name: pa.table(
            {
                "ts": pa.array([rng.randrange(12) * 1_000_000 for _ in range(6)], pa.int64()),
                "k": pa.array([rng.randrange(2) for _ in range(6)], pa.int64()),
                "id": pa.array(range(6), pa.int64()),
            }
        )
        for name in "abcd"
    }


@pytest.mark.parametrize(
    "name", ["runs", "eager-nlj", "eager-hash", "nlw-join", "hw-join", "gca", "lca", "ripple-join", "xjoin"]
)
def test_a_path_is_found_in_both_directions(name: str) -> None:
    forward = wm.sql(PATH)
    for query in (forward, reverse_path(forward)):
        found: Counter[object] = Counter()
        for seed in range(20):
            tables = _tables(seed)
            streams = {stream: wm.stream(table, time="ts") for stream, table in tables.items()}
            rows = as_multiset(table_rows(wm.collect(query, streams, plan=wm.plan(name))))
            schemas = {stream: source.to_schema(stream) for stream, source in streams.items()}
            assert rows == as_multiset(join_rows(bind(query, schemas), tables)), f"seed {seed}"
            found.update(rows)
        assert found, "the test must compare at least one row"


def test_both_directions_agree_only_where_all_times_are_equal() -> None:
    forward = wm.sql(PATH.replace("a.id AS ia", "a.ts AS ia").replace("d.id AS id", "d.ts AS id"))
    streams = {name: wm.stream(table, time="ts") for name, table in _tables(1).items()}
    both = [as_multiset(table_rows(wm.collect(query, streams))) for query in (forward, reverse_path(forward))]
    assert all(row[0] == row[3] for row in both[0] & both[1])


def test_a_query_without_direction_has_no_reverse() -> None:
    with pytest.raises(QueryError, match="no DWINDOW"):
        reverse_path(wm.sql("SELECT a.id FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND]"))
