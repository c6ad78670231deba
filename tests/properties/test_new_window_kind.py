"""A window kind is one class and one grammar rule: a kind that only this file knows runs, plans and prints.

`[HOP 30 SECONDS BY 10 SECONDS]` contains windows of 30 seconds that start every 10 seconds. A row is valid until the
end of the last of them that contains it. With EVERY, it is shown at that end too, and rows at a start appear one
microsecond later, as for TUMBLE.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.aggregate.test_finished_tiles import collect_rows
from tests.oracle import windows as oracle
from tests.oracle.windows import StreamRow, WindowDefinition
from tests.properties.generators.aggregation_cases import collect_groups, expected_groups_by_row, generate_aggregation
from tests.properties.generators.arrival_orders import arrive_with_late_rows
from tests.properties.generators.cases import FromItem, QueryCase
from tests.properties.generators.join_cases import generate_case
from tests.volume import scale_volume
from watersmeet.algebra.windows import Int64s, RangeWindow, Window, check_length, format_sql_duration
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.errors import PlanError, QueryError
from watersmeet.sql import clauses
from watersmeet.sql.clauses import WindowParser

from . import test_aggregation
from .test_against_the_oracle import FIRST_SEED, check_late_rows, check_one_batch, check_plans

JOIN_CASES = scale_volume(60)
PLANNED_CASES = scale_volume(12)
GROUP_CASES = scale_volume(25)

SOURCES = Path(wm.__file__).parent


@dataclass(frozen=True, slots=True)
class HopWindow(Window):
    """Rows of the windows of `length_us` that start at every multiple of `hop_us` and have not ended."""

    length_us: int
    hop_us: int

    kind: ClassVar[str] = "hop"

    def __post_init__(self) -> None:
        check_length(self.length_us)
        if not 0 < self.hop_us <= self.length_us:
            raise QueryError("a HOP window is at least as long as its hop, and the hop is longer than zero")

    def __str__(self) -> str:
        return f"HOP {format_sql_duration(self.length_us)} BY {format_sql_duration(self.hop_us)}"

    def longest_validity_us(self, every_us: int | None) -> int:
        return self.length_us if every_us is not None else self.length_us - 1

    def row_ends_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        return times_us // self.hop_us * self.hop_us + self.longest_validity_us(every_us)

    def row_starts_us(self, times_us: Int64s, every_us: int | None) -> Int64s:
        return times_us if every_us is None else np.where(times_us % self.hop_us == 0, times_us + 1, times_us)

    def last_instant_us(self, largest_us: int) -> int:
        return largest_us // self.hop_us * self.hop_us + self.length_us

    def covering_window(self, every_us: int | None) -> Window:
        return self if every_us is None else RangeWindow(self.length_us)

    def mean_filled_us(self, kept_us: int, every_us: int | None) -> float:
        return self.length_us - (self.hop_us - (0 if every_us is None else math.gcd(self.hop_us, every_us))) / 2

    @property
    def size(self) -> int:
        return self.length_us

    def resize(self, size: int) -> HopWindow:
        return HopWindow(size, min(size, self.hop_us))

    def _facts(self) -> dict[str, Any]:
        return {"length_us": self.length_us, "hop_us": self.hop_us}


def parse_hop(parser: WindowParser) -> Window:
    length_us = parser.parse_length()
    parser.expect_words("BY", "HOP 30 SECONDS BY 10 SECONDS")
    return HopWindow(length_us, parser.parse_length())


def hop_contents(window: HopWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Keep the rows since the start of the oldest window that is still open: it began less than a length ago."""
    start_us = next(
        start_us for start_us in _starts_from(window, t_us - window.length_us) if _ends(window, start_us) > t_us
    )
    return [row for row in rows if start_us <= row.ts_us]


