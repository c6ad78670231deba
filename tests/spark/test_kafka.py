"""Streams from a real Kafka broker: rows, messages that are no rows, restarts of the query and of the broker.

One program runs the broker and the queries in a process of its own (`kafka_session`). Every test compares a part of
what the program saw with a plain computation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark import kafka_session
from tests.spark.kafka_broker import is_fetched
from tests.spark.kafka_session import FIRST, LATE, POISON, SECOND, THIRD, Row

from .sessions import quick_environment

pytestmark = pytest.mark.skipif(not is_fetched(), reason="no Kafka broker; `make kafka` fetches one")

ROOT = Path(__file__).parents[2]
NOT_JSON = "it is not JSON of the declared columns"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    ran = subprocess.run(
        [sys.executable, kafka_session.__file__, tmp_path_factory.mktemp("kafka")],
        env=quick_environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-8000:]
    return json.loads(ran.stdout.splitlines()[-1])


def join(orders: Sequence[Row], trades: Sequence[Row]) -> list[list[int]]:
    """Return the pairs with the same key at most five seconds apart."""
    return sorted([a.id, b.id] for a in orders for b in trades if a.k == b.k and abs(a.at_s - b.at_s) <= 5)


def test_rows_out_of_order_in_several_partitions_are_joined(report: Any) -> None:
    assert report["first run"]["rows"] == join(FIRST, FIRST)


def test_a_restart_continues_after_the_last_batch_without_late_rows(report: Any) -> None:
    assert report["second run"]["rows"] == join([*FIRST, *SECOND], [*FIRST, *SECOND])
    assert join([*FIRST, *SECOND, *LATE], [*FIRST, *SECOND]) != report["second run"]["rows"]


def test_diverted_messages_are_kept_whole_with_their_place_and_the_reason(report: Any) -> None:
    reasons = {POISON[0].value: NOT_JSON, POISON[1].value: NOT_JSON, POISON[2].value: 'it has no time in "ts"'}
    assert sorted(report["diverted"]) == sorted(
        [reasons[each.value], "orders", each.partition, each.value] for each in POISON
    )
    assert "3 messages of orders cannot be read" in report["first run"]["said"]
    assert "1 message of trades cannot be read" in report["first run"]["said"]
    assert "cannot be read" not in report["second run"]["said"]


def test_a_query_continues_after_the_broker_was_stopped_and_started(report: Any) -> None:
    seen = report["stopped broker"]
    orders, trades = [*FIRST, *SECOND, *LATE, *THIRD], [*FIRST, *SECOND, *THIRD]
    assert seen["rows"] == join(orders, trades)
    assert seen["arrived"] == {"orders": len(orders), "trades": len(trades)}


def test_messages_that_are_no_rows_are_counted(report: Any) -> None:
    assert report["stopped broker"]["messages"] == {"orders": [3, 2], "trades": [1, 0]}


def test_a_message_that_cannot_be_read_stops_the_query_by_default(report: Any) -> None:
    error = report["stopped query"]
    assert error.startswith('InputError: stream "')
    assert ": a message cannot be read: " in error
    assert 'on_error = "skip" or "divert"' in error
    assert "topic orders, partition " in error or "topic trades, partition 1, offset " in error


def test_raw_messages_have_key_headers_place_and_the_time_of_the_broker(report: Any) -> None:
    assert report["raw"] == [["a", "first", ["source"], 0, 0], ["b", None, ["source"], 0, 1]]
