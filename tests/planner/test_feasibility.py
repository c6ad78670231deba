"""Feasibility on a budget, remedies, and the drop rates that preserve the most output."""

from __future__ import annotations

import json
import re
from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.models.profile import Profile, Structure
from watersmeet.planner.search import rank_plans
from watersmeet.planner.shed_search import find_approximation, find_best_shares, minimum_shares
from watersmeet.planner.workload import estimate_workload
from watersmeet.runtime.statistics import fill_missing_stats, infer_schema_from_stats
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

TIMED = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 20 SECONDS] WHERE a.k = b.k"
COUNTED = "SELECT a.k FROM a [ROWS 1000], b [ROWS 4000], c [ROWS 500] WHERE a.k = b.k AND b.k = c.k"
MIXED = "SELECT a.k FROM a [ROWS 1000], b [RANGE 4 SECONDS], c [RANGE 1 SECOND] WHERE a.k = b.k AND b.k = c.k"
STATS = {
    "a": wm.stats(rate=20_000, distinct={"k": 500}, row_bytes=24),
    "b": wm.stats(rate=1_000, distinct={"k": 400}, row_bytes=24),
    "c": wm.stats(rate=5_000, distinct={"k": 300}, row_bytes=24),
}
PROFILE = Profile(
    "slow",
    list=Structure(2e-8, 1e-7, 1e-6),
    hash=Structure(4e-8, 2e-7, 1e-6),
    btree=Structure(6e-8, 3e-7, 1e-6),
    ttree=Structure(6e-8, 3e-7, 1e-6),
    runs=Structure(3e-8, 3e-7, 2e-6),
    row_in_s=1e-6,
    row_out_s=1e-7,
    select_s=1e-7,
)


def build_context(text: str, budget: wm.Budget) -> tuple[CostingContext, list[Plan]]:
    parsed = parse(text)
    stats = {source.name: STATS[source.name] for source in parsed.sources}
    bound = bind(parsed, {name: infer_schema_from_stats(parsed, name, known) for name, known in stats.items()})
    config = compile_join_config(bound, Plan())
    workload = estimate_workload(bound, config, fill_missing_stats(bound, stats))
    plans = [
        Plan(each.plan.algorithm, indexes=each.plan.indexes) for each in rank_plans(bound, config, workload, PROFILE)
    ]
    return CostingContext(config, workload, PROFILE, budget), plans


def scarce(text: str, part: float, memory_part: float | None = None) -> tuple[CostingContext, list[Plan]]:
    """Return a context whose budget is a part of the cheapest plan's cost."""
    rich, plans = build_context(text, wm.Budget())
    cost = min((rich.cost(plan, {}).cost for plan in plans), key=lambda cost: cost.cpu_per_s)
    memory = None if memory_part is None else cost.state_bytes * memory_part
    return build_context(text, wm.Budget(processors=cost.cpu_per_s * part, memory_bytes=memory))


