"""Weights of an aggregation over a join: per row ingested, per row counted early, per change, per probe, per result.

Short runs of two streams are measured under every placement of early aggregation, with few and many matches per row,
evaluated often and rarely. Least squares splits the time over the cost model's own quantities, so the model predicts a
plan with exactly the fitted terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.schema import StreamSchema
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.calibration.measurement import fit_weights, measure_cpu
from watersmeet.operators.aggregate.config import AggregateConfig, build_aggregate_config
from watersmeet.operators.aggregate.state import empty_state
from watersmeet.operators.aggregate.step import step
from watersmeet.operators.protocol import InputBatch
from watersmeet.planner.aggregation_costs import cost_placement
from watersmeet.planner.models.early_aggregation import EarlyWeights
from watersmeet.planner.workload import ArrivalPattern, estimate_workload
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse
from watersmeet.stats.stream_stats import Estimate, Provenance, StreamStats

BATCHES, WINDOW_BATCHES, GROUPS = 8, 3, 20
WEIGHTS = tuple(each.name for each in fields(EarlyWeights))

_FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("g", pa.int64()), ("x", pa.int64())])


@dataclass(frozen=True, slots=True)
class AggregationLoad:
    """Rows of each stream per batch, matches of a row in a full window, evaluations per batch, and early inputs."""

    rows: int
    matches: int
    evaluations: int
    early: tuple[str, ...]

    @property
    def keys(self) -> int:
        return max(1, WINDOW_BATCHES * self.rows // self.matches)

    @property
    def text(self) -> str:
        window = f"[RANGE {WINDOW_BATCHES * self.rows} MICROSECONDS]"
        return (
            f"SELECT a.g, COUNT(*) AS n, SUM(b.x) AS total FROM a {window}, b {window} WHERE a.k = b.k "
            f"GROUP BY a.g EVERY {self.rows // self.evaluations} MICROSECONDS"
        )

    def batches(self) -> list[dict[int, InputBatch]]:
        """Generate batches with one row of each stream per microsecond."""
        rng = np.random.default_rng([self.rows, self.matches])
        return [{i: self._generate_input_batch(rng, number) for i in (0, 1)} for number in range(BATCHES)]

    def _generate_input_batch(self, rng: np.random.Generator, number: int) -> InputBatch:
        times = number * self.rows + np.arange(self.rows)
        keys, groups = rng.integers(0, self.keys, self.rows), rng.integers(0, GROUPS, self.rows)
        columns = [pa.array(column) for column in (times, keys, groups, groups)]
        return InputBatch(pa.table(columns, schema=_FIELDS), times)


def measure_aggregation_weights(repeats: int, *, quick: bool) -> EarlyWeights:
    """Measure all loads and fit the weights."""
    measured = [(model_quantities(load), measure_seconds(load, repeats)) for load in generate_loads(quick=quick)]
    return EarlyWeights(*fit_weights([each for each, _ in measured], [taken for _, taken in measured]))


def generate_loads(*, quick: bool) -> Iterator[AggregationLoad]:
    """Yield the loads to measure."""
    rows = 2_000 if quick else 5_000
    matches, evaluations = ((2, 30), (4,)) if quick else ((1, 10, 60), (1, 10))
    for each, often, early in product(matches, evaluations, ((), ("a",), ("b",), ("a", "b"))):
        yield AggregationLoad(rows, each, often, early)
    for early in (("b",), ("a", "b")):  # hardly any changes: shows the cost of rows alone
        yield AggregationLoad(rows, rows // 8, 1, early)


def model_quantities(load: AggregationLoad) -> list[float]:
    """Return the model's quantities of a run: its cost with one weight at one second and all others at zero."""
    bound = _bind_query(load)
    config, length_s = _build_config(bound, load), BATCHES * load.rows / 1e6
    distinct = {"k": _declare(load.keys), "g": _declare(GROUPS), "x": _declare(GROUPS)}
    stats = {name: StreamStats(_declare(1e6), _declare(32), distinct) for name in "ab"}
    workload = estimate_workload(
        bound, config.join, stats, arrivals=ArrivalPattern(load.rows / 1e6, length_s, is_assumed=False)
    )

    def amount(name: str) -> float:
        unit = EarlyWeights(**{each: float(each == name) for each in WEIGHTS})
        return cost_placement(config, workload, stats, Plan(early=load.early), unit).cost.cpu_per_s * length_s

    return [amount(name) for name in WEIGHTS]


def measure_seconds(load: AggregationLoad, repeats: int) -> float:
    """Measure the CPU seconds of a run."""
    config, batches = _build_config(_bind_query(load), load), load.batches()
    return measure_cpu(lambda: _count_emitted_groups(config, batches), repeats).seconds


def _bind_query(load: AggregationLoad) -> BoundQuery:
    return bind(parse(load.text), {name: StreamSchema(name, _FIELDS, "ts") for name in "ab"})


def _build_config(bound: BoundQuery, load: AggregationLoad) -> AggregateConfig:
    return build_aggregate_config(bound, Plan(early=load.early))


def _count_emitted_groups(config: AggregateConfig, batches: list[dict[int, InputBatch]]) -> int:
    """Run the aggregation and count the emitted groups."""
    state, shown = empty_state(config), 0
    for batch in batches:
        stepped = step(config, state, batch, -FOREVER_US, int(batch[0].times[-1]) + 1)
        state, shown = stepped.state, shown + stepped.counters.results
    return shown


def _declare(value: float) -> Estimate:
    return Estimate(value, Provenance.DECLARED)
