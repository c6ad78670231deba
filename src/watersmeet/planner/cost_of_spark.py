"""Costs of Spark on top of the join: pack, shuffle, state store, output, and a fixed cost per micro-batch.

Every copy of a row counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import CostedPlan, OperatorCost
from watersmeet.planner.workload import Workload

#: Operator of the fixed cost of micro-batches.
MICRO_BATCHES = "spark: micro-batches"

#: Bytes of a row for which the costs per row hold, and the share of them that grows with the bytes of a row.
_MEASURED_ROW_BYTES, _SHARE_BY_BYTES = 28.0, 0.89


@dataclass(frozen=True, slots=True)
class ShuffledInput:
    """Rows of one input, and the mean number of buckets that a row is sent to."""

    alias: str
    number: int
    rows: float
    copies: float

    def __str__(self) -> str:
        times = f"{self.copies:.2f}".rstrip("0").rstrip(".")
        return f"{self.alias} {'once' if self.copies == 1 else f'{times} times'}"


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Rows sent to the buckets, copies included: in total for finite inputs, per second for streams.

    >>> big, small = ShuffledInput("big", 0, 200_000, 1), ShuffledInput("small", 1, 200, 8)
    >>> print(Shuffle((big, small), buckets=8, is_total=True))
    shuffles 201,600 rows to 8 buckets: big once, small 8 times

    """

    inputs: tuple[ShuffledInput, ...]
    buckets: int
    is_total: bool
    merges_groups: bool = False

    @property
    def rows(self) -> float:
        """Rows sent, copies included."""
        return sum(each.rows * each.copies for each in self.inputs)

    @property
    def copies(self) -> dict[int, float]:
        """Mean copies of a row, by input number."""
        return {each.number: each.copies for each in self.inputs}

    def __str__(self) -> str:
        unit = "rows" if self.is_total else "rows/s"
        where = f"{self.buckets} buckets" if self.buckets > 1 else "1 bucket"
        merged = "; a second shuffle merges groups" if self.merges_groups else ""
        return f"shuffles {self.rows:,.0f} {unit} to {where}: {', '.join(str(each) for each in self.inputs)}{merged}"


def add_spark_cost(
    config: JoinConfig,
    workload: Workload,
    profile: Profile,
    each: CostedPlan,
    read: Workload | None = None,
    shuffle: Shuffle | None = None,
) -> CostedPlan:
    """Add Spark's part of the cost to a plan. It is the same for every plan, so it changes no choice.

    If rows are dropped, `workload` has the remaining rows and `read` has all of them, which the packing tasks read.
    Every copy of a row is shuffled and stored in state; without `shuffle`, there is one copy of each.
    """
    spark = profile.spark
    copies = {} if shuffle is None else shuffle.copies
    arriving = (read or workload).inputs
    read_per_s = sum(arriving[i].rows_per_s.value for i in config.stream_inputs)
    shuffled_per_s = sum(workload.inputs[i].rows_per_s.value * copies.get(i, 1) for i in config.stream_inputs)
    kept_per_s = sum(workload.inputs[i].kept_per_s.value * copies.get(i, 1) for i in config.stream_inputs)
    out_per_s, batches_per_s = each.cost.rows_out_per_s, 1 / workload.arrivals.batch_s
    size = _relative_row_size(config, workload)
    parts = (
        OperatorCost("spark: pack", read_per_s * spark.pack_s * size, read_per_s),
        OperatorCost("spark: shuffle", shuffled_per_s * spark.shuffle_s * size, shuffled_per_s),
        OperatorCost("spark: state", kept_per_s * spark.state_s * size, kept_per_s),
        OperatorCost("spark: emit", out_per_s * spark.out_s, out_per_s),
        OperatorCost(MICRO_BATCHES, batches_per_s * spark.batch_s, batches_per_s),
    )
    return CostedPlan(each.plan, replace(each.cost, operators=(*each.cost.operators, *parts)))


def _relative_row_size(config: JoinConfig, workload: Workload) -> float:
    """Return the factor by which the costs per row grow with the mean size of a row. Most of them copy bytes."""
    inputs = [workload.inputs[i] for i in config.stream_inputs]
    rows_per_s = sum(each.rows_per_s.value for each in inputs)
    if not rows_per_s:
        return 1.0
    row_bytes = sum(each.rows_per_s.value * each.row_bytes.value for each in inputs) / rows_per_s
    return 1 - _SHARE_BY_BYTES + _SHARE_BY_BYTES * row_bytes / _MEASURED_ROW_BYTES
