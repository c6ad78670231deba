"""Everything that Python can pin or declare is also an option of the command line and a setting of a job file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli import main as cli
from watersmeet.cli.jobfile import read_job_file

QUERY = "SELECT a.k FROM a [ROWS 10], b [ROWS 20], items AS i WHERE a.k = b.k AND b.k = i.k AND a.v > 3 AND a.w > 5"
STATS = """
[streams.a]
rate = 10
predicates = { "a.k = b.k" = 0.5, "a.v > 3" = { selectivity = 0.1, cost_us = 700 } }

[streams.b]
rate = 30
predicates = { "a.k = b.k" = 0.1 }

[streams.items]
rows = 12345
"""


def invoke(*args: object) -> Any:
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        rows = [f"{number % 3},{number % 7},{number % 11},2024-01-01T00:00:{number:02d}Z" for number in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["k,v,w,ts", *rows, ""]))
    (tmp_path / "items.csv").write_text("k\n1\n2\n")
    (tmp_path / "query.sql").write_text(QUERY)
    (tmp_path / "stats.toml").write_text(STATS)
    return tmp_path


def _sources(folder: Path) -> list[str]:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={folder}/{name}.csv,time=ts")]
    return [*streams, "--relation", f"items={folder}/items.csv"]


def _explain(folder: Path, *options: object) -> dict[str, Any]:
    result = invoke("explain", folder / "query.sql", *_sources(folder), "--json", *options)
    assert result.exit_code == 0, result.output
    explained: dict[str, Any] = json.loads(result.stdout)
    return explained


def test_a_statistics_file_declares_predicates_per_side_and_the_rows_of_a_relation(folder: Path) -> None:
    inputs = {each["alias"]: each for each in _explain(folder, "--stats", folder / "stats.toml")["inputs"]}
    assert inputs["i"]["held_rows"]["value"] == 12345
    costs = {step["predicate"]: step["cost_s"]["value"] for step in inputs["a"]["filters"]}
    assert costs["a.v > 3"] == pytest.approx(7e-4)
    # a.w > 5 is cheap and comes first; a third of the rows reach the filter that takes 700 µs
    assert [step["predicate"] for step in inputs["a"]["filters"]] == ["a.w > 5", "a.v > 3"]


def test_explain_and_run_take_the_plan_that_explain_prints(folder: Path) -> None:
    pinned = wm.plan("eager-hash", indexes={"a": "hash(7)", "b": "hash(5)", "i": "hash(3)"}, filters={"a": [2, 1]})
    (folder / "pinned.json").write_text(json.dumps(pinned.to_dict()))
    printed = invoke("explain", folder / "query.sql", *_sources(folder), "--json", "--plan", folder / "pinned.json")
    assert printed.exit_code == 0, printed.output
    (folder / "whole.json").write_text(printed.stdout)
    again = _explain(folder, "--plan", folder / "whole.json")
    assert again["plan"] == json.loads(printed.stdout)["plan"]
    assert again["plan"]["algorithm"] == "eager-hash"
    assert again["plan"]["filters"] == {"a": [2, 1]}
    rows = [
        invoke("run", folder / "query.sql", *_sources(folder), "--json", *plan).stdout
        for plan in ((), ("--plan", folder / "whole.json"))
    ]
    assert sorted(rows[0].splitlines()) == sorted(rows[1].splitlines())
    assert rows[0].strip()


def test_a_pinned_plan_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    run = wm.run

    def record(*args: Any, **options: Any) -> Any:
        plans.append(options["plan"])
        return run(*args, **options)

    monkeypatch.setattr(wm, "run", record)
    (folder / "plan.json").write_text(json.dumps(wm.plan("naive-nlj").to_dict()))
    result = invoke("run", folder / "query.sql", *_sources(folder), "--plan", folder / "plan.json")
    assert result.exit_code == 0, result.output
    assert plans == [wm.plan("naive-nlj")]


def test_the_objective_is_an_option(folder: Path) -> None:
    stats = ("--stats", folder / "stats.toml")
    for objective, is_by_size in (("memory", True), ("cpu", False)):
        found = _explain(folder, *stats, "--objective", objective)["alternatives"]
        sizes = [each["cost"]["state_bytes"] for each in found]
        assert (sizes == sorted(sizes)) == is_by_size
    refused = invoke("explain", folder / "query.sql", *_sources(folder), "--objective", "beauty")
    assert refused.exit_code == 1
    assert "objectives: cpu, memory" in refused.output


JOB = """
query = "query.sql"
plan = { algorithm = "eager-nlj" }
stats = "stats.toml"

