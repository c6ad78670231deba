"""Rehearsal: run the chosen operator on available rows, to measure what formulas can only assume.

Keys of real streams come in bursts, so formulas that treat keys and times as independent are wrong about them. A
rehearsal runs the plan's own operator on contiguous slices of the rows, which keep bursts intact. Each slice is
preceded by a warm-up as long as the windows. A result belongs to the slice that contains its latest row. If all rows
fit the time limit, they are one slice, and the figures are exact. The state is that of the last rows: a run over these
rows ends with it.

The differences between slices give the range. The logarithm of a ratio is closer to a normal distribution than the
ratio itself, so a range is a factor in both directions.

CPU time is fitted as a fixed cost per batch plus a cost per row, because slices are smaller than real batches. One long
slice shows the cost per row.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import WatersmeetError
from watersmeet.operators.allocator import keep_freed_memory
from watersmeet.operators.build import build_operator
from watersmeet.operators.parallel import on_cores
from watersmeet.operators.protocol import BatchCounters, BatchResults, Clock, InputBatch, Operator, exhaust
from watersmeet.operators.shed.sampling import RoleSampler, build_samplers
from watersmeet.operators.window_join.admission import shed_rows
from watersmeet.operators.window_join.config import JoinInput
from watersmeet.operators.window_join.operator import WindowJoinOperator
from watersmeet.operators.window_join.work_counters import ALL_INPUTS, PROBE
from watersmeet.planner.ranges import CPU, ROWS_OUT, STATE_BYTES, STATE_ROWS, Forecast, Range
from watersmeet.units import format_count, format_duration, format_percent

#: Longest time that a rehearsal takes, in seconds, unless 5 % of the run is longer.
LIMIT_S = 0.2
#: Share of the run that a rehearsal may take.
LIMIT_SHARE = 0.05
#: Number of slices, if warm-ups leave room for them.
SLICES = 20
#: Fewest slices whose differences give a range.
MIN_SLICES = 4
#: A part of a rehearsal is stopped when the rehearsal has taken this many times its limit, and this many seconds.
MAX_OVERRUN, MIN_STOP_S = 4.0, 1.0
#: Number of consecutive batches that stand for the others.
MAX_ROUNDS = 20
#: Rows of a pilot slice. The pilot measures the CPU time of a batch and of a row, before slices are chosen.
PILOT_ROWS = 2_000
#: Quantile of Student's t distribution for a range of 95 %, by degrees of freedom.
_STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 6: 2.45, 9: 2.26, 14: 2.14, 19: 2.09, 39: 2.02}
#: Factor by which CPU time differs between two runs of the same work on a machine that is not idle.
CPU_NOISE = 1.4
#: Factor by which CPU time differs where batches are larger than the slices.
CPU_EXTRAPOLATION = 1.4
#: Factor by which the size of the state differs between instants.
STATE_NOISE = 1.05
#: Narrowest range of an extrapolated number of results, as a factor: a few slices may agree by chance.
MIN_FACTOR = 1.15
#: Factor by which exact figures differ, because a rate depends on where the stream begins and ends.
EXACT = 1.02

#: CPU seconds of a batch outside its operator: the host reads it, counts its rows and sets the watermark.
BATCH_S = 1e-4
#: CPU seconds that a run takes to begin and to end. Its code and data are not in the processor's caches yet.
RUN_S = 1.2e-3
#: Factor by which the number of results may differ from that of a single slice.
_ONE_SLICE = 2.0
#: Largest exponent of a range: more says nothing.
_LARGEST_EXPONENT = 10.0

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class AvailableRows:
    """Rows of all sources before the run, with the event times of the streams, in time order.

    `is_complete` means that a run reads these rows and no others. It reads them in one batch, except for the streams
    in `batch_rows`, which lists the number of rows in each of their batches.
    """

    tables: Mapping[str, pa.Table]
    times: Mapping[str, Int64s]
    lateness_us: Mapping[str, int]
    is_complete: bool = True
    batch_rows: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of the streams that arrive in batches

    replanning_s: float = 0.0  # CPU seconds that a run in batches spends on planning again, as its rows grow

    @property
    def rows(self) -> int:
        """Number of rows of all streams."""
        return sum(each.size for each in self.times.values())

    @property
    def span_s(self) -> float:
        """Seconds of event time from the first row to the last."""
        filled = [each for each in self.times.values() if each.size]
        return (max(int(each[-1]) for each in filled) - min(int(each[0]) for each in filled)) / 1e6 if filled else 0.0

    @classmethod
    def in_time_order(
        cls,
        tables: Mapping[str, pa.Table],
        times: Mapping[str, Int64s],
        lateness_us: Mapping[str, int],
        *,
        is_complete: bool = True,
        batch_rows: Mapping[str, Sequence[int]] = MappingProxyType({}),
        replanning_s: float = 0.0,
    ) -> AvailableRows:
        """Sort the rows of each stream by time, unless they are."""
        ordered, sorted_times = dict(tables), dict(times)
        for name, each in times.items():
            if each.size and np.any(each[1:] < each[:-1]):
                order = np.argsort(each, kind="stable")
                ordered[name], sorted_times[name] = tables[name].take(order), each[order]
        return cls(ordered, sorted_times, lateness_us, is_complete, batch_rows, replanning_s)

    def list_rounds(self) -> list[dict[str, tuple[int, int]]]:
        """Return the row numbers of each stream in each round of a run: the r-th batch of every stream that has one."""
        ends = {
            name: np.cumsum(self.batch_rows[name]).tolist() if name in self.batch_rows else [times.size]
            for name, times in self.times.items()
        }
        return [
            {name: ((0, *each)[number], each[number]) for name, each in ends.items() if number < len(each)}
            for number in range(max((len(each) for each in ends.values()), default=0))
        ]

    def between(self, bounds: Mapping[str, tuple[int, int]]) -> dict[str, InputBatch]:
        """Return the rows of each stream from one row number to another."""
        return {
            name: InputBatch(self.tables[name].slice(start, stop - start), self.times[name][start:stop])
            for name, (start, stop) in bounds.items()
        }


@dataclass(frozen=True, slots=True)
class RehearsedSlice:
    """Counts and CPU times of one slice; the state is that at its end."""

    rows: int
    results: int
    cpu_s: float
    operators_s: Mapping[str, float]
    state_rows: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Figures of a plan, measured on a share of the rows."""

    cpu_per_s: float
    operators: Mapping[str, float]  # CPU seconds per second: "ingest", "store", "probe", "emit" and "batches"
    rows_out_per_s: float
    state_rows: float
    state_bytes: float
    forecast: Forecast
    share: float
    slices: int
    took_s: float

    def describe(self) -> str:
        """Describe how much was rehearsed."""
        took = format_duration(self.took_s)
        if self.share >= 1:
            return f"rehearsed on all rows, {took}"
        return f"rehearsed on {format_percent(self.share)} of the rows: {format_count(self.slices)} slices, {took}"