def hop_contents_every(window: HopWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Show a finished window at its end, and start the next one a microsecond later."""
    start_us = next(
        start_us for start_us in _starts_from(window, t_us - window.length_us) if _ends(window, start_us) >= t_us
    )
    return [row for row in rows if start_us <= row.ts_us <= t_us and not row.ts_us == t_us == _start(window, t_us)]


def _start(window: HopWindow, t_us: int) -> int:
    return t_us - t_us % window.hop_us


def _ends(window: HopWindow, start_us: int) -> int:
    return start_us + window.length_us


def _starts_from(window: HopWindow, t_us: int) -> Iterator[int]:
    start_us = _start(window, t_us)
    while True:
        yield start_us
        start_us += window.hop_us


@pytest.fixture(autouse=True)
def hop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the kind: its class above, its rule in the grammar, its definition in the oracle."""
    monkeypatch.setitem(clauses.WINDOW_RULES, "HOP", parse_hop)
    definition = WindowDefinition(
        hop_contents, hop_contents_every, lambda window, largest_us: _ends(window, _start(window, largest_us))
    )
    kind: type[Window] = HopWindow
    monkeypatch.setitem(oracle.DEFINITIONS, kind, definition)


def test_a_row_joins_until_the_last_hop_that_contains_it_ends() -> None:
    #  µs      0     10    20    30    39  40
    #  left         [12----------------39]
    #  hops         10----------------->
    #                     20----------------->
    #  right   9                       39  40
    left, right = pa.table({"ts": [12]}), pa.table({"ts": [9, 39, 40]})
    found = wm.collect(
        "SELECT b.ts AS t FROM a [HOP 30 MICROSECONDS BY 10 MICROSECONDS], b [HOP 3 MICROSECONDS BY 1 MICROSECOND]",
        {"a": wm.stream(left, time="ts"), "b": wm.stream(right, time="ts")},
    )
    assert found.column("t").to_pylist() == [39]


def test_every_instant_shows_the_finished_hop() -> None:
    #  µs     0  3  10 12   20     30     40     50
    #  rows   0  3  10 12
    #  hops   [0,20): 4; [10,30): 2; [20,40): 0
    query = "SELECT COUNT(*) AS n FROM a [HOP 20 MICROSECONDS BY 10 MICROSECONDS] EVERY 10 MICROSECONDS"
    assert collect_rows(query, a=[0, 3, 10, 12]) == [(10, 2), (20, 4), (30, 2)]


def test_joins_over_the_new_kind_give_the_oracles_rows() -> None:
    for case in islice(_hop_cases(), JOIN_CASES):
        check_one_batch(case)
        check_late_rows(case, arrive_with_late_rows(Random(case.seed), case))


def test_every_plan_of_a_join_over_the_new_kind_gives_the_oracles_rows() -> None:
    for case in islice(_hop_cases(), PLANNED_CASES):
        check_plans(Random(case.seed), case)


@pytest.mark.parametrize("every", [True, False])
def test_groups_over_the_new_kind_are_the_oracles_groups(every: bool) -> None:
    for case in islice(_hop_aggregations(every=every), GROUP_CASES):
        if every:
            test_aggregation.check_one_batch(case)
        else:
            test_aggregation.assert_same(case, collect_groups(case, None, "row"), expected_groups_by_row(case))


@pytest.mark.parametrize("every", [5, 7, 10, 20])
@pytest.mark.parametrize(
    "windows", [("HOP 20 {us} BY 10 {us}", "RANGE 5 {us}"), ("TUMBLE 10 {us}", "HOP 15 {us} BY 6 {us}")]
)
def test_pairs_are_counted_alike_by_every_placement_and_by_a_shedding_run(windows: tuple[str, str], every: int) -> None:
    a, b = (window.format(us="MICROSECONDS") for window in windows)
    query = f"SELECT COUNT(*) AS n FROM a [{a}], b [{b}] EVERY {every} MICROSECONDS"
    assert collect_rows(query, a=[-11, 0, 3, 10, 12, 25], b=[-10, 0, 4, 9, 10, 24, 30])


def test_the_text_of_the_new_kind_is_parsed_back_and_explained() -> None:
    query = wm.sql("SELECT a.k FROM a [HOP 30 SECONDS BY 10 SECONDS], b [RANGE 1 MINUTE] WHERE a.k = b.k")
    assert query.sources[0].window == HopWindow(30_000_000, 10_000_000)
    assert wm.sql(str(query)) == query
    written = (
        '"window": {"kind": "hop", "length_us": 30000000, "hop_us": 10000000, "text": "HOP 30 SECONDS BY 10 SECONDS"}'
    )
    assert written in json.dumps(query.to_dict())
    stats = {name: wm.stats(rate=1000, distinct={"k": 50}) for name in "ab"}
    explanation = wm.explain(query, stats)
    assert "[HOP 30 SECONDS BY 10 SECONDS]" in str(explanation)
    assert explanation.workload.inputs[0].held_rows.value == pytest.approx(25_000)
    json.dumps(explanation.to_dict(), allow_nan=False)
    asked = WhatIf(query, stats, explanation)
    assert asked.answer({"window a": 3.0}).workload.inputs[0].held_rows.value == pytest.approx(1_500)


def test_mistakes_in_the_new_kind_are_underlined_and_other_mistakes_list_it() -> None:
    with pytest.raises(QueryError, match="at least as long as its hop") as longer_hop:
        wm.sql("SELECT * FROM a [HOP 1 SECOND BY 2 SECONDS]")
    assert longer_hop.value.span is not None
    with pytest.raises(QueryError, match="expected BY, as in HOP 30 SECONDS BY 10 SECONDS"):
        wm.sql("SELECT * FROM a [HOP 1 SECOND]")
    with pytest.raises(QueryError, match="LANDMARK, WINDOW UNTIL NOW or HOP"):
        wm.sql("SELECT * FROM a [SESSION 1 SECOND]")


def test_plans_that_need_other_windows_refuse_the_new_kind() -> None:
    table = pa.table({"ts": [0], "k": [1]})
    streams = {name: wm.stream(table, time="ts") for name in "ab"}
    query = "SELECT a.k FROM a [HOP 2 SECONDS BY 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
    with pytest.raises(PlanError, match="a window in time between every two streams"):
        wm.collect(query, streams, plan=wm.plan("hw-join"))
    with pytest.raises(PlanError, match="both streams need a RANGE or ROWS window"):
        wm.allocate(query, streams, memory_rows=1)


def test_only_the_algebra_and_the_grammar_name_a_window_kind() -> None:
    kinds = {each.__name__ for each in Window.__subclasses__()} - {HopWindow.__name__}
    assert {"RangeWindow", "RowsWindow", "TumbleWindow", "LandmarkWindow"} <= kinds
    named = re.compile(rf"\b({'|'.join(kinds)})\b")
    found = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py") if named.search(path.read_text())}
    assert found == {"algebra/windows.py", "sql/clauses.py"}


def _hop_cases() -> Iterator[QueryCase]:
    """Yield generated joins in which HOP replaces windows of time."""
    for seed in range(FIRST_SEED, FIRST_SEED + 1_000_000):
        yield from _with_hops(generate_case(seed), "RANGE", "WINDOW", "TUMBLE")


def _hop_aggregations(*, every: bool) -> Iterator[Any]:
    """Yield generated aggregations in which HOP replaces TUMBLE."""
    for seed in range(FIRST_SEED, FIRST_SEED + 1_000_000):
        yield from _with_hops(generate_aggregation(seed, every=every), "TUMBLE")


def _with_hops(case: QueryCase, *replaced: str) -> Iterator[QueryCase]:
    rng = Random(case.seed)
    windows = {source.alias: source.window for source in case.bound.sources}
    items = tuple(
        _hop_item(rng, item, windows[item.alias])
        if item.window.startswith(tuple(f"[{kind} " for kind in replaced))
        else item
        for item in case.items
    )
    if any("HOP" in item.window for item in items):
        yield replace(case, items=items)


def _hop_item(rng: Random, item: FromItem, window: Window | None) -> FromItem:
    """Replace a window by hops of its length, and lengths of up to three hops that need not be multiples."""
    hop_us = None if window is None else window.size
    if not hop_us:
        return item
    length_us = hop_us * rng.choice((1, 2, 2, 3)) + rng.choice((0, 0, 0, 1))
    return replace(item, window=f"[HOP {length_us} MICROSECONDS BY {hop_us} MICROSECONDS]")
