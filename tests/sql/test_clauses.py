"""Sources, windows, constraints, joins and EVERY."""

from __future__ import annotations

import pytest

from tests.sql.schemas import parse_error, underlined_text
from watersmeet.algebra.expressions import And, Column, Comparison
from watersmeet.algebra.query import EmitMode, PairConstraint, Query, SelectItem, Source, Star
from watersmeet.algebra.windows import LandmarkWindow, RangeWindow, RowsWindow, TumbleWindow, Window
from watersmeet.sql.parsing import parse

SECOND = 1_000_000


def column(name: str) -> Column:
    source, name = name.split(".")
    return Column(name, source)


def equal(left: str, right: str) -> Comparison:
    return Comparison("=", column(left), column(right))


def test_the_query_of_the_front_page() -> None:
    query = parse("""
        SELECT a.item, a.store, b.store, c.store
        FROM sales_a [RANGE 1 HOUR] AS a, sales_b [RANGE 1 HOUR] AS b, sales_c [ROWS 1000] AS c
        WHERE a.item = b.item AND b.item = c.item
    """)
    assert query == Query(
        sources=(
            Source("sales_a", "a", RangeWindow(3_600 * SECOND)),
            Source("sales_b", "b", RangeWindow(3_600 * SECOND)),
            Source("sales_c", "c", RowsWindow(1000)),
        ),
        select=tuple(SelectItem(column(name)) for name in ("a.item", "a.store", "b.store", "c.store")),
        where=And((equal("a.item", "b.item"), equal("b.item", "c.item"))),
    )


