"""Generated queries give the same rows on Spark as embedded, whatever the batches, the buckets and the late rows."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm

from ..properties.arrivals import in_any_batches, with_late_rows
from ..properties.engine import assert_same
from ..properties.generators import generate
from .answers import rows_of, rows_of_table, sources_of

pytestmark = pytest.mark.xdist_group("spark")

CASES = 60


@pytest.mark.parametrize("seed", range(CASES))
def test_a_finite_input_in_any_batches(spark: SparkSession, seed: int) -> None:
    case, rng = generate(seed), Random(seed)
    arrivals = (with_late_rows if seed % 2 else in_any_batches)(rng, case)
    wanted = rows_of_table(wm.collect(case.text, sources_of(case, arrivals)))
    frame = wm.on_spark(case.text, sources_of(case, arrivals), session=spark, buckets=rng.choice((1, 2, 3, 4, 6)))
    assert_same(case, rows_of(frame), wanted)
