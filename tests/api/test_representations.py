"""Representations of one line, which say what a value is, and views for notebooks, which escape what callers wrote."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.planner.test_notebook import NASTY, QUOTED, _render_html

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
ROWS = pa.table({"k": list(range(1_000)), "ts": [i * 1_000_000 for i in range(1_000)]})
STREAMS = {name: wm.stream(ROWS, time="ts", unit="us") for name in "ab"}


def test_a_stream_shows_its_source_and_its_options_and_no_rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in" / "0.parquet")
    assert repr(wm.stream(ROWS, time="ts")) == "Stream(table of 1,000 rows, time='ts')"
    assert repr(wm.relation(ROWS)) == "Relation(table of 1,000 rows)"
    assert repr(wm.stream([ROWS, ROWS], time="ts", idle="1 minute")) == (
        "Stream(batches of a list, time='ts', idle='1 minute')"
    )
    from_files = wm.stream(tmp_path / "in", time="ts", unit="us", lateness="5 seconds", follow=True)
    assert repr(from_files) == (
        f"Stream(parquet '{tmp_path}/in', time='ts', unit='us', lateness='5 seconds', follow=True)"
    )


def test_a_query_and_a_plan_show_the_code_that_builds_them() -> None:
    query = wm.sql(QUERY)
    assert eval(repr(query), {"wm": wm}) == query
    assert repr(wm.plan()) == "wm.plan('runs')"
    assert repr(wm.plan("eager-hash", order={"a": ["b"]}, indexes={"a": "hash(5)"}, expire="2 minutes")) == (
        "wm.plan('eager-hash', order={'a': ['b']}, indexes={'a': 'hash(5)'}, expire='2 minutes')"
    )


def test_the_representation_of_any_plan_builds_it() -> None:
    for seed in range(200):
        plan = _random_plan(Random(seed))
        assert eval(repr(plan), {"wm": wm}) == plan


def _random_plan(rng: Random) -> wm.Plan:
    options: dict[str, Any] = {
        "order": rng.choice([["b", "a"], {"a": ["b"], "b": ["a"]}]),
        "indexes": {"a": rng.choice(["list", "hash(7)", "btree(3)", "ttree"])},
        "evaluate": rng.choice([0, 0.25, 90, "1 week"]),
        "expire": rng.choice([1e-6, "1 hour"]),
        "cleanup_rows": rng.randrange(1, 20_000),
        "tree": rng.choice(["a", (("a", "b"), "c")]),
        "early": ["a"],
        "drop": {"a": rng.random(), "it's": 0.0},
        "drop_seed": rng.randrange(3),
    }
    return wm.plan("lazy-nlj", **{name: value for name, value in options.items() if rng.random() < 0.5})


def test_an_explanation_a_run_and_a_job_say_the_main_facts_in_one_line() -> None:
    stats = wm.stats(rate=1000, distinct={"k": 500}, row_bytes=24)
    about = wm.explain(QUERY, {"a": stats, "b": stats})
    assert repr(about).startswith("Explanation(plan runs keeps up: ")
    assert repr(about).endswith(" of state, output 40,000 rows/s)")
    run = wm.run(QUERY, STREAMS, plan=wm.plan(order=["a", "b"]))
    assert repr(run) == "Run(0 rows in, 0 rows stored, plan=wm.plan('runs', order=['a', 'b']))"
    run.collect()
    assert repr(run).startswith("Run(2,000 rows in, ")
    job = wm.job(QUERY, STREAMS, budget=wm.Budget(processors=2), shed=True)
    assert repr(job) == (
        "Job('SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] …', ['a', 'b'], "
        "budget=Budget(processors=2, headroom=0.0, memory_bytes=None, objective='cpu', delay_s=0.0), shed=True)"
    )
    for value in (about, run, job):
        assert "\n" not in repr(value)


@pytest.mark.parametrize("kind", ["aggregation", "estimated aggregation"])
def test_every_kind_of_run_has_a_short_representation(kind: str) -> None:
    plan = wm.plan(drop={"a": 0.5}) if kind == "estimated aggregation" else None
    run = wm.run("SELECT k, COUNT(*) AS n FROM a [RANGE 1 SECOND] GROUP BY k", STREAMS, plan=plan)
    run.collect()
    assert repr(run).startswith("Run(1,000 rows in, ")
    assert len(repr(run)) < 200


def test_notebook_views_show_streams_runs_and_jobs_and_escape_names() -> None:
    table = ROWS.rename_columns([NASTY, "ts"])
    streams = {NASTY: wm.stream(table, time="ts", unit="us"), "b": wm.stream(table, time="ts", unit="us")}
    query = f"SELECT a.{QUOTED} FROM {QUOTED} [RANGE 1 SECOND] AS a, b [RANGE 1 SECOND] WHERE a.{QUOTED} = b.{QUOTED}"
    job = wm.job(query, streams)
    run = job.run()
    run.collect()
    for value in (streams[NASTY], wm.relation(table), job, run):
        assert "&lt;script&gt;" in _render_html(value)
    assert "1,000" in _render_html(run)
    assert "table of 1,000 rows" in _render_html(cast(object, job))
