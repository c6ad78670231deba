"""Spark Connect: the rows, the ledgers, the metrics and the errors of a classic session, without a Java process.

One program starts a server and is a client of it, in a process of its own (`connect_session`). Every test looks at a
part of what the program saw.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

import watersmeet as wm
from tests.spark import connect_session
from tests.spark.connect_session import NO_ERROR, QUERIES, TABLES, list_rows

from .sessions import quick_environment

MISSING = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard") if find_spec(name.split(".")[0]) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect needs {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    environment = quick_environment() | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # the server then listens on a free port
    }
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_AUTHENTICATE_TOKEN"):
        environment.pop(name, None)
    folder = tmp_path_factory.mktemp("connect")
    ran = subprocess.run(
        [sys.executable, connect_session.__file__, folder],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture
def streaming(report: Any) -> Any:
    """Return the report of a client that has stateful steps in Python. That of PySpark 4.0 has none."""
    if report["without streams"] != NO_ERROR:
        assert report["without streams"].startswith("InputError: streaming queries need stateful Python steps")
        pytest.skip(report["without streams"])
    return report


def collect_expected(query: str, rows: int = 60, *, ended: bool = True) -> list[list[Any]]:
    """Return the rows of the embedded engine. A stream that has not ended releases no row that waits for its end."""
    run = wm.run(query, {name: wm.stream([table[:rows]], time="ts") for name, table in TABLES.items()})
    if ended:
        return list_rows(run.collect())
    first, *_ = run.batches()
    return list_rows(run.to_table_with_ledger(first))


@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize("source", ["tables", "frames"])
def test_finite_input_gives_the_rows_of_the_embedded_engine(report: Any, source: str, kind: str) -> None:
    assert report[f"finite {source}, {kind}"] == collect_expected(QUERIES[kind])


@pytest.mark.parametrize("kind", QUERIES)
def test_the_ledger_of_finite_input_counts_every_row(report: Any, kind: str) -> None:
    counted = {"arrived": 60, "late": 0, "shed": 0, "kept": 60}
    assert report[f"finite ledger, {kind}"] == {"a": counted, "b": counted}


@pytest.mark.parametrize("kind", QUERIES)
def test_streaming_paths_give_their_rows_and_a_restart_continues(streaming: Any, kind: str) -> None:
    before, after = streaming[f"streaming paths, {kind}"], streaming[f"restart, {kind}"]
    assert before["rows"] == collect_expected(QUERIES[kind], 30, ended=False)
    assert before["rows out"] == [len(before["rows"])]
    assert before["ledger"] == after["ledger"] == {"a": 30, "b": 30}
    assert sum(after["rows out"]) == len(after["rows"]) - len(before["rows"]) > 0
    if kind == "join":
        assert after["rows"] == collect_expected(QUERIES[kind])


def test_streaming_frames_give_the_same_rows(streaming: Any) -> None:
    assert streaming["streaming frames"]["rows"] == collect_expected(QUERIES["join"])
    assert streaming["streaming frames"]["ledger"] == {"a": 60, "b": 60}


def test_a_session_without_rocksdb_is_refused_with_the_setting_to_change(report: Any) -> None:
    assert report["refused"].startswith("InputError: a streaming query keeps its state in RocksDB")


def test_a_mistake_that_a_worker_finds_is_raised_as_such(streaming: Any) -> None:
    assert streaming["bad row"].startswith("InputError: ")
    assert '"ts"' in streaming["bad row"]
    assert "Traceback" not in streaming["bad row"]


def test_a_client_needs_neither_py4j_nor_a_java_process(streaming: Any) -> None:
    client = streaming["thin client"]
    assert not isinstance(client, str), client
    assert client["classic modules"] == []
    expected = collect_expected(QUERIES["join"])
    assert client["finite tables"] == client["streaming paths"]["rows"] == expected
    assert client["streaming paths"]["rows out"] == [len(expected)]
