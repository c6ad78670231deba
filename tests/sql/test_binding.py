"""Names against schemas: sources, columns, stars, outputs, groups."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sql.schemas import SCHEMAS, bind_error, bind_text, underlined_text
from watersmeet.algebra.expressions import Aggregate, Arithmetic, Cast, Column, Comparison, Literal
from watersmeet.algebra.query import EmitMode, Query, SelectItem, Source, Star
from watersmeet.algebra.render import format_expression
from watersmeet.algebra.schema import StreamSchema
from watersmeet.algebra.windows import RowsWindow
from watersmeet.errors import InternalError, QueryError
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

TWO = "FROM sales_a [ROWS 5] AS a, sales_b [ROWS 5] AS b"


def names(text: str) -> list[str]:
    return [output.name for output in bind_text(text).outputs]


# --- resolving


def test_columns_get_their_source_and_their_declared_name() -> None:
    query = bind_text("SELECT ITEM FROM sales_a [ROWS 5] AS a WHERE A.Store = 'x'")
    assert query.outputs[0].expr == Column("item", "a")
    assert query.where == Comparison("=", Column("store", "a"), Literal("x", pa.string()))


def test_streams_are_found_in_any_case_and_the_bound_query_has_the_declared_name() -> None:
    query = bind_text("SELECT * FROM SALES_A [PARTITION BY Store ROWS 5] AS a")
    assert query.query.sources == (Source("sales_a", "a", RowsWindow(5, ("store",))),)
    assert query.sources[0].window == RowsWindow(5, ("store",))
    assert query.query.text is not None


def test_a_column_of_one_source_needs_no_qualification() -> None:
    query = bind_text("SELECT auction, Name FROM bids [ROWS 5], stores")
    assert [output.expr for output in query.outputs] == [Column("auction", "bids"), Column("Name", "stores")]


def test_a_join_condition_does_not_see_sources_that_are_joined_later() -> None:
    query = """SELECT a.price FROM sales_a [ROWS 5] a JOIN bids [ROWS 5] ON item = auction
        JOIN sales_b [ROWS 5] b ON a.item = b.item"""
    where = bind_text(query).where
    assert where is not None
    assert format_expression(where) == "a.item = bids.auction AND a.item = b.item"


def test_exact_names_win_over_other_cases() -> None:
    schema = StreamSchema("s", pa.schema({"x": pa.int64(), "X": pa.int64(), "ts": pa.int64()}), "ts")
    query = bind(parse("SELECT x, X FROM s [ROWS 5]"), {"s": schema})
    assert [output.expr for output in query.outputs] == [Column("x", "s"), Column("X", "s")]


def test_names_that_differ_in_case_only_are_ambiguous_in_a_third_case() -> None:
    schema = StreamSchema("s", pa.schema({"xy": pa.int64(), "XY": pa.int64(), "ts": pa.int64()}), "ts")
    for text in (
        "SELECT xY FROM s [ROWS 5]",
        "SELECT s.xY FROM s [ROWS 5]",
        "SELECT * FROM s [PARTITION BY xY ROWS 5]",
    ):
        with pytest.raises(QueryError, match="could be"):
            bind(parse(text), {"s": schema})
    both = {"Bids": SCHEMAS["bids"], "BIDS": SCHEMAS["bids"]}
    with pytest.raises(QueryError, match='"bids" could be Bids or BIDS'):
        bind(parse("SELECT * FROM bids [ROWS 5]"), both)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT prize FROM bids [ROWS 5]", 'column "prize" does not exist in stream "bids"', "prize"),
        ("SELECT prize FROM bids [ROWS 5], stores", 'no source has a column "prize"', "prize"),
        (
            "SELECT stores.name2 FROM bids [ROWS 5], stores",
            'column "name2" does not exist in relation "stores"',
            "stores.name2",
        ),
        (f"SELECT item {TWO}", 'column "item" is in 2 sources', "item"),
        (
            "SELECT * FROM bids [PARTITION BY prize ROWS 5]",
            'column "prize" does not exist in stream "bids"',
            "bids [PARTITION BY prize ROWS 5]",
        ),
        (
            "SELECT * FROM bids [PARTITION BY price, PRICE ROWS 5]",
            "a column appears twice in PARTITION BY",
            "bids [PARTITION BY price, PRICE ROWS 5]",
        ),
        (
            "SELECT * FROM kinds [PARTITION BY list ROWS 5]",
            "PARTITION BY cannot take a list<item: int64>",
            "kinds [PARTITION BY list ROWS 5]",
        ),
        ("SELECT * FROM nowhere [ROWS 5]", 'there is no stream or relation "nowhere"', "nowhere [ROWS 5]"),
        (
            "SELECT * FROM bids [ROWS 5] AS a, stores AS s WINDOW (a, s) = 1 SECOND",
            '"s" is a relation: it has no time, so no window to another',
            "WINDOW (a, s) = 1 SECOND",
        ),
    ],
)
def test_a_name_that_does_not_resolve_is_pointed_at(text: str, message: str, place: str) -> None:
    error = bind_error(text)
    assert error.message == message
    assert underlined_text(error) == place


def test_a_query_of_relations_only_is_refused() -> None:
    assert bind_error("SELECT * FROM stores").message.startswith("a continuous query needs at least one stream")


def test_queries_built_by_hand_bind_too() -> None:
    query = Query((Source("bids", "b", RowsWindow(5)),), (Star("B"), SelectItem(Column("PRICE", "B"), "p")))
    assert bind(query, SCHEMAS).outputs[-1].expr == Column("price", "b")
    with pytest.raises(QueryError, match='there is no source "c" in FROM'):
        bind(Query((Source("bids", "b", RowsWindow(5)),), (SelectItem(Column("price", "c")),)), SCHEMAS)
    with pytest.raises(QueryError, match="SUM needs an argument"):
        bind(Query((Source("bids", "b", RowsWindow(5)),), (SelectItem(Aggregate("SUM")),)), SCHEMAS)
    with pytest.raises(InternalError, match="'MEDIAN' is no aggregate function"):
        bind(Query((Source("bids", "b", RowsWindow(5)),), (SelectItem(Aggregate("MEDIAN", Column("price"))),)), SCHEMAS)


# --- output names


def test_outputs_are_named_by_alias_else_by_name_else_with_the_source() -> None:
    assert names(f"SELECT a.item, a.store, b.store, a.price AS p {TWO}") == ["item", "a_store", "b_store", "p"]


def test_a_star_gives_every_column_of_every_source_in_order() -> None:
    assert names(f"SELECT * {TWO}") == [
        f"{alias}_{name}" for alias in "ab" for name in ("item", "store", "price", "ts")
    ]
    assert names("SELECT * FROM bids [ROWS 5], stores") == ["auction", "bidder", "price", "ts", "id", "Name"]
    assert names(f"SELECT b.*, a.item AS other {TWO}") == ["item", "store", "price", "ts", "other"]


def test_an_alias_keeps_its_name_and_the_other_column_gets_its_source() -> None:
    assert names(f"SELECT a.item, b.store AS item {TWO}") == ["a_item", "item"]


def test_an_expression_is_named_by_its_text_without_sources() -> None:
    assert names(f"SELECT COUNT(*), SUM(a.price), MAX(a.item + 1) {TWO}") == ["COUNT(*)", "SUM(price)", "MAX(item + 1)"]


def test_expressions_with_the_same_name_include_their_sources() -> None:
    assert names(f"SELECT SUM(a.price), SUM(b.price) {TWO}") == ["SUM(a.price)", "SUM(b.price)"]


@pytest.mark.parametrize(
    ("items", "name", "place"),
    [
        ("a.item AS x, b.item AS x", "x", "b.item"),
        ("a.item, a.item", "a_item", "a.item"),
        ("*, a.item", "a_item", "a.item"),
        ("a.store, b.store, a.item AS a_store", "a_store", "a.item"),
        ("COUNT(*), COUNT(*)", "COUNT(*)", "COUNT(*)"),
    ],
)
def test_two_outputs_of_one_name_are_refused(items: str, name: str, place: str) -> None:
    error = bind_error(f"SELECT {items} {TWO}")
    assert error.message == f'two output columns are called "{name}"'
    assert underlined_text(error) == place


# --- aggregation

GROUPED = "FROM sales_a [ROWS 5] AS a"


def test_group_keys_may_be_selected_and_computed_with() -> None:
    query = bind_text(
        f"SELECT store, LENGTH(a.store) AS n, item % 2 AS odd, COUNT(*) AS c {GROUPED} GROUP BY store, item % 2"
    )
    assert query.is_aggregation
    assert query.group_by == (Column("store", "a"), Arithmetic("%", Column("item", "a"), Literal(2, pa.int64())))


def test_having_may_use_aggregates_and_keys() -> None:
    query = bind_text(f"SELECT store {GROUPED} GROUP BY store HAVING SUM(item) > 5 AND store <> 'x'")
    assert query.having is not None
    assert bind_text(f"SELECT COUNT(*) {GROUPED} HAVING COUNT(*) > 5").is_aggregation


def test_every_goes_with_aggregates() -> None:
    assert bind_text(f"SELECT COUNT(*) {GROUPED} EVERY 5 SECONDS").query.every_us == 5_000_000
    tiles = bind_text("SELECT COUNT(*) FROM sales_a [TUMBLE 10 SECONDS] EMIT FINAL").query
    assert (tiles.emit, tiles.every_us) == (EmitMode.FINAL, 10_000_000)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (f"SELECT item, COUNT(*) {GROUPED}", "a.item is neither grouped nor aggregated", "item"),
        (f"SELECT * {GROUPED} GROUP BY item", "a.store is neither grouped nor aggregated", "*"),
        (f"SELECT item + 1 {GROUPED} GROUP BY item + 2", "a.item is neither grouped nor aggregated", "item"),
        (f"SELECT store {GROUPED} GROUP BY store HAVING item > 1", "a.item is neither grouped nor aggregated", "item"),
        (f"SELECT store {GROUPED} WHERE COUNT(*) > 1", "an aggregate is not allowed in WHERE", "COUNT(*)"),
        (f"SELECT store {GROUPED} GROUP BY COUNT(*)", "an aggregate is not allowed in GROUP BY", "COUNT(*)"),
        (
            f"SELECT SUM(1 + MAX(item)) {GROUPED}",
            "an aggregate inside an aggregate is not supported",
            "SUM(1 + MAX(item))",
        ),
        (
            f"SELECT store {GROUPED} GROUP BY 'x'",
            "GROUP BY takes columns, expressions and positions, not other constants",
            "'x'",
        ),
        (f"SELECT store {GROUPED} GROUP BY 2", "GROUP BY 2 is not a position in SELECT, which has one column", "2"),
        (
            f"SELECT COUNT(*) AS n {GROUPED} GROUP BY n",
            '"n" is an aggregate, and an aggregate is not allowed in GROUP BY',
            "n",
        ),
        (f"SELECT COUNT(*) FILTER (WHERE store) {GROUPED}", "FILTER takes a condition, not a VARCHAR", "store"),
        (
            f"SELECT SUM(item) FILTER (WHERE MAX(item) > 1) {GROUPED}",
            "an aggregate is not allowed in FILTER",
            "MAX(item)",
        ),
        (
            f"SELECT DATE_TRUNC('eon', ts) AS t, COUNT(*) {GROUPED} GROUP BY t",
            "DATE_TRUNC takes a unit as its first argument",
            "'eon'",
        ),
        (
            f"SELECT store {GROUPED} HAVING store = 'x'",
            "HAVING is for groups, and this query has no GROUP BY and no aggregate",
            "store = 'x'",
        ),
        ("SELECT COUNT(*) FROM kinds [ROWS 5] GROUP BY list", "GROUP BY cannot take a list<item: int64>", "list"),
        (
            f"SELECT item {GROUPED} EVERY 5 SECONDS",
            "EVERY is for aggregation queries; this query emits each result as soon as it is known",
            "EVERY",
        ),
        (
            f"SELECT item {GROUPED} EMIT SNAPSHOT",
            "EMIT is for aggregation queries; this query emits each result once, when it is known",
            "EMIT",
        ),
        (
            f"SELECT COUNT(*) {GROUPED} EMIT FINAL",
            "EMIT FINAL emits each complete tile, so every stream needs a TUMBLE window of the same length",
            "EMIT",
        ),
        (
            "SELECT COUNT(*) FROM sales_a [TUMBLE 10 SECONDS] EVERY 4 SECONDS EMIT FINAL",
            "EMIT FINAL is evaluated at the end of each tile, and a tile of 10 SECONDS does not end at a multiple of "
            "4 SECONDS",
            "EVERY",
        ),
    ],
)
def test_aggregates_and_columns_in_the_wrong_place_are_refused(text: str, message: str, place: str) -> None:
    error = bind_error(text)
    assert error.message == message
    assert underlined_text(error) == place


def test_binding_makes_coercions_explicit_and_keeps_spans() -> None:
    query = bind_text("SELECT SUM(i32) AS s FROM kinds [ROWS 5]")
    expr = query.outputs[0].expr
    assert expr == Aggregate("SUM", Cast(Column("i32", "kinds"), pa.int64()))
    assert expr.span is not None