@pytest.mark.parametrize(
    ("brackets", "window"),
    [
        ("RANGE 5 SECONDS", RangeWindow(5 * SECOND)),
        ("WINDOW 5 SECONDS", RangeWindow(5 * SECOND)),
        ("RANGE 0 SECONDS", RangeWindow(0)),
        ("WINDOW 0 DAYS", RangeWindow(0)),
        ("range 0.5 second", RangeWindow(SECOND // 2)),
        ("RANGE '5' SECOND", RangeWindow(5 * SECOND)),
        ("RANGE 1e3 MICROSECONDS", RangeWindow(1_000)),
        ("ROWS 10", RowsWindow(10)),
        ("PARTITION BY x ROWS 10", RowsWindow(10, ("x",))),
        ('Partition By x, "y z", rows Rows 10', RowsWindow(10, ("x", "y z", "rows"))),
        ("TUMBLE 1 MINUTE", TumbleWindow(60 * SECOND)),
        ("LANDMARK", LandmarkWindow()),
        ("WINDOW UNTIL NOW", LandmarkWindow()),
    ],
)
@pytest.mark.parametrize("source", ["s {} AS a", "s AS a {}", "s {} a", "s a {}"])
def test_a_window_follows_the_name_or_the_alias(source: str, brackets: str, window: Window) -> None:
    query = parse(f"SELECT * FROM {source.format(f'[{brackets}]')}")
    assert query.sources == (Source("s", "a", window),)


@pytest.mark.parametrize(
    ("unit", "size_us"),
    [
        ("MICROSECOND", 1),
        ("MILLISECOND", 1_000),
        ("SECOND", SECOND),
        ("MINUTE", 60 * SECOND),
        ("HOUR", 3_600 * SECOND),
        ("DAY", 86_400 * SECOND),
        ("WEEK", 7 * 86_400 * SECOND),
    ],
)
def test_units_are_singular_or_plural_in_any_case(unit: str, size_us: int) -> None:
    for written in (unit, unit + "S", unit.lower(), unit.title() + "s"):
        assert parse(f"SELECT * FROM s [RANGE 3 {written}]").sources[0].window == RangeWindow(3 * size_us)


def test_a_source_without_an_alias_is_called_by_its_name() -> None:
    assert parse("SELECT * FROM s, t [ROWS 5]").sources == (Source("s", "s"), Source("t", "t", RowsWindow(5)))


FROM = "SELECT * FROM s AS a, t AS b, u AS c "


def test_one_window_for_all_pairs() -> None:
    assert parse(FROM + "WINDOW = 10 SECONDS").all_pairs_us == 10 * SECOND


def test_windows_of_given_pairs_directed_or_not() -> None:
    query = parse(FROM + "WINDOW (a, b) = 1 SECOND AND DWINDOW (b, c) = 2 SECONDS AND window (A, C) = 3 SECONDS")
    assert query.pairs == (
        PairConstraint("a", "b", SECOND),
        PairConstraint("b", "c", 2 * SECOND, directed=True),
        PairConstraint("a", "c", 3 * SECOND),
    )


def test_pairs_may_have_to_be_of_one_instant() -> None:
    query = parse(FROM + "WINDOW = 0 SECONDS AND WINDOW (a, b) = 0 HOURS AND DWINDOW (b, c) = 0 MICROSECONDS")
    assert (query.all_pairs_us, query.pairs) == (
        0,
        (PairConstraint("a", "b", 0), PairConstraint("b", "c", 0, directed=True)),
    )


def test_all_pairs_and_given_pairs_go_together() -> None:
    query = parse(FROM + "WINDOW = 10 SECONDS AND DWINDOW (a, b) = 1 SECOND WHERE a.x = b.x")
    assert (query.all_pairs_us, query.pairs) == (10 * SECOND, (PairConstraint("a", "b", SECOND, directed=True),))


def test_constraints_may_follow_where() -> None:
    before = parse(FROM + "WINDOW (a, b) = 1 SECOND WHERE a.x = b.x GROUP BY a.x")
    behind = parse(FROM + "WHERE a.x = b.x WINDOW (a, b) = 1 SECOND GROUP BY a.x")
    assert before == behind


def test_commas_joins_and_cross_joins_mix() -> None:
    mixed = parse(
        "SELECT * FROM s a JOIN t b ON a.x = b.x, u c CROSS JOIN v d "
        "INNER JOIN w e ON e.y = d.y AND e.z = a.z WHERE c.x = d.x"
    )
    plain = parse("SELECT * FROM s a, t b, u c, v d, w e WHERE a.x = b.x AND e.y = d.y AND e.z = a.z AND c.x = d.x")
    assert mixed == plain


def test_a_single_join_condition_is_kept_as_it_is_written() -> None:
    assert parse("SELECT * FROM s a JOIN t b ON a.x = b.x").where == equal("a.x", "b.x")
    assert parse("SELECT * FROM s a JOIN t b ON a.x = b.x AND (a.y = b.y AND a.z = b.z)").where == And(
        (equal("a.x", "b.x"), And((equal("a.y", "b.y"), equal("a.z", "b.z"))))
    )


def test_group_by_having_and_every() -> None:
    query = parse(
        "SELECT a.x, COUNT(*) AS n FROM s [TUMBLE 1 HOUR] a GROUP BY a.x, a.y HAVING COUNT(*) > 1 EVERY 10 SECONDS"
    )
    assert query.group_by == (column("a.x"), column("a.y"))
    assert query.having is not None
    assert query.every_us == 10 * SECOND


def test_stars_and_aliases() -> None:
    query = parse('SELECT *, a.*, a.x AS one, a.y two, a.z AS "three 3" FROM s a')
    assert query.select == (
        Star(),
        Star("a"),
        SelectItem(column("a.x"), "one"),
        SelectItem(column("a.y"), "two"),
        SelectItem(column("a.z"), "three 3"),
    )


def test_names_in_quotes_or_backticks_hold_anything() -> None:
    query = parse('SELECT "a ""b"" c".`x ``y`` z`, "select" FROM "1.2" AS "a ""b"" c"')
    assert query.sources == (Source("1.2", 'a "b" c'),)
    assert query.select == (SelectItem(Column("x `y` z", 'a "b" c')), SelectItem(Column("select")))


def test_names_keep_their_case_and_sources_are_found_in_any_case() -> None:
    query = parse("SELECT A.Price, a.PRICE FROM Sales AS a")
    assert query.select == (SelectItem(Column("Price", "a")), SelectItem(Column("PRICE", "a")))
    assert query.sources == (Source("Sales", "a"),)


def test_a_source_is_found_as_written_before_any_other_case() -> None:
    query = parse("SELECT A.x, a.x FROM s AS a, t AS A")
    assert query.select == (SelectItem(Column("x", "A")), SelectItem(Column("x", "a")))
    assert underlined_text(parse_error("SELECT B.x FROM s AS Bb, t AS bB")) == "B"
    assert parse_error("SELECT BB.x FROM s AS Bb, t AS bB").message == '"BB" could be Bb or bB'


def test_after_a_dot_every_word_is_a_name() -> None:
    query = parse("SELECT a.limit, a.window, a.from, a.left FROM s a")
    assert [item.expr for item in query.select if isinstance(item, SelectItem)] == [
        Column(name, "a") for name in ("limit", "window", "from", "left")
    ]


FREE_WORDS = "emit final rows range date timestamp order group by second over filter first offset values key partition"


@pytest.mark.parametrize("name", FREE_WORDS.split())
def test_most_words_need_no_quotes(name: str) -> None:
    query = parse(f"SELECT {name}, a.{name} AS {name} FROM {name} [ROWS 5] AS a WHERE {name} > 5")
    assert query.sources[0].name == name
    assert query.select[0] == SelectItem(Column(name))


def test_emit_is_the_last_clause() -> None:
    start = "SELECT COUNT(*) FROM s [ROWS 5]"
    assert parse(f"{start} emit snapshot").emit is EmitMode.SNAPSHOT
    assert parse(f"{start} EVERY 1 SECOND EMIT FINAL").emit is EmitMode.FINAL
    assert parse(f"{start} AS a EMIT CHANGES WITH OPERATIONS").operations
    assert parse(f"{start} EMIT CHANGES") == parse(start)
    assert parse(f"{start} emit").sources[0].alias == "emit"
    error = parse_error(f"{start} EMIT SNAPSHOT WITH OPERATIONS")
    assert error.message == "only changes have operations; snapshot emits whole results"
    assert underlined_text(error) == "SNAPSHOT WITH OPERATIONS"
    assert "CHANGES, SNAPSHOT or FINAL after EMIT" in parse_error(f"{start} EMIT ROWS").message
    assert "OPERATIONS after WITH" in parse_error(f"{start} EMIT CHANGES WITH NOTHING").message


def test_comments_are_skipped() -> None:
    text = "-- one\nSELECT /* two */ a.x -- it's\nFROM s /* 'three' */ AS a /* four\n five */ -- six"
    assert parse(text) == parse("SELECT a.x FROM s AS a")


def test_one_semicolon_may_end_the_query() -> None:
    assert parse("SELECT * FROM s;") == parse("SELECT * FROM s")


def test_the_text_is_kept_for_later_errors() -> None:
    assert parse("SELECT * FROM s").text == "SELECT * FROM s"
