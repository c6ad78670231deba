"""Generated queries give the same rows on Spark as embedded, for any batches, buckets and late rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.oracle import Arrival
from tests.properties.generators.arrival_orders import arrive_in_any_batches, arrive_with_late_rows
from tests.properties.generators.join_cases import generate_case
from tests.spark.queries import build_sources, collect_rows, table_to_rows
from watersmeet.runtime.buckets.execution_plan import build_execution_plan
from watersmeet.sources.declarations import bind_query

from ..properties.engine import assert_same
from ..volume import scale_volume

#: The cases from the first seed on soon contain every feature that `test_the_cases_cover_all_features` requires, except
#: WINDOW UNTIL NOW, which the last seed has.
SEEDS = tuple(dict.fromkeys([*range(75, 75 + scale_volume(15)), 98]))
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_finite_input_in_any_batches(spark: SparkSession, seed: int) -> None:
    case, rng = generate_case(seed), Random(seed)
    arrivals = build_arrivals(seed, rng)
    expected = table_to_rows(wm.collect(case.text, build_sources(case, arrivals)))
    session = spark.newSession()
    session.conf.set(PARTITIONS, rng.choice((1, 2, 3)))
    frame = wm.on_spark(case.text, build_sources(case, arrivals), session=session, buckets=rng.choice((1, 2, 3, 4, 6)))
    assert_same(case, collect_rows(frame), expected)


def build_arrivals(seed: int, rng: Random) -> dict[str, Arrival]:
    return (arrive_with_late_rows if seed % 2 else arrive_in_any_batches)(rng, generate_case(seed))


def test_the_cases_cover_all_features() -> None:
    counted = Counter(feature for seed in SEEDS for feature in list_features(seed))
    words = {"RANGE", "ROWS", "PARTITION BY", "TUMBLE", "LANDMARK", "UNTIL NOW", "WINDOW (", "DWINDOW", "WINDOW ="}
    assert counted.keys() >= words | {"self join", "relation", "idle", "late", "theta", "several attributes"}


def list_features(seed: int) -> Iterator[str]:
    case, arrivals = generate_case(seed), build_arrivals(seed, Random(seed))
    yield from (
        word
        for word in ("RANGE", "PARTITION BY", "TUMBLE", "LANDMARK", "UNTIL NOW", "DWINDOW", "WINDOW =")
        if word in case.text
    )
    yield from (name for name, word in (("ROWS", "[ROWS"), ("WINDOW (", "\nWINDOW (")) if word in case.text)
    if len({item.name for item in case.items}) < len(case.items):
        yield "self join"
    if any(source.time is None for source in case.sources):
        yield "relation"
    if any(arrival.idle_us is not None for arrival in arrivals.values()):
        yield "idle"
    sources = build_sources(case, arrivals)
    axes = build_execution_plan(bind_query(case.text, sources), sources, None, buckets=6, partitions=2).bucket.grid.axes
    if any(axis.split is not None for axis in axes):
        yield "theta"
    if any(axis.ranges is not None for axis in axes):
        yield "ranges of values"
    if len(axes) > 1 and all(axis.key_class is not None for axis in axes):
        yield "several attributes"
    run = wm.run(case.text, sources)
    run.collect()
    if any(entry.late for entry in run.ledger.values()):
        yield "late"
