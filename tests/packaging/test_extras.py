"""Without extras, queries run in this process; a feature that needs an extra names the command that installs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from watersmeet import extras

from .core_environment import PROJECT, find_closure, list_modules_outside_core, run_in_core

STREAMS = """
import pyarrow as pa, watersmeet as wm
rows = pa.table({"k": [1, 2], "ts": pa.array([1, 2], pa.timestamp("us"))})
text = "SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
streams = {name: wm.stream(rows, time="ts") for name in "ab"}
"""
COMMAND = "from watersmeet.cli.main import main; main()"
#: Runs several commands in one process, and prints the exit code and the errors of each.
COMMANDS = """
import io, json
from contextlib import redirect_stderr
from watersmeet.cli.main import main
found, commands = [], json.loads(sys.argv[1])
for arguments in commands:
    sys.argv[1:] = arguments
    with redirect_stderr(io.StringIO()) as printed:
        try:
            main()
        except SystemExit as end:
            found.append((end.code, printed.getvalue()))
print(json.dumps(found))
"""
#: Commands that need an extra, with the feature and the extra.
NEEDY = [
    (["run", "query.sql", "--stream=a=a.csv,time=ts", "--engine", "spark"], "Spark", "spark"),
    (["run", "query.sql", "--stream=a=a.csv,time=ts", "--ui"], "the dashboard", "ui"),
    (["ui"], "the dashboard", "ui"),
    (["demo"], "the demo", "demo"),
    (["calibrate", "--quick", "--spark"], "Spark", "spark"),
]


def test_the_core_contains_neither_spark_nor_pandas_nor_the_dashboard() -> None:
    hidden = list_modules_outside_core()
    assert {"pandas", "plotly", "polars", "psutil", "pyspark", "starlette", "uvicorn"} <= set(hidden)
    assert not {"numba", "numpy", "pyarrow", "rich", "typer", "watersmeet"} & set(hidden)


def test_the_core_collects_and_explains() -> None:
    done = run_in_core(
        STREAMS + "print(wm.explain(text, streams).plan.algorithm)\n"
        "print(wm.explain(text, streams, engine='spark').plan.algorithm)\n"
        "print(sorted(wm.collect(text, streams)['k'].to_pylist()))"
    )
    assert done.stdout.splitlines() == ["runs", "runs", "[1, 2]"], done.stderr


def test_the_core_runs_a_query_over_files(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k")
    (tmp_path / "a.csv").write_text("k,ts\n7,2024-01-01 00:00:00\n")
    declared = [f"--stream={name}={tmp_path / 'a.csv'},time=ts" for name in "ab"]
    done = run_in_core(COMMAND, "run", str(tmp_path / "query.sql"), *declared, "--json")
    assert done.stdout == '{"k": 7}\n', done.stderr
    explained = run_in_core(COMMAND, "explain", str(tmp_path / "query.sql"), *declared)
    assert explained.returncode == 0, explained.stderr


def test_spark_names_the_command_that_installs_it() -> None:
    calls = ("session()", "on_spark(text, streams)")
    attempts = (f"try:\n    wm.{call}\nexcept wm.WatersmeetError as error:\n    print(error)" for call in calls)
    done = run_in_core(STREAMS + "\n".join(attempts))
    assert done.stdout.splitlines() == [
        "Spark needs the module pyspark, which is not installed",
        'install it with: pip install "watersmeet[spark]"',
    ] * len(calls), done.stderr


def test_a_command_names_the_extra_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("query.sql").write_text("SELECT a.k FROM a [RANGE 1 HOUR]")
    Path("a.csv").write_text("k,ts\n7,2024-01-01 00:00:00\n")
    done = run_in_core(COMMANDS, json.dumps([arguments for arguments, _, _ in NEEDY]))
    assert done.returncode == 0, done.stderr
    for (arguments, feature, extra), (code, stderr) in zip(
        NEEDY, json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        assert code == 1, arguments
        problem, remedy = stderr.splitlines()[-2:]
        assert problem.startswith(f"watersmeet: {feature} needs the module "), arguments
        assert remedy == f'install it with: pip install "watersmeet[{extra}]"', arguments


def test_each_extra_installs_the_modules_of_its_features() -> None:
    features = [each for each in vars(extras).values() if isinstance(each, extras.OptionalFeature)]
    assert {each.extra for each in features} == set(PROJECT["optional-dependencies"]) - {"all"}
    distributions = {"google.protobuf": "protobuf"}
    for feature in features:
        installed = find_closure(PROJECT["optional-dependencies"][feature.extra])
        assert {distributions.get(module, module) for module in feature.modules} <= installed


def test_the_extra_named_all_contains_every_other_extra() -> None:
    (everything,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert canonicalize_name(everything.name) == PROJECT["name"]
    assert everything.extras == set(PROJECT["optional-dependencies"]) - {"all"}