[budget]
processors = 0.0025
objective = "memory"

[shed]
least = { b = 25 }
weights = { a = 2 }

[streams.a]
path = "a.csv"
time = "ts"

[streams.b]
path = "b.csv"
time = "ts"
stats = { rate = 40, predicates = { "a.k = b.k" = 0.25 } }

[relations.items]
path = "items.csv"
stats = { rows = 500 }
"""


def test_a_job_file_has_plan_objective_minimum_rates_weights_and_statistics(folder: Path) -> None:
    (folder / "job.toml").write_text(JOB)
    job = read_job_file(folder / "job.toml")
    assert job.plan == wm.plan("eager-nlj")
    assert job.budget == wm.Budget(processors=0.0025, objective="memory")
    assert job.shed == wm.SheddingPolicy({"b": 25}, {"a": 2})
    assert job.stats["a"].predicates["a.k = b.k"].selectivity is not None  # of the statistics file
    assert job.stats["b"] == wm.stats(rate=40, predicates={"a.k = b.k": 0.25})
    assert job.stats["items"].rows == wm.stats(rows=500).rows


def test_explain_reads_a_job_file_and_options_override_it(folder: Path) -> None:
    (folder / "job.toml").write_text(JOB)
    result = invoke("explain", "--config", folder / "job.toml", "--json")
    assert result.exit_code == 0, result.output
    explained = json.loads(result.stdout)
    assert explained["plan"]["algorithm"] == "eager-nlj"
    assert explained["plan"]["drop"].get("b", 0) <= 15 / 40  # at least 25 of 40 rows/s are kept
    assert explained["plan"]["drop"]
    (folder / "other.json").write_text('{"algorithm": "runs"}')
    other = invoke("explain", "--config", folder / "job.toml", "--json", "--plan", folder / "other.json")
    assert json.loads(other.stdout)["plan"]["algorithm"] == "runs"


def test_minimum_rates_and_weights_are_options(folder: Path) -> None:
    short = ("--stats", folder / "stats.toml", "--processors", 0.002, "--shed")
    free = _explain(folder, *short)["plan"]["drop"]
    kept = _explain(folder, *short, "--least", "a=9.9")["plan"]["drop"]
    assert kept.get("a", 0) <= 0.011 < free["a"]
    refused = invoke("explain", folder / "query.sql", *_sources(folder), "--least", "a=5")
    assert (refused.exit_code, "add --shed" in refused.output) == (1, True)
    refused = invoke("explain", folder / "query.sql", *_sources(folder), "--shed", "--weight", "a")
    assert (refused.exit_code, "is not NAME=NUMBER" in refused.output) == (1, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a plan"),
        ('{"plan": {"speed": 1}}', "a plan has no speed"),
        ('{"orders": 3}', "is not a plan"),
        ('{"evaluate_us": "soon"}', "is not a plan"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(folder: Path, content: str, message: str) -> None:
    (folder / "plan.json").write_text(content)
    result = invoke("explain", folder / "query.sql", *_sources(folder), "--plan", folder / "plan.json")
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("shed = 3", "shed must be a section"),
        ("[shed]\nleast = { a = true }", "shed.least.a must be a number"),
        ("[shed]\nmost = {}", 'there is no setting "most"'),
        ("plan = 3", "is not a plan"),
        ("stats = 3", "stats must be the name of a file"),
        ("[budget]\nobjective = 'beauty'", "no objective"),
        ("[streams.a]\npath = 'a.csv'\ntime = 'ts'\nstats = { speed = 3 }", 'there is no setting "speed"'),
    ],
)
def test_a_wrong_setting_of_a_job_file_is_refused(folder: Path, line: str, message: str) -> None:
    (folder / "job.toml").write_text(f'query = "query.sql"\n{line}\n')
    result = invoke("explain", "--config", folder / "job.toml")
    assert result.exit_code == 1
    assert message in result.output
