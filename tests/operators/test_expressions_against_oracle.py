"""Every expression has the oracle's value on every row.

The two share no code: the oracle goes row by row in Python, the engine column by column in Arrow. Where the oracle
raises on some row (overflow), the engine may raise as well or, where it need not look at that row's argument at all,
may not.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.operators.expression_trees import KINDS, expressions, tables
from tests.oracle.expressions import evaluate as evaluate_row
from tests.oracle.values import as_multiset, column_values
from tests.volume import scale_volume
from watersmeet.algebra.expressions import Expr
from watersmeet.errors import QueryError
from watersmeet.operators.expressions import evaluate, is_true

_SLOW_BUT_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=scale_volume(200), deadline=None, suppress_health_check=_SLOW_BUT_FINE)
@given(data=st.data())
def test_an_expression_means_the_same_by_column_and_by_row(kind: str, data: st.DataObject) -> None:
    expr, table = data.draw(expressions(kind)), data.draw(tables())
    wanted = _by_row(expr, table)
    if wanted is None:
        return
    found = evaluate(expr, lambda column: table.column(column.name).combine_chunks(), table.num_rows)
    assert isinstance(found, pa.Array)
    assert found.type == KINDS[kind]
    assert [_comparable(value) for value in column_values(pa.chunked_array([found]))] == [
        _comparable(value) for value in wanted
    ]


@settings(max_examples=scale_volume(200), deadline=None, suppress_health_check=_SLOW_BUT_FINE)
@given(expr=expressions("flag"), table=tables())
def test_is_true_where_the_oracle_says_true(expr: Expr, table: pa.Table) -> None:
    wanted = _by_row(expr, table)
    if wanted is not None:
        found = is_true(expr, lambda column: table.column(column.name).combine_chunks(), table.num_rows)
        assert found.tolist() == [value is True for value in wanted]


def _by_row(expr: Expr, table: pa.Table) -> list[Any] | None:
    """Return the oracle's value per row; None if it refuses a row, or a time is outside Python's calendar."""
    columns = {("s", name): column_values(table.column(name)) for name in KINDS}
    rows = [{name: values[number] for name, values in columns.items()} for number in range(table.num_rows)]
    try:
        return [evaluate_row(expr, row) for row in rows]
    except (QueryError, OverflowError):
        return None


def _comparable(value: Any) -> Any:
    return next(iter(as_multiset([(value,)])))
