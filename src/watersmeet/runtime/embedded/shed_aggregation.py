"""Embedded run of an aggregation query that sheds rows: a join of the kept rows, and estimates on top."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InputError, PlanError
from watersmeet.operators.shed.aggregation import ShedAggregation, ShedConfig, add_hidden_columns, build_shed_config
from watersmeet.operators.shed.sampling import build_drop_boxes, compute_keep_shares
from watersmeet.operators.window_join.admission import InputBatch
from watersmeet.operators.window_join.driver import BatchResult, add_relation, join_batch
from watersmeet.operators.window_join.state import empty_state
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.runtime.embedded.run import EmbeddedRun, Sources, collect_lateness, read_all_rows
from watersmeet.runtime.watermark import Watermark

#: Header of the saved state: the largest event time, and the length of the join's part. The estimates follow it.
_STATE_HEADER = struct.Struct("<qQ")


@dataclass(repr=False)
class ShedAggregationRun(EmbeddedRun):
    """Run of the join below the aggregation. Each batch yields the groups of its evaluations."""

    aggregation: ShedAggregation | None = None
    largest_us: int = -FOREVER_US

    @property
    def result(self) -> pa.Schema:
        return self._aggregation.config.result

    @property
    def evaluates_at_batch_ends(self) -> bool:
        return self.bound.query.every_us is None

    @property
    def state_rows(self) -> int:
        return self.state.rows + self._aggregation.rows

    @property
    def state_bytes(self) -> int:
        return self.state.nbytes + self._aggregation.nbytes

    def save_state(self) -> bytes:
        """Serialize the join's windows, the matches with the groups emitted so far, and the largest event time."""
        join_state, estimates = super().save_state(), self._aggregation.to_bytes()
        return _STATE_HEADER.pack(self.largest_us, len(join_state)) + join_state + estimates

    def restore_state(self, blob: bytes) -> None:
        if len(blob) < _STATE_HEADER.size:
            raise InputError("this saved state does not belong to an aggregation that sheds rows")
        self.largest_us, join_bytes = _STATE_HEADER.unpack_from(blob)
        estimates_at = _STATE_HEADER.size + join_bytes
        super().restore_state(blob[_STATE_HEADER.size : estimates_at])
        self.aggregation = ShedAggregation.from_bytes(self._aggregation.config, blob[estimates_at:])

    def replan(self, plan: Plan) -> None:
        """Use another plan from the next batch on. Drop rates stay, because estimates need one share per stream."""
        if (plan.drop, plan.drop_seed) != (self.config.plan.drop, self.config.plan.drop_seed):
            raise PlanError(
                "an aggregation cannot change its drop rates while it runs",
                hint="start a new run with other drop rates",
            )
        super().replan(plan)

    def _fill_plan(self, plan: Plan) -> Plan:
        # The join reads hidden columns that the sources lack, so it cannot be planned from a sample of their rows.
        return plan

    def _shed_rows(self, name: str, input_batch: InputBatch) -> InputBatch:
        return add_hidden_columns(super()._shed_rows(name, input_batch))

    def _step(self, input_batches: dict[int, InputBatch], future_us: int) -> BatchResult:
        watermark_us = self.watermark.value_us
        newest_times = [
            int(input_batch.times.max())
            for input_batch in input_batches.values()
            if len(input_batch) and int(input_batch.times.max()) >= watermark_us
        ]
        self.largest_us = max([self.largest_us, *newest_times])
        outcome = join_batch(self.config, self.state, input_batches, watermark_us, future_us)
        self.state = outcome.state
        return replace(outcome, results=self._aggregation.step(outcome.results, self.largest_us, future_us))

    @property
    def _aggregation(self) -> ShedAggregation:
        assert self.aggregation is not None
        return self.aggregation


def build_estimation_config(bound: BoundQuery, plan: Plan) -> ShedConfig:
    """Return the configuration of the estimates. Refuse a plan whose aggregates cannot be estimated."""
    if plan.early:
        raise PlanError(
            "a plan that sheds rows cannot aggregate early: estimates need single rows",
            hint='remove "early" from the plan',
        )
    return build_shed_config(bound, compute_keep_shares(bound, plan))


def start_shed_aggregation(bound: BoundQuery, sources: Sources, plan: Plan, *, every_row: bool) -> ShedAggregationRun:
    """Start a run of an aggregation query with a plan that sheds rows.

    Refuse a query whose aggregates cannot be estimated.
    """
    if every_row:
        raise InputError(
            "an aggregation that sheds rows is not evaluated at every row",
            hint='omit "evaluate", or use a plan that sheds nothing',
        )
    shed = build_estimation_config(bound, plan)
    config = compile_join_config(shed.bound, plan)
    state = empty_state(config)
    for join_input in config.inputs:
        if not join_input.is_stream:
            state = add_relation(config, state, join_input.number, read_all_rows(sources[join_input.name]))
    watermark, boxes = Watermark.start(collect_lateness(config, sources)), build_drop_boxes(bound, plan)
    tally = WorkCounters(len(config.inputs))
    return ShedAggregationRun(
        shed.bound, config, sources, state, watermark, tally, boxes, aggregation=ShedAggregation(shed)
    )
