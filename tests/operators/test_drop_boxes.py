"""Drop boxes: a row's values and the stream's name decide whether it is kept, and a larger share keeps more."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.errors import PlanError
from watersmeet.operators.row_identity import hash_rows, is_part_of_identity
from watersmeet.operators.shed.sampling import DropBox

ROWS = pa.table(
    {"ts": range(20_000), "k": [n % 97 for n in range(20_000)], "name": [f"item {n % 13}" for n in range(20_000)]}
)
SELF_JOIN = "SELECT a.k FROM s [RANGE 5 MICROSECONDS] AS a, s [RANGE 5 MICROSECONDS] AS b WHERE a.k = b.k"
shares = st.floats(0, 1)


@given(shares, shares, st.integers(-(2**63), 2**63 - 1))
def test_a_larger_share_keeps_every_row_that_a_smaller_one_keeps(one: float, other: float, seed: int) -> None:
    rows = ROWS.slice(0, 500)
    few, many = (DropBox("s", share, seed).select_kept(rows) for share in sorted((one, other)))
    assert not (few & ~many).any()


def test_the_kept_share_is_the_requested_share() -> None:
    for keep in (0.0, 0.01, 0.3, 0.999, 1.0):
        kept = DropBox("s", keep, seed=3).select_kept(ROWS).mean()
        assert kept == pytest.approx(keep, abs=5 * (keep * (1 - keep) / ROWS.num_rows) ** 0.5 + 1e-12)


def test_streams_with_equal_rows_are_sampled_independently() -> None:
    one, other = (DropBox(name, 0.5).select_kept(ROWS) for name in ("s", "t"))
    assert (one & other).mean() == pytest.approx(0.25, abs=0.02)
    assert (one == DropBox("s", 0.5, seed=1).select_kept(ROWS)).mean() == pytest.approx(0.5, abs=0.02)


@given(st.lists(st.integers(0, 20_000), max_size=5))
def test_chunks_and_slices_do_not_matter(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), ROWS.num_rows]
    pieces = [ROWS.slice(start, stop - start) for start, stop in pairwise(bounds)]
    whole = hash_rows(ROWS)
    assert hash_rows(pa.concat_tables(pieces)).tolist() == whole.tolist()
    assert [identity for piece in pieces for identity in hash_rows(piece)] == whole.tolist()


def test_columns_with_maps_are_excluded_from_the_identity() -> None:
    maps = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert not is_part_of_identity(maps.type)
    assert not is_part_of_identity(pa.list_(maps.type))
    assert hash_rows(pa.table({"k": [1, 1], "tags": maps})).tolist() == hash_rows(pa.table({"k": [1, 1]})).tolist()


@pytest.mark.parametrize(
    ("drop", "reason"),
    [
        ({"x": 0.5}, 'drops from "x", which is not a source'),
        ({"a": 0.5, "b": 0.4}, 'two shares to drop of stream "s"'),
        ({"a": 1.5}, "is between 0 and 1"),
    ],
)
def test_impossible_drop_rates_are_refused(drop: dict[str, float], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        wm.collect(SELF_JOIN, {"s": wm.stream(ROWS, time="ts")}, plan=wm.plan(drop=drop))


def test_a_relation_has_no_drop_box() -> None:
    sources: dict[str, wm.Stream | wm.Relation] = {
        "s": wm.stream(ROWS, time="ts"),
        "r": wm.relation(pa.table({"k": [1]})),
    }
    with pytest.raises(PlanError, match='"r" is a relation'):
        wm.collect("SELECT s.k FROM s [RANGE 1 SECOND], r WHERE s.k = r.k", sources, plan=wm.plan(drop={"r": 0.5}))


def test_a_stream_read_twice_has_one_drop_box() -> None:
    streams = {"s": wm.stream(ROWS, time="ts")}
    by_alias, by_name = (wm.collect(SELF_JOIN, streams, plan=wm.plan(drop={name: 0.4})) for name in ("a", "s"))
    assert by_alias.equals(by_name)
    assert by_alias.num_rows == DropBox("s", 0.6).select_kept(ROWS).sum(), "rows meet themselves only"
