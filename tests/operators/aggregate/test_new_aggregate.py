"""An aggregate is a row of two tables, its types and its computation: aggregates that only this file knows run.

`TOTAL(x)` is the sum as a floating-point number, 0 where there are no values. `BOOL_OR(x)` is true where one value is.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.aggregate.test_finished_tiles import in_order, rows_of, sources_of
from tests.oracle import aggregate as oracle
from tests.oracle import evaluations, every_instants
from watersmeet.errors import QueryError
from watersmeet.operators.aggregate import functions
from watersmeet.operators.aggregate.functions import AGGREGATE_FUNCTIONS, AggregateFunction, GroupState
from watersmeet.sources.declarations import bind_query
from watersmeet.sql.coercion import convert_to
from watersmeet.sql.functions import AGGREGATES, AggregateSignature, AggregateTypes
from watersmeet.sql.types import Family, TypedExpr


def type_total(function: str, arg: TypedExpr) -> AggregateTypes:
    return convert_to(arg, pa.float64()), pa.float64()


def type_boolean(function: str, arg: TypedExpr) -> AggregateTypes:
    if arg.family is not Family.BOOLEAN:
        raise QueryError(f"{function} takes a condition", span=arg.span)
    return arg.expr, pa.bool_()


def fill_with_zero(sums: pa.Array[Any], counts: np.ndarray[Any, Any]) -> pa.Array[Any]:
    return sums.fill_null(0.0)


@pytest.fixture
def _two_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add both: their types, their computation, their definitions in the oracle."""
    monkeypatch.setitem(AGGREGATES, "TOTAL", AggregateSignature(type_total))
    monkeypatch.setitem(AGGREGATES, "BOOL_OR", AggregateSignature(type_boolean))
    total = AggregateFunction(GroupState.SUM, finish=fill_with_zero)
    monkeypatch.setitem(functions.AGGREGATE_FUNCTIONS, "TOTAL", total)
    monkeypatch.setitem(functions.AGGREGATE_FUNCTIONS, "BOOL_OR", AggregateFunction(GroupState.EXTREME, largest=True))
    monkeypatch.setitem(oracle._AGGREGATES, "TOTAL", lambda values, arg: float(sum(values)))
    monkeypatch.setitem(oracle._AGGREGATES, "BOOL_OR", lambda values, arg: any(values) if values else None)


@pytest.mark.usefixtures("_two_more")
@pytest.mark.parametrize("early", [(), ("a",), ("b",), ("a", "b")])
def test_a_new_aggregate_is_parsed_typed_and_computed(early: tuple[str, ...]) -> None:
    rng = Random(0)
    tables = {
        name: pa.table(
            {
                "ts": sorted(rng.randrange(40) for _ in range(30)),
                "k": [rng.randrange(3) for _ in range(30)],
                "x": pa.array([rng.choice((None, None, 1, 2, 5)) for _ in range(30)], pa.int64()),
            }
        )
        for name in "ab"
    }
    query = """
        SELECT a.k, TOTAL(a.x) AS total, BOOL_OR(a.x > b.x) AS larger, SUM(b.x) AS plain, COUNT(*) AS n
        FROM a [RANGE 6 MICROSECONDS], b [ROWS 4] WHERE a.k = b.k GROUP BY a.k
        HAVING TOTAL(b.x) >= 0 EVERY 3 MICROSECONDS
    """
    bound = bind_query(query, sources_of(tables))
    wanted = in_order((each.as_of_us, *each.row) for each in evaluations(bound, tables, every_instants(bound, tables)))
    assert {True, False, None} == {row[3] for row in wanted}
    assert rows_of(wm.collect(query, sources_of(tables), plan=wm.plan(early=early))) == wanted


@pytest.mark.usefixtures("_two_more")
def test_a_new_aggregate_is_estimated_from_kept_rows() -> None:
    table = pa.table({"ts": list(range(400)), "x": [n % 10 for n in range(400)]})
    query = "SELECT TOTAL(x) AS total, BOOL_OR(x > 8) AS larger FROM a [LANDMARK] EVERY 399 MICROSECONDS"
    found = wm.collect(query, sources_of({"a": table}), plan=wm.plan(drop={"a": 0.5})).to_pylist()[-1]
    assert abs(found["total"] - 1_800) < 4 * found["total_stderr"]
    assert (found["larger"], found["larger_bound"]) == (True, "at least")


@pytest.mark.usefixtures("_two_more")
def test_mistakes_name_the_new_aggregate() -> None:
    source = sources_of({"a": pa.table({"ts": [0]})})
    with pytest.raises(QueryError, match="BOOL_OR takes a condition"):
        wm.collect("SELECT BOOL_OR(ts) AS n FROM a [LANDMARK]", source)
    with pytest.raises(QueryError, match="TOTAL takes a value, not a star"):
        wm.collect("SELECT TOTAL(*) AS n FROM a [LANDMARK]", source)
    with pytest.raises(QueryError, match=r"existing functions: .*TOTAL"):
        wm.collect("SELECT MEDIAN(ts) AS n FROM a [LANDMARK]", source)


def test_the_two_tables_have_the_same_aggregates() -> None:
    assert list(AGGREGATES) == list(AGGREGATE_FUNCTIONS) == list(oracle._AGGREGATES)