def rehearse_plan(bound: BoundQuery, plan: Plan, rows: AvailableRows) -> Rehearsal | None:
    """Rehearse a plan on the available rows; None if they are too few, or if the query fails on them."""
    if rows.span_s <= 0 or any(source.schema.name not in rows.tables for source in bound.sources):
        return None
    try:
        stage = _RehearsalRun(bound, plan, rows)
        stage.warm_up()
        return stage.rehearse()
    except (WatersmeetError, _OutOfTimeError):
        return None  # the run reports the error


class _OutOfTimeError(Exception):
    """A part of a rehearsal takes far too long."""


class _RehearsalRun:
    """One rehearsal: the operator, its drop boxes, and the rows."""

    def __init__(self, bound: BoundQuery, plan: Plan, rows: AvailableRows) -> None:
        self.bound, self.rows = bound, rows
        self.operator: Operator[Any] = build_operator(bound, plan, lambda each: rows.tables[each.name])
        self.boxes = build_samplers(bound, plan)
        self.evaluates_batches = bound.is_aggregation and bound.query.every_us is None
        self.began, self.started, self.limit_s = time.perf_counter(), time.process_time(), math.inf
        # A run keeps its results, so it allocates memory all the time. The first use of memory takes CPU time.
        self.results: list[pa.RecordBatch] = []

    def warm_up(self) -> None:
        """Run a few rows, so that kernels are loaded before anything is measured."""
        keep_freed_memory()
        self._run(None, {name: (0, min(64, times.size)) for name, times in self.rows.times.items()})
        self.began, self.started, self.limit_s = time.perf_counter(), time.process_time(), LIMIT_S

    def _spent_s(self) -> float:
        """Return the CPU seconds of the rehearsal so far. Unlike wall time, they do not depend on other processes."""
        return time.process_time() - self.started

    def rehearse(self) -> Rehearsal | None:
        """Rehearse all rows if they fit the time limit, else slices; None if the rows are too few."""
        total, is_complete = self.rows.rows, self.rows.is_complete
        if is_complete and self.rows.batch_rows:
            return self._rehearse_rounds(self.rows.list_rounds())
        if not is_complete and 2 * MIN_SLICES * sum(self._count_warm_up()) > total:
            return None  # more rows will arrive, and these do not fill the windows
        pilot_rows = min(PILOT_ROWS, total // (2 * MIN_SLICES))
        is_small = is_complete and total <= MIN_SLICES * PILOT_ROWS
        if not is_small and next(self._run_slices(MIN_SLICES, pilot_rows), None) is not None:
            self.started = time.process_time()  # the first slice loads kernels that the warm-up did not need
        pilot = [] if is_small else list(self._run_slices(MIN_SLICES, pilot_rows))
        if not pilot:  # few rows, or warm-ups would read most of them
            return self._rehearse_parts() if is_complete else None
        fixed_s, row_s = self._fit_pilot(pilot)
        if fixed_s + total * row_s < LIMIT_S * 0.8 and is_complete:
            try:
                return self._rehearse_all()
            except _OutOfTimeError:
                self.started = time.process_time()  # a burst outside the first slices has most of the results
        return None if self.evaluates_batches else self._rehearse_slices(pilot, fixed_s, row_s)

    def _rehearse_slices(self, pilot: list[RehearsedSlice], fixed_s: float, row_s: float) -> Rehearsal:
        """Spend one half of the time on many slices, for results, and the other on a long one, for CPU time."""
        total = self.rows.rows
        self.limit_s = max(LIMIT_S, LIMIT_SHARE * total * row_s)
        limit_s = self.limit_s - (self._spent_s())
        warm_rows = sum(self._count_warm_up())
        for slices in (SLICES, SLICES // 2, MIN_SLICES):
            each_s = limit_s / 2 / slices - 2 * fixed_s - warm_rows * row_s
            slice_rows = min(int(each_s / row_s), total // slices) if row_s > 0 else 0
            found = list(self._run_slices(slices, slice_rows)) if slice_rows >= PILOT_ROWS else []
            if len(found) >= MIN_SLICES:
                break
        else:
            found = pilot
        long_rows = min(int(limit_s / 2 / row_s), total // 2) if row_s > 0 else 0
        has_time = self._spent_s() < self.limit_s and long_rows > PILOT_ROWS
        long = list(self._run_slices(1, long_rows)) if has_time else []
        start = self._measure_start(max(long_rows // 2, PILOT_ROWS)) if self.rows.is_complete else []
        return self._summarize(found, long, start)

    def _measure_start(self, rows: int) -> list[RehearsedSlice]:
        """Run a slice and one of twice its size with empty windows, as a run does whose rows are one batch.

        Such a run has few old rows, so its probe order may be one that is slow with full windows.
        """
        found = [*self._run_slices(1, rows, is_warm=False), *self._run_slices(1, 2 * rows, is_warm=False)]
        return found if len(found) == 2 and found[0].rows < found[1].rows else []

    def _rehearse_all(self) -> Rehearsal:
        """Run all rows like the run itself. Repeat a short run, and take the median CPU time."""
        bounds = {name: (0, times.size) for name, times in self.rows.times.items()}
        found = [self._run(None, bounds, ends=True)]
        while len(found) < 3 and (self._spent_s()) * (1 + 1 / len(found)) < LIMIT_S:
            self.results = []  # the memory of a run is no longer fresh when another run has ended
            found.append(self._run(None, bounds, ends=True))
        median, span_s = sorted(found, key=lambda each: each.cpu_s)[len(found) // 2], self.rows.span_s
        return self._build(
            median.cpu_s,
            median.operators_s,
            median.results,
            median,
            (CPU_NOISE, EXACT, STATE_NOISE),
            share=1.0,
            slices=1,
            span_s=span_s,
        )

    def _rehearse_parts(self) -> Rehearsal | None:
        """Rehearse all rows if a part of them shows that they fit the time limit; else the rows up to an instant.

        Windows are long compared with the rows, so there is no room for warm-ups. The parts double. Work grows by a
        power of the rows, which the last two parts show.
        """
        parts, total = list[RehearsedSlice](), self.rows.rows
        first_us = min(int(each[0]) for each in self.rows.times.values() if each.size)
        for share in (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2):
            until_us = first_us + int(share * self.rows.span_s * 1e6)
            bounds = {
                name: (0, int(np.searchsorted(times, until_us, side="right")))
                for name, times in self.rows.times.items()
            }
            if not all(stop for _, stop in bounds.values()):
                continue
            self.results = []
            try:
                parts.append(self._run(None, bounds, ends=True))
            except _OutOfTimeError:
                break
            spent_s = self._spent_s()
            all_s = parts[-1].cpu_s * (total / parts[-1].rows) ** _find_power(parts, lambda each: each.cpu_s)
            if spent_s + all_s < LIMIT_S:
                return self._rehearse_all()
            if spent_s + 3 * parts[-1].cpu_s > max(LIMIT_S, LIMIT_SHARE * all_s):
                break
        if not parts:
            return None
        longest = parts[-1]
        growth = total / longest.rows
        cpu_power = _find_power(parts, lambda each: each.cpu_s)
        power = _find_power(parts, lambda each: each.results)
        factors = (CPU_EXTRAPOLATION * growth**0.1, MIN_FACTOR * growth ** (0.5 / len(parts)), STATE_NOISE)
        scale = growth**cpu_power
        return self._build(
            longest.cpu_s * scale,
            {name: seconds * scale for name, seconds in longest.operators_s.items()},
            longest.results * growth**power,
            self._find_last_state(),
            factors,
            share=longest.rows / total,
            slices=1,
            span_s=self.rows.span_s,
        )

    def _rehearse_rounds(self, rounds: Sequence[Mapping[str, tuple[int, int]]]) -> Rehearsal | None:
        """Run the batches of a run: all of them if they fit the time limit, else groups of consecutive ones."""
        total, span_s = self.rows.rows, self.rows.span_s
        group = max(1, min(MAX_ROUNDS, len(rounds) // (2 * MIN_SLICES)))
        starts = np.linspace(0, max(0, len(rounds) - group), 2 * MIN_SLICES, dtype=np.int64)
        found = list[RehearsedSlice]()
        for start in dict.fromkeys(np.random.default_rng(group).permutation(starts).tolist()):
            try:
                found.append(self._run_rounds(rounds[start : start + group]))
            except _OutOfTimeError:
                break
            rows = sum(each.rows for each in found)
            spent_s = self._spent_s()
            if spent_s * (1 + total / max(rows, 1)) < LIMIT_S:
                self.results = []  # the memory of the run is no longer fresh
                found = [self._run_rounds(rounds)]
                break
            if spent_s > max(LIMIT_S, LIMIT_SHARE * sum(each.cpu_s for each in found) * total / max(rows, 1)):
                break
        rows = sum(each.rows for each in found)
        if not rows:
            return None
        growth, is_whole = total / rows, len(found) == 1 and rows == total
        operators = dict[str, float]()
        for each in found:
            for name, seconds in each.operators_s.items():
                operators[name] = operators.get(name, 0.0) + seconds * growth
        if self.rows.replanning_s:
            operators["plan"] = self.rows.replanning_s
        return self._build(
            sum(operators.values()),
            operators,
            sum(each.results for each in found) * growth,
            _average_state(found),
            (CPU_NOISE, EXACT, STATE_NOISE)
            if is_whole
            else (CPU_EXTRAPOLATION, _spread_between(found, 1 / growth), _spread_of_state(found)),
            share=1 / growth,
            slices=len(found),
            span_s=span_s,
        )

    def _run_rounds(self, rounds: Sequence[Mapping[str, tuple[int, int]]]) -> RehearsedSlice:
        """Run consecutive batches after a warm-up; the state is the mean of the later ones."""
        first_us = min(
            (int(self.rows.times[name][start]) for name, (start, stop) in rounds[0].items() if stop > start),
            default=-FOREVER_US,
        )
        starts = {name: (rounds[0].get(name, (times.size, 0))[0],) * 2 for name, times in self.rows.times.items()}
        warm_up = self.rows.between(self._find_warm_up(starts, first_us))
        newest = {name: int(each.times[-1]) if len(each) else -FOREVER_US for name, each in warm_up.items()}
        state, watermark_us = self.operator.empty(), -FOREVER_US
        if any(len(each) for each in warm_up.values()):
            watermark_us = self._find_watermark(newest)
            state = self._store(warm_up, Clock(-FOREVER_US, watermark_us, max(newest.values())))
        rows = results = 0
        cpu_s, operators, held = 0.0, dict[str, float](), list[tuple[int, int]]()
        for bounds in rounds:
            batches = self.rows.between(bounds)
            newest |= {name: max(newest[name], int(each.times[-1])) for name, each in batches.items() if len(each)}
            next_us = max(watermark_us, self._find_watermark(newest))
            started = time.process_time()
            found, state, operators_s = self._advance(
                state, batches, Clock(watermark_us, next_us, max(newest.values()))
            )
            spent_s = time.process_time() - started + BATCH_S
            operators_s["batches"] = max(0.0, spent_s - sum(operators_s.values()))
            for name, seconds in operators_s.items():
                operators[name] = operators.get(name, 0.0) + seconds
            rows, results, cpu_s = rows + sum(len(each) for each in batches.values()), results + found, cpu_s + spent_s
            held.append((state.rows, state.nbytes))
            watermark_us = next_us
        steady = held[len(held) // 2 :]
        means = [round(sum(each[figure] for each in steady) / len(steady)) for figure in (0, 1)]
        return RehearsedSlice(rows, results, cpu_s, operators, means[0], means[1])

    def _find_last_state(self) -> RehearsedSlice:
        """Return the state after the last rows."""
        bounds = self._find_last_rows()
        ends_us = max(int(times[-1]) for times in self.rows.times.values() if times.size)
        state = self._store(self.rows.between(bounds), Clock(-FOREVER_US, ends_us, ends_us))
        return RehearsedSlice(0, 0, 0.0, {}, state.rows, state.nbytes)

    def _summarize(
        self, found: list[RehearsedSlice], long: list[RehearsedSlice], start: list[RehearsedSlice]
    ) -> Rehearsal:
        """Extrapolate from slices to all rows. CPU time is a fixed part and a part per row."""
        seen, total = sum(each.rows for each in found), self.rows.rows
        results, share = sum(each.results for each in found), seen / total
        rate, factor = results / seen, _spread_between(found, share)
        short_s, short_rows = sum(each.cpu_s for each in found) / len(found), seen / len(found)
        row_s, timed = short_s / short_rows, found
        if long and long[0].rows > 2 * short_rows:
            slope_s = (long[0].cpu_s - short_s) / (long[0].rows - short_rows)
            row_s = min(max(slope_s, long[0].cpu_s / long[0].rows / 2), row_s)
        cpu_s = short_s + (total - short_rows) * row_s
        started_s = _extrapolate_start(start, total)
        if started_s < cpu_s:  # full windows cost more than the run has
            cpu_s, timed = started_s, start
        measured_s = sum(each.cpu_s for each in timed)
        operators: dict[str, float] = {}
        for each in timed:
            for name, seconds in each.operators_s.items():
                operators[name] = operators.get(name, 0.0) + seconds * cpu_s / measured_s
        last = self._find_last_state()
        factors = (CPU_EXTRAPOLATION, factor, STATE_NOISE)
        return self._build(
            cpu_s,
            operators,
            rate * total,
            last,
            factors,
            share=share,
            slices=len(found),
            span_s=self.rows.span_s,
        )

    def _build(
        self,
        cpu_s: float,
        operators_s: Mapping[str, float],
        results: float,
        state: RehearsedSlice,
        factors: tuple[float, float, float],
        *,
        share: float,
        slices: int,
        span_s: float,
    ) -> Rehearsal:
        cpu, rows_out, held = factors
        ranges = {
            CPU: Range.around(cpu_s / span_s, cpu),
            ROWS_OUT: Range.around(results / span_s, rows_out),
            STATE_ROWS: Range.around(state.state_rows, held),
            STATE_BYTES: Range.around(state.state_bytes, held),
        }
        if not results and share < 1:
            # No result in the slices: with a probability of 95 %, less than three are expected there.
            ranges[ROWS_OUT] = Range(0.0, 3 / share / span_s)
        took_s = time.perf_counter() - self.began
        plain = Forecast(MappingProxyType(ranges), MappingProxyType({}))
        found = Rehearsal(
            cpu_s / span_s,
            MappingProxyType({name: seconds / span_s for name, seconds in operators_s.items()}),
            results / span_s,
            state.state_rows,
            state.state_bytes,
            plain,
            share,
            slices,
            took_s,
        )
        forecast = Forecast(plain.ranges, MappingProxyType(dict.fromkeys(ranges, found.describe())))
        return replace(found, forecast=forecast)

    def _fit_pilot(self, pilot: list[RehearsedSlice]) -> tuple[float, float]:
        """Return the CPU seconds per batch, measured on a single row per stream, and per row."""
        bounds = {name: (0, min(1, times.size)) for name, times in self.rows.times.items()}
        fixed_s = min(self._run(None, bounds).cpu_s for _ in range(3))
        rows = sum(each.rows for each in pilot)
        spent = sum(each.cpu_s for each in pilot)
        return fixed_s, max(spent - len(pilot) * fixed_s, 0.2 * spent) / max(rows, 1)

    def _run_slices(self, slices: int, slice_rows: int, *, is_warm: bool = True) -> Iterator[RehearsedSlice]:
        """Run contiguous slices, one from each of equal parts of the rows. Yield nothing if warm-ups take too much."""
        total, longest = self.rows.rows, max(self.rows.times.values(), key=lambda each: each.size)
        if slices * ((sum(self._count_warm_up()) if is_warm else 0) + slice_rows) > total:
            return
        width = max(1, round(slice_rows * longest.size / total))
        part, rng = longest.size / slices, np.random.default_rng(slices)
        for done, number in enumerate(rng.permutation(slices).tolist()):
            if done >= 2 and self._spent_s() > self.limit_s:
                return
            start = int(number * part + rng.random() * max(0.0, part - width))
            from_us, before_us = int(longest[start]), int(longest[min(start + width, longest.size - 1)])
            if before_us <= from_us:
                before_us = from_us + 1
            bounds = {
                name: (int(at[0]), int(at[1]))
                for name, times in self.rows.times.items()
                for at in [np.searchsorted(times, [from_us, before_us])]
            }
            try:
                found = self._run(self._find_warm_up(bounds, from_us) if is_warm else None, bounds, ends=not is_warm)
            except _OutOfTimeError:
                return
            yield found

    def _find_last_rows(self) -> dict[str, tuple[int, int]]:
        """Return the rows that are in the windows when the rows end."""
        ends_us = max(int(times[-1]) for times in self.rows.times.values() if times.size)
        return self._find_warm_up({name: (times.size, times.size) for name, times in self.rows.times.items()}, ends_us)

    def _count_warm_up(self) -> list[int]:
        """Count the rows of a warm-up, in the middle of the rows."""
        longest = max(self.rows.times.values(), key=lambda each: each.size)
        middle_us = int(longest[longest.size // 2])
        bounds = {name: (int(np.searchsorted(times, middle_us)), times.size) for name, times in self.rows.times.items()}
        return [stop - start for start, stop in self._find_warm_up(bounds, middle_us).values()]

    def _find_warm_up(self, bounds: Mapping[str, tuple[int, int]], from_us: int) -> dict[str, tuple[int, int]]:
        """Return the rows before a slice that its rows can still meet."""
        config, found = self.operator.config, dict[str, tuple[int, int]]()
        for i in config.stream_inputs:
            source = config.inputs[i]
            start, times = bounds[source.name][0], self.rows.times[source.name]
            first = self._find_first_row(source, times, start, from_us)
            found[source.name] = (min(first, found.get(source.name, (start, start))[0]), start)
        return found

    def _find_first_row(self, source: JoinInput, times: Int64s, start: int, from_us: int) -> int:
        if source.row_limit is not None:
            # A bounded warm-up: partitions that are rarer than this begin empty.
            partitions = 16 if source.row_limit.partition_by else 1
            return max(0, start - source.row_limit.count * partitions)
        reach_us = source.retention_us
        if self.bound.is_aggregation and source.window is not None:
            every_us = self.bound.query.every_us
            filled_us = source.window.mean_filled_us(FOREVER_US, every_us) + (every_us or 0)
            reach_us = max(reach_us, int(min(filled_us, FOREVER_US)))
        return 0 if reach_us >= FOREVER_US else int(np.searchsorted(times, from_us - reach_us))

    def _run(
        self,
        warm_up: Mapping[str, tuple[int, int]] | None,
        bounds: Mapping[str, tuple[int, int]],
        *,
        ends: bool = False,
    ) -> RehearsedSlice:
        """Run the warm-up and then the slice; measure the slice alone. With `ends`, the input ends after it."""
        state, watermark_us = self.operator.empty(), -FOREVER_US
        if warm_up is not None and any(stop > start for start, stop in warm_up.values()):
            batches = self.rows.between(warm_up)
            after_us = max((int(each.times[-1]) for each in batches.values() if len(each)), default=-FOREVER_US)
            state = self._store(batches, Clock(watermark_us, after_us, after_us))
            watermark_us = after_us
        batches = self.rows.between(bounds)
        newest_us = max((int(each.times[-1]) for each in batches.values() if len(each)), default=watermark_us)
        last = {name: int(each.times[-1]) if len(each) else -FOREVER_US for name, each in batches.items()}
        next_us = newest_us + 1 if warm_up is not None else max(watermark_us, self._find_watermark(last))
        started = time.process_time()
        results, state, operators_s = self._advance(state, batches, Clock(watermark_us, next_us, newest_us))
        held = state.rows, state.nbytes
        if ends:
            more, state, last_s = self._advance(state, {}, Clock(next_us, FOREVER_US, newest_us))
            results += more
            operators_s = {name: seconds + last_s.get(name, 0.0) for name, seconds in operators_s.items()} | {
                name: seconds for name, seconds in last_s.items() if name not in operators_s
            }
        cpu_s = time.process_time() - started + (RUN_S if ends else 0.0)
        operators_s["batches"] = max(0.0, cpu_s - sum(operators_s.values()))
        return RehearsedSlice(sum(len(each) for each in batches.values()), results, cpu_s, operators_s, *held)

    def _find_watermark(self, newest: Mapping[str, int]) -> int:
        marks = [
            each // 1_000 * 1_000 - self.rows.lateness_us.get(name, 0) if each > -FOREVER_US else -FOREVER_US
            for name, each in newest.items()
        ]
        return min(marks, default=-FOREVER_US)

    def _advance(
        self, state: Any, batches: Mapping[str, InputBatch], clock: Clock
    ) -> tuple[int, Any, dict[str, float]]:
        """Advance the operator; return the number of results, the state and the CPU seconds by operator."""
        config = self.operator.config
        kept = {name: self._shed(name, batch, clock.watermark_us) for name, batch in batches.items()}
        inputs = {i: kept[config.inputs[i].name] for i in config.stream_inputs if config.inputs[i].name in kept}
        with on_cores(os.cpu_count() or 1):
            results, (state, counters) = exhaust(self._stop_in_time(self.operator.advance(state, inputs, clock)))
        operators: dict[str, float] = {}
        for (name, number), seconds in counters.tally.timer.spent_s.items():
            if name != PROBE or number == ALL_INPUTS:  # probes by origin are contained in the sum of all probes
                operators[name] = operators.get(name, 0.0) + seconds
        self.results += results
        return sum(each.num_rows for each in results), state, operators

    def _stop_in_time(self, batches: BatchResults[Any]) -> BatchResults[Any]:
        """Yield results until far too much time has passed: a burst may have more results than all other rows."""
        while True:
            try:
                batch = next(batches)
            except StopIteration as ended:
                return cast("tuple[Any, BatchCounters]", ended.value)
            if self._spent_s() > max(MAX_OVERRUN * self.limit_s, MIN_STOP_S):
                raise _OutOfTimeError
            yield batch

    def _store(self, batches: Mapping[str, InputBatch], clock: Clock) -> Any:
        """Return the state after a warm-up. Joins need no results of it; an aggregation counts them."""
        if not isinstance(self.operator, WindowJoinOperator):
            held = self.results
            state = self._advance(self.operator.empty(), batches, clock)[1]
            self.results = held
            return state
        config = self.operator.config
        kept = {name: self._shed(name, batch, clock.watermark_us) for name, batch in batches.items()}
        inputs = {i: kept[config.inputs[i].name] for i in config.stream_inputs if config.inputs[i].name in kept}
        return self.operator.store(inputs, clock)

    def _shed(self, name: str, batch: InputBatch, watermark_us: int) -> InputBatch:
        box = self.boxes.get(name)
        if box is None or (isinstance(box, RoleSampler) and box.counts_all):
            return batch
        return shed_rows(batch, box, watermark_us)


def _extrapolate_start(start: Sequence[RehearsedSlice], rows: int) -> float:
    """Extrapolate the CPU seconds of a short and a long slice to a number of rows; infinite without slices."""
    if not start:
        return math.inf
    short, long = start
    mean_s = long.cpu_s / long.rows
    row_s = min(max((long.cpu_s - short.cpu_s) / (long.rows - short.rows), mean_s / 2), 2 * mean_s)
    return long.cpu_s + (rows - long.rows) * row_s


def _spread_between(found: Sequence[RehearsedSlice], share: float) -> float:
    """Return the factor by which the number of results of all rows may differ from that of these slices."""
    if len(found) < 2:
        return _ONE_SLICE
    seen, results = sum(each.rows for each in found), sum(each.results for each in found)
    rate = results / max(seen, 1)
    spread = math.sqrt(len(found) / (len(found) - 1) * sum((each.results - rate * each.rows) ** 2 for each in found))
    unseen = math.sqrt(max(0.0, 1 - share))
    relative = max(spread / max(results, 1), 1 / math.sqrt(max(results, 1))) * unseen
    return max(math.exp(min(_t_quantile(len(found) - 1) * relative, _LARGEST_EXPONENT)), MIN_FACTOR)


def _average_state(found: Sequence[RehearsedSlice]) -> RehearsedSlice:
    """Return the mean state of some slices."""
    rows = round(sum(each.state_rows for each in found) / len(found))
    return RehearsedSlice(0, 0, 0.0, {}, rows, round(sum(each.state_bytes for each in found) / len(found)))


def _spread_of_state(found: Sequence[RehearsedSlice]) -> float:
    """Return the factor by which the mean state of all batches may differ from that of these groups."""
    sizes = np.array([each.state_rows for each in found], np.float64)
    if sizes.size < 2 or not sizes.mean():
        return _ONE_SLICE
    error = float(sizes.std(ddof=1) / math.sqrt(sizes.size) / sizes.mean())
    return max(STATE_NOISE, math.exp(min(_t_quantile(sizes.size - 1) * error, _LARGEST_EXPONENT)))


def _find_power(parts: Sequence[RehearsedSlice], figure: Callable[[RehearsedSlice], float]) -> float:
    """Return the power of the rows by which a figure grows, between 1 and 2, from the last two parts."""
    if len(parts) < 2 or not figure(parts[-2]) or parts[-1].rows <= parts[-2].rows:
        return 1.0
    growth = math.log(max(figure(parts[-1]), 1e-12) / figure(parts[-2])) / math.log(parts[-1].rows / parts[-2].rows)
    return min(2.0, max(1.0, growth))


def _t_quantile(degrees: int) -> float:
    """Return the quantile of Student's t distribution for a range of 95 %.

    >>> _t_quantile(3), _t_quantile(19), _t_quantile(100)
    (3.18, 2.09, 2.02)
    """
    return _STUDENT[max((each for each in _STUDENT if each <= max(degrees, 1)), default=1)]
