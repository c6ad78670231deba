"""The execution plan of a query on Spark.

It says which rows and columns of each stream are packed, on which grid of buckets they are placed, and which operator
a bucket runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InternalError, PlanError
from watersmeet.operators.aggregate.config import AggregateConfig, build_aggregate_config
from watersmeet.operators.aggregate.merging import build_merge_config
from watersmeet.operators.build import build_estimation_config, build_operator
from watersmeet.operators.expressions.conjunctions import may_raise
from watersmeet.operators.protocol import Operator, OperatorConfig
from watersmeet.operators.shed.allocation import (
    AT,
    PROBES,
    STORED,
    AllocatedJoinOperator,
    build_allocated_operator,
)
from watersmeet.operators.shed.sampling import DropBox, build_drop_boxes
from watersmeet.operators.window_join.admission import list_columns_read
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.runtime.buckets.bucket import Bucket, Merger
from watersmeet.runtime.buckets.bucket_grid import (
    Axis,
    BucketGrid,
    GridStore,
    SampledRows,
    assign_labels,
    choose_grid,
    find_grouping,
)
from watersmeet.runtime.buckets.packets import decode_table, encode_table
from watersmeet.runtime.buckets.packing import PackedInput, Packer
from watersmeet.runtime.buckets.plan_log import PlanLog, PlannedDrops
from watersmeet.runtime.planning import EMPTY_SAMPLE, choose_spark_plan, estimate_input_volumes, read_planning_input
from watersmeet.runtime.watermark import collect_lateness
from watersmeet.sources.declarations import Sources, Stream, read_all_rows
from watersmeet.stats.stream_stats import StreamStats

Config = JoinConfig | AggregateConfig


@dataclass(frozen=True)
class SparkExecutionPlan:
    """One packer per physical stream, the bucket that all of them pack for, and the signature of a checkpoint.

    `merger` adds up partial groups. It is None where every bucket has whole groups.
    """

    bound: BoundQuery
    packers: tuple[Packer, ...]
    bucket: Bucket
    signature: dict[str, str]
    merger: Merger | None = None

    def stream(self, sources: Sources, packer: Packer) -> Stream:
        source = sources[packer.name]
        if not isinstance(source, Stream):
            raise InternalError(f'"{packer.name}" is no stream')
        return source


def build_execution_plan(
    bound: BoundQuery,
    sources: Sources,
    plan: Plan | None,
    buckets: int,
    partitions: int,
    log: PlanLog | None = None,
    *,
    stats: Mapping[str, StreamStats] | None = None,
    checkpoint: GridStore | None = None,
) -> SparkExecutionPlan:
    """Build the execution plan of a query over its sources; refuse a pinned plan that cannot run it.

    A ROWS window counts the rows of a whole stream, so a query with one runs in a single bucket. `log` has the plans
    of later batches. `stats` are declared statistics. `checkpoint` stores the grid of a streaming query.
    """
    if plan is not None and plan.is_allocated:
        return _build_allocated_join(bound, sources, plan, buckets, partitions, log, stats or {}, checkpoint)
    if bound.is_aggregation and plan is not None and build_drop_boxes(bound, plan):
        return _build_shedding_aggregation(bound, sources, plan, partitions)
    plan = choose_spark_plan(bound, sources, plan, stats)
    config: Config = build_aggregate_config(bound, plan) if bound.is_aggregation else compile_join_config(bound, plan)
    grid = _load_or_choose_grid(bound, config, sources, buckets, stats or {}, checkpoint)
    labels = assign_labels(grid.cells, partitions)
    merger = None
    if isinstance(config, AggregateConfig) and not find_grouping(config).is_complete_in(grid):
        merger = Merger(bound, build_merge_config(bound, config), labels)
        config = replace(config, partial=True)
    boxes = build_drop_boxes(bound, config.plan)
    packers = tuple(
        _build_packer(
            config, number, name, grid, labels, boxes.get(name), _build_planned_drops(bound, config, name, log)
        )
        for number, name in enumerate(_list_stream_names(config))
    )
    operator = build_operator(
        bound,
        plan,
        lambda each: _read_packed_relation(
            each, sources, each.fields.names if bound.is_aggregation else list_columns_read(each)
        ),
        partial=merger is not None,
        selected=_find_selected_inputs(config),
        saved_every_batch=True,
    )
    return SparkExecutionPlan(
        bound,
        packers,
        _build_bucket(operator, sources, packers),
        _build_signature(bound, packers, partitions),
        merger,
    )


def _build_shedding_aggregation(bound: BoundQuery, sources: Sources, plan: Plan, partitions: int) -> SparkExecutionPlan:
    """Build the plan of an aggregation that sheds rows: one bucket runs the join and estimates the aggregates."""
    shed = build_estimation_config(bound, plan)
    config = compile_join_config(shed.bound, plan)
    grid, boxes = choose_grid(config, 1), build_drop_boxes(bound, plan)
    fields = {source.schema.name: tuple(source.schema.fields.names) for source in bound.sources}
    labels = assign_labels(grid.cells, partitions)
    packers = tuple(
        replace(
            _build_packer(config, number, name, grid, labels, boxes.get(name), None),
            identity=fields[name],
            with_hidden=True,
        )
        for number, name in enumerate(_list_stream_names(config))
    )
    operator = build_operator(
        bound,
        plan,
        lambda each: _read_packed_relation(each, sources, list_columns_read(each)),
        selected=_find_selected_inputs(config),
        saved_every_batch=True,
    )
    return SparkExecutionPlan(
        bound,
        packers,
        _build_bucket(operator, sources, packers),
        _build_shedding_signature(bound, packers, partitions, plan),
    )


def _build_allocated_join(
    bound: BoundQuery,
    sources: Sources,
    plan: Plan,
    buckets: int,
    partitions: int,
    log: PlanLog | None,
    stats: Mapping[str, StreamStats],
    checkpoint: GridStore | None,
) -> SparkExecutionPlan:
    """Build the plan of a join that divides probes and windows. Packing draws the roles of a row and sends them."""
    if bound.is_aggregation:
        raise PlanError(
            "an aggregation that divides probes and windows runs in this process only",
            hint="on Spark, use wm.plan(drop=...)",
        )
    if log is not None:
        raise PlanError(
            "a plan that divides probes and windows cannot change its shares while it runs on Spark",
            hint="use either shed or keep_up",
        )
    plan = choose_spark_plan(bound, sources, plan, stats)
    config = compile_join_config(bound, plan)
    operator = build_allocated_operator(bound, plan, saved_every_batch=True)
    grid = _load_or_choose_grid(bound, config, sources, buckets, stats, checkpoint)
    labels = assign_labels(grid.cells, partitions)
    packers = tuple(
        replace(
            _build_packer(config, number, name, grid, labels, None, None),
            identity=tuple(bound.sources[number].schema.fields.names),
            roles=operator.samplers[number],
            inputs=(_build_flagged_input(config, operator, number),),
        )
        for number, name in enumerate(_list_stream_names(config))
    )
    signature = {**_build_signature(bound, packers, partitions), "how rows are kept": "by role"}
    return SparkExecutionPlan(bound, packers, _build_bucket(operator, sources, packers), signature)


def _build_flagged_input(config: JoinConfig, operator: AllocatedJoinOperator, number: int) -> PackedInput:
    """Return the input of one stream, with all columns that either direction reads, and the flags."""
    packed = _build_packed_input(config, config.inputs[number])
    read = [name for each in operator.directions for name in list_columns_read(each.config.inputs[number])]
    columns = dict.fromkeys([*packed.columns, *(name for name in read if name != AT), PROBES, STORED])
    return replace(packed, columns=tuple(columns))


def _build_shedding_signature(
    bound: BoundQuery, packers: tuple[Packer, ...], partitions: int, plan: Plan
) -> dict[str, str]:
    """Return the signature of a shedding aggregation: its estimates assume one shed share per stream throughout."""
    dropped = ", ".join(f"{name} {share}" for name, share in plan.drop)
    return {**_build_signature(bound, packers, partitions), "what is dropped": f"{dropped} by seed {plan.drop_seed}"}


def _list_stream_names(config: Config) -> list[str]:
    return list(dict.fromkeys(config.inputs[i].name for i in config.stream_inputs))


def _load_or_choose_grid(
    bound: BoundQuery,
    config: Config,
    sources: Sources,
    buckets: int,
    stats: Mapping[str, StreamStats],
    checkpoint: GridStore | None,
) -> BucketGrid:
    """Return the grid of a query: the one its checkpoint was started with, or the one that shuffles the fewest rows.

    Measured rates may differ at the next start. So a streaming query uses them only if its checkpoint stores the grid.
    """
    join, grouping = (config, None) if isinstance(config, JoinConfig) else (config.join, find_grouping(config))
    read = [sources[each.schema.name] for each in bound.sources]
    streaming = any(isinstance(source, Stream) and source.is_unbounded for source in read)
    is_started = checkpoint is not None and checkpoint.has_started
    if checkpoint is not None and is_started:
        stored = checkpoint.load(str(bound.query), join, grouping)
        if stored is not None and stored.cells == choose_grid(join, buckets, grouping=grouping).cells:
            return stored
    sample, declared = read_planning_input(bound, sources, stats)
    if streaming and (checkpoint is None or is_started):
        sample = EMPTY_SAMPLE
    volumes = None
    if declared or not streaming or sample.tables:
        volumes = estimate_input_volumes(bound, join, sources, sample, declared).rows
    rows = SampledRows(sample.tables, is_complete=sample.is_complete) if sample.tables else None
    grid = choose_grid(join, buckets, volumes, grouping, rows)
    if checkpoint is not None and streaming and not is_started:
        checkpoint.save(str(bound.query), join, grid)
    return grid


def _build_planned_drops(bound: BoundQuery, config: Config, name: str, log: PlanLog | None) -> PlannedDrops | None:
    return None if log is None else PlannedDrops(bound, name, config.plan, log)


def _build_packer(
    config: Config,
    number: int,
    name: str,
    grid: BucketGrid,
    labels: tuple[int, ...],
    box: DropBox | None,
    planned: PlannedDrops | None,
) -> Packer:
    """Build the packer of one stream. A self join has several inputs but reads its stream once."""
    inputs = [config.inputs[i] for i in config.stream_inputs if config.inputs[i].name == name]
    return Packer(
        stream=number,
        name=name,
        time=inputs[0].time or "",
        inputs=tuple(_build_packed_input(config, each) for each in inputs),
        grid=grid,
        labels=labels,
        box=box,
        identity=tuple(inputs[0].fields.names) if box is not None or planned is not None else (),
        planned=planned,
        unit=inputs[0].unit,
    )


def _build_packed_input(config: Config, source: JoinInput) -> PackedInput:
    if not _is_selected_while_packing(source):
        return PackedInput(source.number, tuple(source.fields.names), keys=())
    remaining = source if _may_selection_raise(source) else replace(source, selection=None)
    names = dict.fromkeys([*list_columns_read(remaining), source.time or ""])
    return PackedInput(source.number, tuple(names), source.keys, source.own_predicates, source.operands)


def _is_selected_while_packing(source: JoinInput) -> bool:
    """Return whether rows that fail WHERE can be dropped while packing. A ROWS window counts them first."""
    return source.row_limit is None


def _build_bucket(operator: Operator[Any], sources: Sources, packers: tuple[Packer, ...]) -> Bucket:
    return Bucket(
        operator=operator,
        packed_schemas=dict(
            sorted(
                (each.number, _build_packed_schema(operator.config, each))
                for packer in packers
                for each in packer.inputs
            )
        ),
        streams=tuple(packer.name for packer in packers),
        lateness=collect_lateness(operator.config, sources),
        grid=packers[0].grid,
        labels=packers[0].labels,
    )


def _read_packed_relation(source: JoinInput, sources: Sources, names: list[str]) -> pa.Table:
    """Read these columns of a relation. It is sent to workers with the query, so its buffers hold nothing else."""
    return decode_table(encode_table(read_all_rows(sources[source.name]).select(names)))


def _find_selected_inputs(config: Config) -> frozenset[int]:
    """Return the inputs whose selections packing has fully applied.

    Packing sends the rows that a selection raises on to the bucket, late ones included. The bucket drops the late rows
    first.
    """
    return frozenset(
        each.number
        for each in config.inputs
        if each.is_stream and _is_selected_while_packing(each) and not _may_selection_raise(each)
    )


def _may_selection_raise(source: JoinInput) -> bool:
    return source.selection is not None and may_raise(
        source.selection, lambda column: pa.nulls(0, source.fields.field(column.name).type)
    )


def _build_packed_schema(config: OperatorConfig, each: PackedInput) -> pa.Schema:
    return pa.schema([config.inputs[each.number].fields.field(name) for name in each.columns])


def _build_signature(bound: BoundQuery, packers: tuple[Packer, ...], partitions: int) -> dict[str, str]:
    """Return the facts that a checkpoint depends on, by the name that an error message gives them.

    State is the windows, so the plan is not among them. State is stored by bucket label, so the labels are.
    """
    schemas = {source.schema.name: source.schema.fields for source in bound.sources}
    columns = {
        f'"{name}"': ", ".join(f"{field.name} {field.type}" for field in fields) for name, fields in schemas.items()
    }
    times = {
        f'the time of "{packer.name}"': packer.time + (f" in {packer.unit}" if packer.unit else "")
        for packer in packers
    }
    buckets = len(packers[0].labels)
    shuffle = {"spark.sql.shuffle.partitions": str(partitions)} if buckets > 1 else {}
    grid = {"the grid of its buckets": _format_grid(bound, packers[0].grid)} if buckets > 1 else {}
    return {"the query": str(bound.query), **times, **shuffle, "the number of buckets": str(buckets), **grid, **columns}


def _format_grid(bound: BoundQuery, grid: BucketGrid) -> str:
    """Return the axes as text. It is the same for two grids of a query if and only if both place every row alike."""
    return " × ".join(f"{axis.share} by {_format_axis(bound, axis)}" for axis in grid.axes)


def _format_axis(bound: BoundQuery, axis: Axis) -> str:
    aliases = ", ".join(bound.sources[number].alias for number in sorted(axis.members))
    if axis.ranges is not None:
        placed, spread = (bound.sources[number].alias for number in (axis.ranges.placed, axis.ranges.spread))
        return f"ranges {axis.ranges.digest} of {placed} with {spread}"
    if axis.split is None:
        return f"equality {axis.key_class} of {aliases}"
    return f"{'groups' if axis.keys else 'rows'} of {aliases}"