@pytest.mark.parametrize("text", [TIMED, COUNTED, MIXED])
@pytest.mark.parametrize("part", [0.7, 0.2])
def test_ten_thousand_random_drop_rates_never_beat_the_shares_found(text: str, part: float) -> None:
    now, plans = scarce(text, part)
    rng, plan = Random(f"{text} {part}"), plans[0]
    least = minimum_shares(now, wm.SheddingPolicy())
    best = find_best_shares(now, plan, least)
    assert now.load_share(plan, best) <= 1 + 1e-9
    output = now.cost(plan, best).cost.rows_out_per_s
    for _ in range(10_000 // 6):
        keep = {name: max(least[name], rng.random() ** rng.choice((0.3, 1, 3))) for name in least}
        cost = now.cost(plan, keep).cost
        if now.budget.load(cost) <= 1:
            assert cost.rows_out_per_s <= output * (1 + 1e-3), "shares are rounded to the fourth place"


def test_time_windows_are_shed_to_fit_the_memory() -> None:
    now, plans = scarce(TIMED, 100, memory_part=0.03)  # too little to keep all rows of either stream
    found = find_approximation(now, plans)
    assert now.budget.memory_bytes is not None
    assert found.costed.cost.state_bytes == pytest.approx(now.budget.memory_bytes, rel=0.01)
    assert found.costed.cost.state_bytes <= now.budget.memory_bytes
    sizes: dict[str, float] = {}
    for part in found.costed.cost.memory:
        sizes[part.source] = sizes.get(part.source, 0.0) + part.size_bytes
    first, second = sizes.values()
    assert first == pytest.approx(second, rel=0.02), "both windows get the same memory: output is their product"


def test_dropping_does_not_shrink_full_rows_windows() -> None:
    now, plans = scarce(COUNTED, 1, memory_part=0.05)  # less than the rows alone need, without any index
    with pytest.raises(PlanError, match="ROWS windows stay full"):
        find_approximation(now, plans)


def test_the_search_over_few_plans_matches_trying_all_plans() -> None:
    for text, part in ((TIMED, 0.6), (TIMED, 0.1), (COUNTED, 0.6), (COUNTED, 0.1)):
        now, plans = scarce(text, part)
        least = minimum_shares(now, wm.SheddingPolicy())
        able = [plan for plan in plans if now.load_share(plan, least) <= 1]
        everything = [now.cost(plan, find_best_shares(now, plan, least)).cost.rows_out_per_s for plan in able]
        assert find_approximation(now, plans).costed.cost.rows_out_per_s >= max(everything) * (1 - 1e-3)


def test_a_stream_can_be_guaranteed_a_least_rate() -> None:
    now, plans = scarce(COUNTED, 0.2)
    free = dict(find_approximation(now, plans).keep)
    poorest = min(free, key=lambda name: free[name])
    guaranteed = find_approximation(now, plans, wm.SheddingPolicy(least_rows_per_s={poorest: now.rates[poorest] * 0.1}))
    assert dict(guaranteed.keep)[poorest] >= 0.1
    with pytest.raises(PlanError, match="but only 20000 rows/s arrive"):
        find_approximation(now, plans, wm.SheddingPolicy(least_rows_per_s={"a": 1e9}))
    with pytest.raises(PlanError, match="the query has no such stream"):
        find_approximation(now, plans, wm.SheddingPolicy(least_rows_per_s={"z": 1}))


def test_explain_shows_the_numbers_and_what_would_help() -> None:
    needed = wm.explain(TIMED, {name: STATS[name] for name in "ab"}).chosen.cost
    tight = wm.Budget(processors=needed.cpu_per_s * 0.6, memory_bytes=needed.state_bytes * 0.6)
    explanation = wm.explain(TIMED, {name: STATS[name] for name in "ab"}, budget=tight)
    assert not explanation.feasible
    text = str(explanation)
    assert "it cannot keep up: needs" in text
    assert "what would help" in text
    assert "of memory" in text
    assert re.search(r"dropping .*: keeps .* % of the output", text)
    saved = json.loads(json.dumps(explanation.to_dict()))["remedies"]
    assert 0 < saved["approximation"]["share_of_output"] < 1
    assert saved["window_scale"] < 1
    relaxed = wm.Budget(processors=saved["processors"] * 1.001, memory_bytes=saved["memory_bytes"] * 1.001)
    assert wm.explain(TIMED, {name: STATS[name] for name in "ab"}, budget=relaxed).feasible


def test_the_earlier_name_of_the_shedding_policy_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="wm.Wishes is now wm.SheddingPolicy"):
        assert wm.Wishes is wm.SheddingPolicy


def test_the_plan_to_approximate_keeps_up() -> None:
    tight = wm.Budget(processors=0.005)
    streams = {name: STATS[name] for name in "ab"}
    found = wm.explain(TIMED, streams, budget=tight).remedies
    assert found is not None
    assert found.approximation is not None
    assert wm.explain(TIMED, streams, budget=tight, plan=found.approximation.plan).feasible


def _streams() -> dict[str, wm.Stream | wm.Relation]:
    rng = Random(1)
    tables = {
        name: pa.table(
            {
                "ts": pa.array(range(0, 2_000_000, step), pa.int64()),
                "k": [rng.randrange(50) for _ in range(0, 2_000_000, step)],
            }
        )
        for name, step in (("a", 100), ("b", 2_000))
    }
    return {name: wm.stream(table, time="ts") for name, table in tables.items()}


def test_a_run_over_its_budget_is_refused_with_the_numbers_or_sheds_as_announced() -> None:
    streams, tight = _streams(), wm.Budget(processors=0.004)
    query = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
    with pytest.raises(
        PlanError,
        match=r"cannot keep up: needs .* the available CPU(.|\n)*a machine with .* core(.|\n)*dropping(.|\n)*shed=True",
    ):
        wm.collect(query, streams, budget=tight)
    whole = wm.collect(query, streams)
    rows = wm.collect(query, streams, budget=tight, shed=True)
    ledger = json.loads(rows.schema.metadata[b"watersmeet"])["ledger"]
    assert sum(entry["shed"] for entry in ledger.values()) > 0
    assert 0 < rows.num_rows < whole.num_rows
    promised = wm.explain(query, streams, budget=tight).remedies
    assert promised is not None
    assert promised.approximation is not None
    assert rows.num_rows / whole.num_rows == pytest.approx(promised.approximation.share_of_output, rel=0.15)
    assert wm.collect(query, streams, budget=wm.Budget(processors=10)).num_rows == whole.num_rows
    assert wm.collect(query, streams).num_rows == whole.num_rows, "without a budget finite data is never refused"
