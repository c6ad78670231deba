"""The order ≺ covers every column: nested values compare element by element, nulls first, in any order of arrival."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.oracle.values import sort_key
from watersmeet.algebra.arrow_types import TEXT_VIEWS
from watersmeet.operators.ordering import rank_values

NAN = float("nan")
STRUCT = pa.struct([("i", pa.int64()), ("t", pa.string())])

#: Values of each type in ascending order.
ASCENDING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(pa.int64()), [None, [], [None], [None, 1], [1], [1, None], [1, 2], [300], [300, 1]]),
    "large list": (pa.large_list(pa.string()), [None, [], ["a"], ["a", "b"], ["b"]]),
    "fixed-size list": (pa.list_(pa.int64(), 2), [None, [None, 9], [1, None], [1, 2], [2, 0]]),
    "struct": (STRUCT, [None, {"i": None, "t": "z"}, {"i": 1, "t": None}, {"i": 1, "t": "a"}, {"i": 2, "t": "a"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [None, [], [("a", None)], [("a", 1)], [("a", 1), ("b", 0)], [("b", 0)]]),
    "list of lists": (
        pa.list_(pa.list_(pa.int64())),
        [None, [], [None], [[]], [[1]], [[1], None], [[1], [2]], [[1, 1]]],
    ),
    "list of structs": (pa.list_(STRUCT), [None, [], [None], [{"i": None, "t": "a"}], [{"i": 1, "t": "a"}]]),
    "list of floats": (pa.list_(pa.float64()), [None, [None], [-1.0], [0.0], [0.0, 1.0], [NAN], [NAN, 1.0]]),
    "list of booleans": (pa.list_(pa.bool_()), [None, [False], [True]]),
    "empty struct": (pa.struct([]), [None, {}]),
}
if TEXT_VIEWS:
    ASCENDING["list of text views"] = (pa.list_(pa.string_view()), [None, ["a"], ["b"]])
    ASCENDING["list view"] = (pa.list_view(pa.int64()), [None, [], [1], [1, 2], [2]])


@pytest.mark.parametrize("name", ASCENDING)
def test_codes_of_nested_values_ascend_with_the_values(name: str) -> None:
    kind, values = ASCENDING[name]
    codes = rank_values(pa.array([values[-1], *values], kind).slice(1)).tolist()
    assert codes == sorted(set(codes))
    assert codes[0] == 0
    assert [sort_key(value) for value in values] == sorted(sort_key(value) for value in values)


def test_equal_nested_values_share_a_code() -> None:
    assert rank_values(pa.array([[0.0], [-0.0], [NAN], [NAN]])).tolist() == [1, 1, 2, 2]


_NESTED_VALUES = st.lists(st.none() | st.lists(st.none() | st.integers(-2, 300), max_size=3), max_size=4)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.none() | st.fixed_dictionaries({"i": st.none() | st.integers(-1, 1), "l": st.none() | _NESTED_VALUES}),
        max_size=8,
    )
)
def test_codes_compare_as_the_definition_does(values: list[Any]) -> None:
    kind = pa.struct([("i", pa.int64()), ("l", pa.list_(pa.list_(pa.int64())))])
    array: pa.Array[Any] = pa.array(values, kind)
    codes, keys = rank_values(array).tolist(), [sort_key(value) for value in array.to_pylist()]
    for code, key in zip(codes, keys, strict=True):
        assert [code < other for other in codes] == [key < other for other in keys]


@pytest.mark.parametrize("name", ASCENDING)
def test_a_nested_column_decides_which_of_equal_times_is_the_last_row(name: str) -> None:
    kind, values = ASCENDING[name]
    chosen = [values[1], values[-1], values[0]]
    for order in permutations(range(3)):
        table = pa.table({"ts": [7, 7, 7], "n": pa.array([chosen[i] for i in order], kind), "v": pa.array(order)})
        found = wm.collect("SELECT v FROM s [ROWS 1]", {"s": wm.stream(table, time="ts")})
        assert found["v"].to_pylist() == [1], order


def test_nanoseconds_of_equal_microseconds_decide_last() -> None:
    for times in permutations((1_001, 1_002, 1_003)):
        for column in (pa.array(times, pa.timestamp("ns")), pa.array(times, pa.int64())):
            table = pa.table({"ts": column, "v": [5, 5, 5]})
            unit = "ns" if pa.types.is_integer(column.type) else None
            found = wm.collect("SELECT ts FROM s [ROWS 1]", {"s": wm.stream(table, time="ts", unit=unit)})
            assert found["ts"].cast(pa.int64()).to_pylist() == [1_003]


def test_values_without_an_order_are_refused_in_a_rows_window_and_allowed_elsewhere() -> None:
    union = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])
    streams = {"s": wm.stream(pa.table({"ts": [1, 1], "u": union, "v": [1, 2]}), time="ts")}
    assert wm.collect("SELECT v FROM s [RANGE 1 SECOND]", streams).num_rows == 2
    with pytest.raises(wm.WatersmeetError, match=r'column "u" of "s" is dense_union.*, whose values have no order'):
        wm.collect("SELECT v FROM s [ROWS 1]", streams)


@pytest.mark.parametrize("name", ["list", "struct", "map"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT v FROM s [PARTITION BY n ROWS 1]",
        "SELECT n, COUNT(*) AS c FROM s [ROWS 1] GROUP BY n",
        "SELECT a.v FROM s [ROWS 1] AS a, s [ROWS 1] AS b WHERE a.n = b.n",
        "SELECT MIN(n) AS m FROM s [ROWS 1]",
    ],
)
def test_nested_values_cannot_be_keys(name: str, query: str) -> None:
    kind, values = ASCENDING[name]
    table = pa.table({"ts": [1] * len(values), "n": pa.array(values, kind), "v": list(range(len(values)))})
    with pytest.raises(wm.WatersmeetError, match=r"cannot take a (list|struct|map)"):
        wm.collect(query, {"s": wm.stream(table, time="ts")})


@pytest.mark.parametrize("name", ASCENDING)
def test_rows_with_nested_columns_are_shed_and_aggregated(name: str) -> None:
    kind, values = ASCENDING[name]
    table = pa.table({"ts": [1] * len(values), "n": pa.array(values, kind), "v": list(range(len(values)))})
    streams = {"s": wm.stream(table, time="ts")}
    kept = [wm.collect("SELECT v FROM s [LANDMARK]", streams, plan=wm.plan(drop={"s": 0.5})).num_rows for _ in range(2)]
    assert kept[0] == kept[1] <= len(values)
    counted = wm.collect("SELECT COUNT(n) AS c FROM s [ROWS 100] EVERY 1 MICROSECOND", streams)
    assert counted["c"].to_pylist() == [len(values) - 1]
