"""Probes and windows divided between two streams.

Real joins emit what the formulas predict, and rank the strategies the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from math import inf
from random import Random
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.errors import InputError, PlanError
from watersmeet.operators.shed.sampling import RoleShares, make_role_drop_box
from watersmeet.runtime.embedded.allocation import collect_allocated
from watersmeet.runtime.embedded.run import start_run
from watersmeet_lab.papers.kang.limited_strategies import StrategyOutput, measure_strategies

QUERY = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 30 MICROSECONDS], b [RANGE 50 MICROSECONDS] WHERE a.k = b.k"


@pytest.fixture(scope="module")
def strategy_outputs() -> list[StrategyOutput]:
    return list(measure_strategies(seconds=200))


@pytest.mark.parametrize("figure", [5, 6, 7])
def test_the_measured_output_of_each_strategy_ranks_as_predicted(
    strategy_outputs: list[StrategyOutput], figure: int
) -> None:
    shown = [bar for bar in strategy_outputs if bar.figure == figure]
    for one in shown:
        for other in shown:
            if one.predicted_per_s > other.predicted_per_s:
                assert one.measured_per_s > other.measured_per_s
    assert [bar.measured_per_s for bar in shown] == pytest.approx([bar.predicted_per_s for bar in shown], rel=0.05)


def _tables(seed: int) -> dict[str, pa.Table]:
    rng = Random(seed)
    return {
        name: pa.table({"ts": [rng.randrange(500) for _ in range(rows)], "k": [rng.randrange(5) for _ in range(rows)]})
        for name, rows in (("a", 120), ("b", 80))
    }


def _streams(seed: int) -> dict[str, wm.Stream | wm.Relation]:
    return {name: wm.stream(table, time="ts") for name, table in _tables(seed).items()}


def _pairs(table: pa.Table) -> Counter[tuple[int, int]]:
    x, y = (cast("list[int]", table[name].to_pylist()) for name in ("x", "y"))
    return Counter(zip(x, y, strict=True))


def _kept_pairs(tables: dict[str, pa.Table], shares: dict[str, RoleShares], seed: int) -> Counter[tuple[int, int]]:
    """Return the pairs by definition: the later row is kept as a probe and the earlier one in the window.

    Of equal times, a's row is the later one.
    """
    keeps = {
        (name, role): make_role_drop_box(name, role, shares[name], seed).select_kept(tables[name])
        for name in "ab"
        for role in ("probe", "window")
    }
    found: Counter[tuple[int, int]] = Counter()
    for i, left in enumerate(tables["a"].to_pylist()):
        for j, right in enumerate(tables["b"].to_pylist()):
            x, y = left["ts"], right["ts"]
            if left["k"] != right["k"] or not (y - 30 <= x <= y or x - 50 <= y <= x):
                continue
            kept = (
                keeps["a", "probe"][i] and keeps["b", "window"][j]
                if x >= y
                else keeps["b", "probe"][j] and keeps["a", "window"][i]
            )
            found[x, y] += bool(kept)
    return +found


@pytest.mark.parametrize("seed", range(20))
def test_a_pair_is_found_when_its_later_row_probes_and_its_earlier_row_is_stored(seed: int) -> None:
    tables, streams = _tables(seed), _streams(seed)
    assert _pairs(collect_allocated(wm.sql(QUERY), streams, {})) == _pairs(wm.collect(QUERY, streams))
    shares = {"a": RoleShares(0.6, 0.5), "b": RoleShares(0.3, 0.8)}
    thin = collect_allocated(wm.sql(QUERY), streams, shares, seed=seed)
    assert _pairs(thin) == _kept_pairs(tables, shares, seed)
    ledger = json.loads(thin.schema.metadata[b"watersmeet"])["ledger"]
    for name, table in tables.items():
        kept = make_role_drop_box(name, "probe", shares[name], seed).select_kept(table) | make_role_drop_box(
            name, "window", shares[name], seed
        ).select_kept(table)
        assert ledger[name] == {
            "arrived": table.num_rows,
            "kept": int(kept.sum()),
            "shed": int((~kept).sum()),
            "late": 0,
        }


WINDOWS = (
    "a [RANGE 30 MICROSECONDS], b [RANGE 50 MICROSECONDS]",
    "a [ROWS 7], b [ROWS 12]",
    "a [ROWS 7], b [RANGE 50 MICROSECONDS]",
    "a, b WINDOW (a, b) = 40 MICROSECONDS",
)
ALLOCATED = {"a": RoleShares(0.6, 0.5), "b": RoleShares(0.3, 0.8)}


def _number_rows(seed: int) -> dict[str, pa.Table]:
    rng = Random(seed)
    return {
        name: pa.table(
            {
                "ts": sorted(rng.randrange(500) for _ in range(rows)),
                "k": [rng.randrange(5) for _ in range(rows)],
                "id": list(range(rows)),
            }
        )
        for name, rows in (("a", 120), ("b", 80))
    }


def _numbered_pairs(rows: list[pa.RecordBatch] | pa.Table) -> Counter[tuple[int, ...]]:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("batch_rows", [120, 20])
def test_a_plan_keeps_the_pairs_of_any_window_whose_rows_are_kept_in_their_roles(windows: str, batch_rows: int) -> None:
    """The rows of a ROWS window count whether they are kept or not, so its pairs are a part of the exact ones."""
    tables = _number_rows(len(windows))
    streams: dict[str, wm.Stream | wm.Relation] = {
        name: wm.stream([table.slice(at, batch_rows) for at in range(0, table.num_rows, batch_rows)], time="ts")
        for name, table in tables.items()
    }
    query = f"SELECT a.id AS i, a.ts AS x, b.id AS j, b.ts AS y FROM {windows} WHERE a.k = b.k"
    plan = wm.plan(
        probe={name: each.probe for name, each in ALLOCATED.items()},
        window={name: each.window for name, each in ALLOCATED.items()},
        drop_seed=5,
    )
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    found = wm.collect(query, streams, plan=plan)
    kept = {
        (name, role): make_role_drop_box(name, role, ALLOCATED[name], 5).select_kept(tables[name])
        for name in "ab"
        for role in ("probe", "window")
    }
    wanted = Counter(
        {
            (i, x, j, y): count
            for (i, x, j, y), count in _numbered_pairs(wm.collect(query, streams)).items()
            if (kept["a", "probe"][i] and kept["b", "window"][j]) * (x >= y)
            + (kept["b", "probe"][j] and kept["a", "window"][i]) * (x < y)
        }
    )
    assert wanted
    assert _numbered_pairs(found) == wanted
    ledger = json.loads(found.schema.metadata[b"watersmeet"])["ledger"]
    for name in "ab":
        in_a_role = int((kept[name, "probe"] | kept[name, "window"]).sum())
        assert ledger[name]["kept"] == in_a_role
        assert ledger[name]["shed"] == tables[name].num_rows - in_a_role


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_saved_allocation_goes_on_as_if_nothing_had_happened(windows: str) -> None:
    tables = _number_rows(3)
    streams: dict[str, wm.Stream | wm.Relation] = {
        name: wm.stream([table.slice(at, 20) for at in range(0, table.num_rows, 20)], time="ts")
        for name, table in tables.items()
    }
    query = f"SELECT a.id AS i, a.ts AS x, b.id AS j, b.ts AS y FROM {windows} WHERE a.k = b.k"
    plan = wm.plan(probe={"a": 0.6}, window={"b": 0.5})
    whole, first, second = (start_run(query, streams, plan) for _ in range(3))
    expected = [batch for results in whole.batches() for batch in results]
    rounds = list(first.read_rounds())
    found = [batch for tables_of_round in rounds[:3] for batch in first.advance(tables_of_round)]
    second.restore_state(first.save_state())
    second.watermark = first.watermark
    found += [batch for tables_of_round in rounds[3:] for batch in second.advance(tables_of_round)]
    found += second.finish()
    assert _numbered_pairs(found) == _numbered_pairs(expected)
    with pytest.raises(InputError, match="the saved state is of another plan"):
        start_run(query, streams, wm.plan()).restore_state(first.save_state())
    plain = start_run(query, streams, wm.plan())
    plain.advance(rounds[0])
    with pytest.raises(InputError, match="does not divide probes and windows"):
        start_run(query, streams, plan).restore_state(plain.save_state())


def test_plans_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(PlanError, match="not both"):
        wm.plan(drop={"a": 0.5}, probe={"a": 0.5})
    with pytest.raises(PlanError, match="between 0 and 1"):
        wm.plan(window={"a": 1.5})
    assert "probe" not in wm.plan().to_dict(), "plans without an allocation are saved as before"


def test_the_two_draws_of_a_row_are_independent() -> None:
    table = pa.table({"id": range(40_000)})
    probe, window = (
        make_role_drop_box("a", role, RoleShares(0.5, 0.5), 3).select_kept(table) for role in ("probe", "window")
    )
    assert abs(float((probe & window).mean()) - 0.25) < 0.01


def test_batches_from_an_iterator_are_read_once_and_late_rows_are_counted() -> None:
    tables = {name: [table.slice(at, 20) for at in range(0, table.num_rows, 20)] for name, table in _tables(4).items()}
    whole = {name: wm.stream(list(batches), time="ts") for name, batches in tables.items()}
    once = {name: wm.stream(iter(batches), time="ts") for name, batches in tables.items()}
    shares = {"a": RoleShares(0.6, 0.5), "b": RoleShares(0.3, 0.8)}
    expected, found = (collect_allocated(wm.sql(QUERY), streams, shares) for streams in (whole, once))
    assert _pairs(found) == _pairs(expected)
    for entry in json.loads(found.schema.metadata[b"watersmeet"])["ledger"].values():
        assert entry["arrived"] == entry["kept"] + entry["shed"] + entry["late"]


AGGREGATED = """
    SELECT a.g AS g, COUNT(*) AS n, SUM(b.x) AS total, AVG(b.x) AS mean, MIN(b.x) AS low
    FROM a [RANGE 300 MICROSECONDS], b [RANGE 500 MICROSECONDS] WHERE a.k = b.k GROUP BY a.g {every}
