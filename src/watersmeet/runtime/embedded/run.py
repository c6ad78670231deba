"""Embedded host: runs a query in this process, batch by batch, over the caller's data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.algebra.render import html_code, html_paragraph
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InputError
from watersmeet.events import log_batch, log_run_ended, log_run_started
from watersmeet.metrics import BatchMetrics, Ledger, Observer, ignore_metrics, is_notebook, render_ledger_html
from watersmeet.operators.allocator import keep_freed_memory
from watersmeet.operators.build import build_operator
from watersmeet.operators.parallel import cpu_seconds, on_cores
from watersmeet.operators.protocol import (
    BatchCounters,
    Clock,
    InputBatch,
    Operator,
    OperatorConfig,
    SavedPart,
    exhaust,
)
from watersmeet.operators.shed.sampling import RoleSampler, RowSampler, build_samplers
from watersmeet.operators.window_join.admission import shed_rows
from watersmeet.operators.window_join.work_counters import ALL_INPUTS, PROBE, WorkCounters
from watersmeet.runtime.embedded.adaptive import AdaptivePlanner, Decision, StartingPlan
from watersmeet.runtime.embedded.ready_batches import ReadyBatches
from watersmeet.runtime.planning import choose_plan, read_planning_input
from watersmeet.runtime.watermark import Watermark, collect_lateness
from watersmeet.sources.declarations import Sources, Stream, bind_query, read_all_rows
from watersmeet.sources.times import extract_event_times_us, refuse_undeclared_unit
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.units import format_count

#: Ways to pull batches from the streams: one of every stream per round, or whichever is ready.
ROUNDS, READY = "rounds", "ready"
PULLS = (ROUNDS, READY)


@dataclass
class EmbeddedRun:
    """Running query. Round r reads the r-th batch of every stream that still has one.

    `batches()` yields the results of one round after another. `ledger` accounts for every row, `batch_ledger` for the
    rows of the last batch, `tally` for the work.
    """

    bound: BoundQuery
    operator: Operator[Any]
    sources: Sources
    state: Any  # of the operator's own type
    watermark: Watermark
    tally: WorkCounters
    boxes: Mapping[str, RowSampler]
    ledger: dict[str, Ledger] = field(default_factory=dict)
    batch_ledger: dict[str, Ledger] = field(default_factory=dict)
    planner: AdaptivePlanner | None = None  # None if the plan is pinned
    stats: Mapping[str, StreamStats] = field(default_factory=dict)  # declared by the caller
    saved_every_batch: bool = False  # to a checkpoint, so expired rows are evicted before they are written
    checked_units: set[str] = field(default_factory=set)  # streams whose integer times were checked
    pull: str = ROUNDS
    late_before_us: int = -FOREVER_US  # rows of the last batch before this time were late

    def __repr__(self) -> str:
        return f"Run({self._describe()}, plan={self.config.plan!r})"

    def _repr_html_(self) -> str:
        ledger = render_ledger_html(self.ledger) if self.ledger else ""
        return f"<div>{html_code(str(self.bound.query))}{html_paragraph(self._describe(), strong=True)}{ledger}</div>"

    def _describe(self) -> str:
        arrived = sum(entry.arrived for entry in self.ledger.values())
        return f"{format_count(arrived)} rows in, {format_count(self.state_rows)} rows stored"

    @property
    def config(self) -> OperatorConfig:
        """Inputs, plan and result schema of the operator that runs."""
        return self.operator.config

    @property
    def decisions(self) -> list[Decision]:
        """Re-optimizations so far: when, why, and with which outcome."""
        return self.planner.decisions if self.planner is not None else []

    @property
    def result(self) -> pa.Schema:
        """Schema of the result rows."""
        return self.config.result

    @property
    def evaluates_at_batch_ends(self) -> bool:
        """Whether results depend on batch boundaries, as for an aggregation without EVERY."""
        return self.bound.is_aggregation and self.bound.query.every_us is None

    @property
    def state_rows(self) -> int:
        """Rows held in state."""
        return int(self.state.rows)

    @property
    def state_bytes(self) -> int:
        """Bytes of memory held in state."""
        return int(self.state.nbytes)

    def save_state(self) -> list[SavedPart]:
        """Serialize everything that later batches depend on, except the watermark."""
        parts = self.operator.parts(self.state)
        return [SavedPart(part.input_number, part.kind, part.to_bytes()) for part in parts]

    def restore_state(self, saved: Sequence[SavedPart]) -> None:
        """Restore the state that `save_state` of a run of the same query returned."""
        self.state = self.operator.restore(saved)

    def batches(self) -> Iterator[list[pa.RecordBatch]]:
        """Run all batches and yield the results of each."""
        for tables in self.read_rounds():
            yield self.advance(tables)
        yield self.finish()

    def advance(self, tables: Mapping[str, pa.Table], *, last: bool = False) -> list[pa.RecordBatch]:
        """Join one batch per stream name and return its results; `last` means that no other batch will follow."""
        rows = {name: self._read_event_times(name, table) for name, table in tables.items()}
        new_plan = (
            self.planner.observe_batch(tables, {name: batch.times for name, batch in rows.items()})
            if self.planner is not None
            else None
        )
        if new_plan is not None:
            self._switch_plan(new_plan)
        seen = {name: (int(batch.times.min()), int(batch.times.max())) for name, batch in rows.items() if len(batch)}
        next_watermark = self.watermark.after_batch(seen)
        passed = {name: self._shed_rows(name, batch) for name, batch in rows.items()}
        input_batches = {
            i: passed[self.config.inputs[i].name]
            for i in self.config.stream_inputs
            if self.config.inputs[i].name in passed
        }
        clock = Clock(
            self.watermark.value_us, FOREVER_US if last else next_watermark.value_us, next_watermark.largest_us
        )
        before, self.late_before_us = self.state, self.watermark.value_us
        with on_cores(os.cpu_count() or 1):
            results, (self.state, counters) = exhaust(self.operator.advance(before, input_batches, clock))
        if self.saved_every_batch:
            self.state = self.operator.trim(before, self.state, clock)
        self.watermark = next_watermark
        self.tally.add(counters.tally)
        if self.planner is not None:
            self.planner.record_work(sum(counters.arrived), counters.tally)
        self._update_ledger(counters, rows, passed)
        return results

    def replan(self, plan: Plan) -> None:
        """Use this plan from the next batch on.

        Open parts of the plan of a join are filled as at the start of a run, by declared statistics and the first rows
        of the sources.
        """
        self.planner = None
        self._switch_plan(self._fill_plan(plan))

    def finish(self) -> list[pa.RecordBatch]:
        """End the input: emit the results that still wait for the watermark."""
        return self.advance({}, last=True)

    def collect(self) -> pa.Table:
        """Run all batches and return all results in one table, with the ledger in its schema's metadata.

        A notebook shows a progress bar meanwhile.
        """
        if is_notebook():
            from watersmeet.runtime.embedded.finite_input import collect_with_bar  # it imports this module

            return collect_with_bar(self)
        return collect_with_metrics(self, ignore_metrics)

    def ledger_dict(self) -> dict[str, dict[str, int]]:
        """Return the ledger as JSON values."""
        return {name: asdict(entry) for name, entry in self.ledger.items()}

    def to_table_with_ledger(self, results: list[pa.RecordBatch]) -> pa.Table:
        """Return the results as one table, with the ledger in its schema's metadata. The run has ended."""
        log_run_ended(sum(batch.num_rows for batch in results), self.ledger_dict())
        metadata = json.dumps({"ledger": self.ledger_dict()})
        schema = self.result.with_metadata({"watersmeet": metadata})
        return pa.Table.from_batches(results, self.result).cast(schema) if results else schema.empty_table()

    def check_units(self, tables: Mapping[str, pa.Table]) -> None:
        """Check the integer times of complete tables, so that the batches cut from them are not checked one by one."""
        for name, table in tables.items():
            self._read_event_times(name, table)

    def read_rounds(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the next batch of every stream that still has one, until none has; with `pull="ready"`, those ready."""
        names = dict.fromkeys(self.config.inputs[i].name for i in self.config.stream_inputs)
        readers = {name: self.sources[name].batches() for name in names}
        if self.pull == READY:
            yield from ReadyBatches(readers).rounds()
            return
        while True:
            tables = {name: table for name, reader in readers.items() if (table := next(reader, None)) is not None}
            if not tables:
                return
            yield tables

    def _read_event_times(self, name: str, table: pa.Table) -> InputBatch:
        source = self.sources[name]
        if not isinstance(source, Stream):
            raise InputError(f'"{name}" is a relation; only streams have batches')
        times = extract_event_times_us(name, table, source.time, source.unit)
        if times.size and name not in self.checked_units | self.watermark.newest_us.keys():
            refuse_undeclared_unit(name, source.time, source.schema, source.unit, int(times.min()), int(times.max()))
            self.checked_units.add(name)
        return InputBatch(table, times)

    def _fill_plan(self, plan: Plan) -> Plan:
        if self.bound.is_aggregation:
            return plan
        return choose_plan(self.bound, *read_planning_input(self.bound, self.sources, self.stats), plan)

    def _switch_plan(self, plan: Plan) -> None:
        self.operator, self.state = self.operator.replan(self.state, plan)
        self.boxes = build_samplers(self.bound, plan)

    def _shed_rows(self, name: str, batch: InputBatch) -> InputBatch:
        box = self.boxes.get(name)
        if box is None or (isinstance(box, RoleSampler) and box.counts_all):
            return batch
        return shed_rows(batch, box, self.watermark.value_us)

    def _count_shed_rows(self, name: str, rows: InputBatch, passed: InputBatch) -> int:
        """Count the rows that are shed: those that did not pass, or, in a ROWS window, those without a role."""
        box = self.boxes.get(name)
        if isinstance(box, RoleSampler) and box.counts_all:
            return int(np.count_nonzero(~box.select_kept(rows.table) & (rows.times >= self.late_before_us)))
        return len(rows) - len(passed)

    def _update_ledger(
        self, counters: BatchCounters, rows: Mapping[str, InputBatch], passed: Mapping[str, InputBatch]
    ) -> None:
        self.batch_ledger = {}
        for i in self.config.stream_inputs:  # a self join reads its stream once per alias: the same rows each time
            name, late = self.config.inputs[i].name, counters.late[i]
            arrived = len(rows[name]) if name in rows else 0
            shed = self._count_shed_rows(name, rows[name], passed[name]) if name in rows else 0
            self.batch_ledger[name] = Ledger(arrived, arrived - shed - late, shed, late)
        for name, entry in self.batch_ledger.items():
            self.ledger.setdefault(name, Ledger()).add(entry)


def start_run(
    query: Query | str,
    sources: Sources,
    plan: Plan | None = None,
    *,
    evaluate: str | None = None,
    starting_plan: StartingPlan | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    saved_every_batch: bool = False,
) -> EmbeddedRun:
    """Bind a query and start a run of it over the sources. See `start_bound_run`."""
    bound = bind_query(query, sources)
    return start_bound_run(
        bound,
        sources,
        plan,
        evaluate=evaluate,
        starting_plan=starting_plan,
        stats=stats,
        saved_every_batch=saved_every_batch,
    )


def start_bound_run(
    bound: BoundQuery,
    sources: Sources,
    plan: Plan | None = None,
    *,
    evaluate: str | None = None,
    starting_plan: StartingPlan | None = None,
    stats: Mapping[str, StreamStats] | None = None,
    saved_every_batch: bool = False,
    pull: str = ROUNDS,
) -> EmbeddedRun:
    """Start a run of the query over the sources, with no row joined yet; refuse a pinned plan that cannot run it.

    The planner fills the open parts of a pinned plan by cost, as `explain` shows. Without a pinned plan, the run starts
    with the cheapest plan predicted on the sampled rows, and re-optimizes as rows arrive.

    `evaluate="row"` evaluates an aggregation query at the time of every row. `starting_plan` is the plan to
    start with if there is a budget. `stats` are declared statistics, which take precedence over sampled rows.
    With `saved_every_batch`, the caller saves the state after every batch. `pull` is "rounds", which waits for a batch
    of every stream, or "ready", which takes the batches of the streams that have one.
    """
    if pull not in PULLS:
        raise InputError(f'there is no way to pull "{pull}"', hint=f"ways: {', '.join(PULLS)}")
    every_row = _check_evaluation(bound, evaluate)
    keep_freed_memory()
    planner = None
    if bound.is_aggregation:
        # A starting plan without drop rates is for joins only.
        if starting_plan is not None and starting_plan.plan.sheds:
            plan = starting_plan.plan
        starting_plan = None
    known: Mapping[str, StreamStats] = stats or {}
    if plan is None or not bound.is_aggregation:
        sample, known = read_planning_input(bound, sources, stats)
        if plan is None:
            start = starting_plan or StartingPlan(choose_plan(bound, sample, known))
            planner = AdaptivePlanner(bound, sources, start.plan, sample.rows, start.budget, start.policy)
            plan = start.plan
        if not bound.is_aggregation:
            plan = choose_plan(bound, sample, known, plan)
    operator = build_operator(
        bound,
        plan,
        lambda join_input: read_all_rows(sources[join_input.name]),
        every_row=every_row,
        saved_every_batch=saved_every_batch,
    )
    run = run_operator(bound, operator, sources, build_samplers(bound, plan))
    run.planner, run.stats, run.saved_every_batch, run.pull = planner, known, saved_every_batch, pull
    log_run_started("embedded", bound.query, sources, run.config.plan)
    return run


def run_operator(
    bound: BoundQuery, operator: Operator[Any], sources: Sources, boxes: Mapping[str, RowSampler]
) -> EmbeddedRun:
    """Return a run of an operator over the sources, with no row processed yet. `boxes` sample the streams by name."""
    watermark = Watermark.start(collect_lateness(operator.config, sources))
    tally = WorkCounters(len(operator.config.inputs))
    return EmbeddedRun(bound, operator, sources, operator.empty(), watermark, tally, boxes)


def _check_evaluation(bound: BoundQuery, evaluate: str | None) -> bool:
    """Return whether an aggregation is evaluated at every row; refuse what cannot be evaluated so."""
    if evaluate not in (None, "row"):
        raise InputError(f'there is no evaluation "{evaluate}"', hint='write evaluate="row", or leave it out')
    if evaluate is not None and not bound.is_aggregation:
        raise InputError("evaluate is for aggregation queries; this query emits each result as soon as it is known")
    if evaluate is not None and bound.query.every_us is not None:
        raise InputError("a query with EVERY cannot be evaluated at every row", hint="leave one of the two out")
    return evaluate == "row"


def collect_with_metrics(run: EmbeddedRun, observe: Observer) -> pa.Table:
    """Return all results of an embedded run over finite data; call the observer after every batch."""
    results: list[pa.RecordBatch] = []
    waiting: dict[str, pa.Table] = {}
    number = 0
    for tables in run.read_rounds():  # one round late, to know which is the last
        if waiting:
            batch_results, metrics = run_batch_with_metrics(run, number, waiting)
            observe(metrics)
            results += batch_results
            number += 1
        waiting = tables
    batch_results, metrics = run_batch_with_metrics(run, number, waiting, last=True)
    observe(metrics)
    return run.to_table_with_ledger(results + batch_results)


def run_batch_with_metrics(
    run: EmbeddedRun, batch: int, tables: Mapping[str, pa.Table], *, last: bool = False
) -> tuple[list[pa.RecordBatch], BatchMetrics]:
    """Run one batch of an embedded run; return its results and its metrics."""
    spent = dict(run.tally.timer.spent_s)
    started, before_s = time.perf_counter(), cpu_seconds()
    results = run.advance(tables, last=last)
    took_s, spent_s = time.perf_counter() - started, cpu_seconds() - before_s
    metrics = BatchMetrics(
        batch=batch,
        ended_s=time.time(),
        took_s=took_s,
        rows_in={name: table.num_rows for name, table in tables.items()},
        rows_out=sum(each.num_rows for each in results),
        late={name: entry.late for name, entry in run.batch_ledger.items()},
        shed={name: entry.shed for name, entry in run.batch_ledger.items()},
        state_rows=run.state_rows,
        state_bytes=run.state_bytes,
        watermark_us=run.watermark.value_us if run.watermark.value_us > -FOREVER_US else None,
        newest_us=max(run.watermark.newest_us.values(), default=None),
        operators_s=_measure_operators(run, spent, spent_s),
        plan=run.config.plan,
    )
    log_batch(metrics)
    return results, metrics


def _measure_operators(
    run: EmbeddedRun, before: Mapping[tuple[str, int], float], batch_cpu_s: float
) -> dict[str, float]:
    """Return the CPU seconds of this batch by operator.

    Work of no single input goes under the operator's name alone. `batches` is the rest.
    """
    aliases = {each.number: f" {each.alias}" for each in run.config.inputs} | {ALL_INPUTS: ""}
    spent = {key: seconds - before.get(key, 0.0) for key, seconds in run.tally.timer.spent_s.items()}
    # Probes by origin are contained in the sum of all probes.
    by_origin = sum(
        seconds for (operator, number), seconds in spent.items() if operator == PROBE and number != ALL_INPUTS
    )
    rest = max(0.0, batch_cpu_s - (sum(spent.values()) - by_origin))
    return {**{operator + aliases[number]: seconds for (operator, number), seconds in spent.items()}, "batches": rest}