"""


def _grouped_streams(seed: int) -> dict[str, wm.Stream | wm.Relation]:
    """Return streams with skewed keys, so that pairs share rows; half of the times are equal."""
    rng = np.random.default_rng(seed)
    found: dict[str, wm.Stream | wm.Relation] = {}
    for name, rows in (("a", 500), ("b", 400)):
        keys = np.minimum(rng.geometric(0.1, rows), 30)
        columns = {"k": keys, "g": rng.integers(0, 3, rows), "x": rng.gamma(3, 10, rows), "id": np.arange(rows)}
        columns = {"ts": np.sort(rng.integers(0, 500, rows)), **columns}
        found[name] = wm.stream(pa.table({key: pa.array(values) for key, values in columns.items()}), time="ts")
    return found


@pytest.mark.parametrize("every", ["", "EVERY 100 MICROSECONDS"])
def test_without_a_limit_an_aggregation_is_exact(every: str) -> None:
    for seed in range(5):
        streams, query = _grouped_streams(seed), AGGREGATED.format(every=every)
        exact = wm.collect(query, streams)
        assert exact.num_rows >= 3
        assert sorted(wm.allocate(query, streams).to_pylist(), key=str) == sorted(exact.to_pylist(), key=str)


def test_without_a_limit_the_merged_directions_give_the_exact_aggregates() -> None:
    # The shares of a are 1 minus 1e-12: no row is shed, but the estimating code runs.
    nearly = {"a": RoleShares(1 - 1e-12, 1)}
    for seed in range(5):
        streams, query = _grouped_streams(seed), AGGREGATED.format(every="EVERY 100 MICROSECONDS")
        exact = {(row["g"], row["as_of"]): row for row in wm.collect(query, streams).to_pylist()}
        found = {(row["g"], row["as_of"]): row for row in collect_allocated(wm.sql(query), streams, nearly).to_pylist()}
        assert found.keys() == exact.keys()
        for key, row in found.items():
            for name in ("n", "total", "mean", "low"):
                assert row[name] == pytest.approx(exact[key][name])


#: The first shares shed in both roles. `make test-long` also checks those that shed in one role only.
SHARES = {
    "both short": {"a": RoleShares(0.5, 0.7), "b": RoleShares(0.8, 0.4)},
    "probes short": {"a": RoleShares(0.4, 1.0), "b": RoleShares(0.9, 1.0)},
    "windows short": {"a": RoleShares(1.0, 0.35), "b": RoleShares(1.0, 0.6)},
}


@pytest.mark.parametrize("name", list(SHARES)[: scale_volume(1)])
def test_over_many_seeds_the_estimates_are_unbiased_and_95_percent_lie_within_two_standard_errors(name: str) -> None:
    shares = SHARES[name]
    query = wm.sql(AGGREGATED.format(every=""))
    hits, ratios = dict.fromkeys(("n", "total", "mean"), 0), dict.fromkeys(("n", "total", "mean"), 0.0)
    estimates = 0
    for data in range(3):
        streams = _grouped_streams(data)
        truth = {row["g"]: row for row in wm.collect(query, streams).to_pylist()}
        for seed in range(100):
            for row in collect_allocated(query, streams, shares, seed=seed).to_pylist():
                estimates += 1
                for column in hits:
                    hits[column] += abs(row[column] - truth[row["g"]][column]) <= 1.96 * row[f"{column}_stderr"]
                    ratios[column] += row[column] / truth[row["g"]][column]
                assert row["low"] >= truth[row["g"]]["low"]
    assert estimates == 3 * 3 * 100
    for column, count in hits.items():
        assert 0.92 <= count / estimates <= 0.98, column
        assert ratios[column] / estimates == pytest.approx(1, abs=0.02), f"{column} is not unbiased"


def test_within_limits_aggregates_are_estimated_from_both_directions() -> None:
    for service_per_s, memory_rows in ((900_000.0, inf), (inf, 300.0), (1_200_000.0, 400.0)):
        hits = rows = 0
        for data in range(10):
            streams, query = _grouped_streams(data), AGGREGATED.format(every="")
            truth = {row["g"]: row["n"] for row in wm.collect(query, streams).to_pylist()}
            table = wm.allocate(query, streams, service_per_s=service_per_s, memory_rows=memory_rows)
            shares = json.loads(table.schema.metadata[b"watersmeet"])["allocation"]["shares"]
            assert all(0 < share <= 1 for each in shares.values() for share in each.values())
            assert any(share < 1 for each in shares.values() for share in each.values())
            rows += table.num_rows
            hits += sum(abs(row["n"] - truth[row["g"]]) <= 2 * row["n_stderr"] for row in table.to_pylist())
        assert rows == 30
        assert hits >= 25, (service_per_s, memory_rows)


def test_a_direction_without_kept_pairs_has_no_estimates() -> None:
    with pytest.raises(PlanError, match='no pair whose later row is of "b" is kept'):
        wm.allocate(AGGREGATED.format(every=""), _grouped_streams(0), probes="MaxA", service_per_s=10)


def test_a_stream_that_only_probes_is_the_later_row_of_every_pair() -> None:
    table = collect_allocated(
        wm.sql(QUERY), _streams(1), {"a": RoleShares(probe=1, window=0), "b": RoleShares(probe=0, window=1)}
    )
    assert table.num_rows
    assert all(x >= y for x, y in _pairs(table))


def test_the_best_division_is_computed_from_the_rates_of_the_streams() -> None:
    table = wm.allocate(QUERY, _streams(2), service_per_s=50_000)
    shares = json.loads(table.schema.metadata[b"watersmeet"])["allocation"]["shares"]
    assert shares["a"]["window"] == shares["b"]["window"] == 1
    assert min(shares["a"]["probe"], shares["b"]["probe"]) == 0, "all probes go from the smaller window into the larger"
    least = wm.allocate(QUERY, _streams(2), service_per_s=50_000, least_per_s=(10_000, 10_000))
    expected = json.loads(least.schema.metadata[b"watersmeet"])["allocation"]["shares"]
    assert all(each["probe"] > 0 for each in expected.values())


def test_queries_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(PlanError, match="RANGE or ROWS window"):
        wm.allocate(
            "SELECT a.ts AS x, b.ts AS y FROM a [LANDMARK], b [RANGE 5 SECONDS] WHERE a.k = b.k",
            _streams(1),
            memory_rows=10,
        )
    with pytest.raises(PlanError, match="two different streams"):
        wm.allocate(
            "SELECT x.k FROM a [RANGE 5 SECONDS] AS x, a [RANGE 5 SECONDS] AS y WHERE x.k = y.k",
            _streams(1),
            memory_rows=10,
        )
    with pytest.raises(PlanError, match='no strategy "MaxC"'):
        wm.allocate(QUERY, _streams(1), probes="MaxC", service_per_s=10)


SAME_INSTANT = {
    "ranges": "FROM a [RANGE 0 SECONDS], b [RANGE 0 SECONDS]",
    "pair": "FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WINDOW (a, b) = 0 SECONDS",
}


@pytest.mark.parametrize("form", SAME_INSTANT)
@pytest.mark.parametrize(("rows_a", "rows_b"), [(400, 100), (100, 400)])
def test_pairs_of_equal_times_are_found_by_the_first_stream_so_it_gets_the_probes(
    form: str, rows_a: int, rows_b: int
) -> None:
    streams = {name: _one_key(rows) for name, rows in (("a", rows_a), ("b", rows_b))}
    query = f"SELECT a.ts AS x, b.ts AS y {SAME_INSTANT[form]} WHERE a.k = b.k"
    exact = _pairs(wm.collect(query, streams))
    assert _pairs(wm.allocate(query, streams)) == exact
    thin = wm.allocate(query, streams, service_per_s=0.5 * rows_a)
    allocation = json.loads(thin.schema.metadata[b"watersmeet"])["allocation"]
    assert allocation["shares"]["a"]["probe"] == pytest.approx(0.5, abs=0.05)
    assert 0.3 * exact.total() < _pairs(thin).total() < 0.7 * exact.total()
    assert allocation["output_rows_per_s"] > 0


@pytest.mark.parametrize("form", SAME_INSTANT)
def test_aggregates_over_pairs_of_equal_times_are_estimated(form: str) -> None:
    streams = {name: _one_key(400) for name in "ab"}
    query = f"SELECT COUNT(*) AS n {SAME_INSTANT[form]} WHERE a.k = b.k EVERY 10 MILLISECONDS"
    #  100 instants with 4 rows of each stream: 16 pairs each, which pass at once or stay for a second
    exact, thin = wm.collect(query, streams), wm.allocate(query, streams, service_per_s=200)
    assert np.max(exact["n"].to_numpy()) == (16 if form == "ranges" else 1600)
    assert np.mean(thin["n"].to_numpy()) == pytest.approx(np.mean(exact["n"].to_numpy()), rel=0.2)


def _one_key(rows: int) -> wm.Stream:
    """Return one second of rows with one key, whose times are multiples of 10 ms."""
    times = np.arange(rows) * 100 // rows * 10_000
    return wm.stream(
        pa.table({"ts": pa.array(times), "k": pa.array(np.ones(rows, np.int64)), "id": pa.array(np.arange(rows))}),
        time="ts",
    )
