"""Mutants of the join: each is a small mistake someone could make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tests.properties.mutants.mutant import Mutant, Original, Patch, single_patch_mutant
from watersmeet.algebra import query
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.time_bounds import close_bounds
from watersmeet.algebra.windows import FOREVER_US, RangeWindow, TumbleWindow
from watersmeet.metrics import Ledger
from watersmeet.operators import keys
from watersmeet.operators.expressions import compare, is_true
from watersmeet.operators.expressions.rows import call_kernel
from watersmeet.operators.window_join import admission, driver, matches, pane, row_counter, state
from watersmeet.operators.window_join import operator as join_operator
from watersmeet.operators.window_join.tactics import grouped_runs
from watersmeet.runtime import watermark
from watersmeet.runtime.embedded import run as embedded


def _range_longer_by(more_us: int) -> Callable[[Original], Original]:
    def make(own_length_us: Original) -> Original:
        return lambda window, every_us: max(
            0, own_length_us(window, every_us) + (more_us if isinstance(window, RangeWindow) else 0)
        )

    return make


def _bounds_of(change: Callable[[BoundQuery], list[list[int]]]) -> Callable[[Any], Any]:
    return lambda _: property(lambda bound: close_bounds(change(bound)))


def _pairs_longer_by(more_us: int) -> Callable[[BoundQuery], list[list[int]]]:
    """Return the bounds of the query with other pair lengths; it is frozen, so it is copied."""

    def change(bound: BoundQuery) -> list[list[int]]:
        pairs = tuple(replace(pair, length_us=max(0, pair.length_us + more_us)) for pair in bound.query.pairs)
        changed = object.__new__(BoundQuery)
        for name in ("sources", "outputs", "where", "group_by", "having"):
            object.__setattr__(changed, name, getattr(bound, name))
        object.__setattr__(changed, "query", replace(bound.query, pairs=pairs))
        return changed.given_bounds_us

    return change


def _ignore_direction(bound: BoundQuery) -> list[list[int]]:
    number = {source.alias: i for i, source in enumerate(bound.sources)}
    given_us = bound.given_bounds_us
    for pair in bound.query.pairs:
        first, second = number[pair.first], number[pair.second]
        given_us[second][first] = max(given_us[second][first], pair.length_us)
    return given_us


def _reverse_bounds(bound: BoundQuery) -> list[list[int]]:
    given_us = bound.given_bounds_us
    return [[given_us[j][i] for j in range(len(given_us))] for i in range(len(given_us))]


def _sliding_tumble(_: Original) -> Original:
    def ends(source: Any, times: Any) -> Any:
        return times + source.window.length_us - 1 if isinstance(source.window, TumbleWindow) else None

    return ends


def _tumble_one_longer(tumble_ends: Original) -> Original:
    def ends(source: Any, times: Any) -> Any:
        right = tumble_ends(source, times)
        return None if right is None else right + 1

    return ends


def _late_at_the_watermark(_: Original) -> Original:
    return lambda input_batch, watermark_us: input_batch.filter(input_batch.times > watermark_us)


def _keep_late_rows(_: Original) -> Original:
    return lambda input_batch, watermark_us: input_batch


def _without_rounding(_: Original) -> Original:
    return lambda mark, name: (
        mark.newest_us[name] - mark.streams[name].lateness_us if name in mark.newest_us else -FOREVER_US
    )


def _without_lateness(_: Original) -> Original:
    return lambda mark, name: mark.newest_us[name] // 1_000 * 1_000 if name in mark.newest_us else -FOREVER_US


def _largest_watermark(_: Original) -> Original:
    return lambda mark: max((mark._stream_watermark_us(name) for name in mark.streams), default=-FOREVER_US)


def _idle_too_soon(_: Original) -> Original:
    def is_idle(mark: Any, name: str) -> bool:
        idle_us = mark.streams[name].idle_us
        if idle_us is None or mark.began_us is None:
            return False
        return bool(max(mark.newest_us.values()) - mark.newest_us.get(name, mark.began_us) >= idle_us)

    return is_idle


def _moving_back(after: Original) -> Original:
    return lambda mark, seen_us: after(replace(mark, value_us=-FOREVER_US), seen_us)


def _last_row_dropped(timed: Original) -> Original:
    def drop_last_row(run: Any, name: str, table: pa.Table) -> Any:
        return timed(run, name, table.slice(0, max(0, table.num_rows - 1)) if table.num_rows > 1 else table)

    return drop_last_row


def _new_meets_new_twice(_: Original) -> Original:
    return lambda origin, ranks, before, with_new: dict(enumerate(with_new))


def _new_never_meets_new(_: Original) -> Original:
    return lambda origin, ranks, before, with_new: dict(enumerate(before))


def _nulls_filled(evaluate: Original) -> Original:
    """Treat NULL as a key like any other, at least among integers."""

    def fill_nulls(expr: Any, columns: Any, length: int) -> Any:
        values = evaluate(expr, columns, length)
        return values.fill_null(0) if pa.types.is_integer(values.type) else values

    return fill_nulls


def _expiry_against_now(with_pane: Original) -> Original:
    """Evict state by the newest time seen instead of by the times that can still arrive."""

    def expire_by_newest_time(kept: Any, added: Any, retention_us: int, future_us: int) -> Any:
        newest_us = max((int(each.times[-1]) for each in (*kept.panes, added) if len(each)), default=future_us)
        return with_pane(kept, added, retention_us, max(newest_us, future_us))

    return expire_by_newest_time


def _expiry_one_early(last_use_us: Original) -> Original:
    return lambda rows, retention_us: last_use_us(rows, retention_us) - 1


def _counted_after_where(counted: Original) -> Original:
    def count_passing_rows(source: Any, kept: Any, input_batch: Any) -> Any:
        if source.selection is not None:
            passes = is_true(
                source.selection,
                lambda column: input_batch.table.column(column.name).combine_chunks(),
                len(input_batch),
            )
            input_batch = input_batch.filter(passes)
        return counted(source, kept, input_batch)

    return count_passing_rows


def _ties_by_arrival(_: Original) -> Original:
    return lambda times, columns: np.argsort(times, kind="stable")


def _ties_by_the_last_column_first(stream_order: Original) -> Original:
    return lambda times, columns: stream_order(times, list(reversed(columns)))


def _one_partition(_: Original) -> Original:
    def numbers(counter: Any, table: pa.Table) -> Any:
        counter.partitions.setdefault((), 0)
        return np.zeros(table.num_rows, np.int64)

    return numbers


def _capacity_of(change: int) -> Callable[[Original], Original]:
    return lambda push: lambda numbers, first, capacity, *rest: push(numbers, first, max(1, capacity + change), *rest)


def _zeros_differ(_: Original) -> Original:
    return lambda values: values.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)


def _isolate_nan_keys(float_codes: Original) -> Original:
    def make_nan_codes_unique(values: Any) -> Any:
        codes = float_codes(values).copy()
        unknown = np.isnan(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
        codes[unknown] = id(codes) + np.arange(unknown.sum())
        return codes

    return make_nan_codes_unique


def _ieee_floats(_: Original) -> Original:
    return lambda op, left, right: call_kernel(compare._KERNELS[op], left, right)


def _valid_before_the_end(_: Original) -> Original:
    return lambda found: found.latest < found.end


def _skip_recheck(_: Original) -> Original:
    return lambda config, reach, check, found: np.ones(len(found), np.bool_)


def _everything_equal(_: Original) -> Original:
    return lambda left, right: np.ones(len(left), np.bool_)


def _one_bucket(_: Original) -> Original:
    return lambda data, offsets: np.zeros(len(offsets) - 1, np.int64)


def _not_waiting(release: Original) -> Original:
    return lambda source, kept, input_batch, future_us, waits: release(source, kept, input_batch, FOREVER_US, waits)


def _late_by_its_own_batch(take_step: Original) -> Original:
    def step_with_future_watermark(
        config: Any, kept: Any, input_batches: Any, watermark_us: int, future_us: int
    ) -> Any:
        return take_step(config, kept, input_batches, watermark_us if future_us == FOREVER_US else future_us, future_us)

    return step_with_future_watermark


def _never_ending(take_step: Original) -> Original:
    def step_without_end(config: Any, kept: Any, input_batches: Any, watermark_us: int, future_us: int) -> Any:
        return take_step(config, kept, input_batches, watermark_us, min(future_us, max(watermark_us, -FOREVER_US)))

    return step_without_end


def _counted_per_alias(account: Original) -> Original:
    def count_per_alias(run: Any, counters: Any, rows: Any, passed: Any) -> None:
        for i in run.config.stream_inputs:
            entry = run.ledger.setdefault(run.config.inputs[i].name, Ledger())
            entry.arrived += counters.arrived[i]
            entry.late += counters.late[i]
            entry.kept += counters.arrived[i] - counters.late[i]

    return count_per_alias


JOIN_MUTANTS = (
    single_patch_mutant("RANGE open at its far end", query, "_longest_validity_us", _range_longer_by(-1)),
    single_patch_mutant("RANGE one microsecond too long", query, "_longest_validity_us", _range_longer_by(1)),
    single_patch_mutant("pair windows open", BoundQuery, "bounds", _bounds_of(_pairs_longer_by(-1))),
    single_patch_mutant("pair windows one microsecond too long", BoundQuery, "bounds", _bounds_of(_pairs_longer_by(1))),
    single_patch_mutant("DWINDOW taken as undirected", BoundQuery, "bounds", _bounds_of(_ignore_direction)),
    single_patch_mutant("bounds taken the wrong way round", BoundQuery, "bounds", _bounds_of(_reverse_bounds)),
    single_patch_mutant("TUMBLE as a sliding window", admission, "_compute_row_ends", _sliding_tumble),
    single_patch_mutant("TUMBLE one microsecond too long", admission, "_compute_row_ends", _tumble_one_longer),
    single_patch_mutant("a row at the watermark is late", driver, "drop_late_rows", _late_at_the_watermark),
    single_patch_mutant("a batch makes its own rows late", join_operator, "iter_join_batch", _late_by_its_own_batch),
    single_patch_mutant("late rows are joined", driver, "drop_late_rows", _keep_late_rows),
    single_patch_mutant("the watermark is not rounded", watermark.Watermark, "_stream_watermark_us", _without_rounding),
    single_patch_mutant("lateness is forgotten", watermark.Watermark, "_stream_watermark_us", _without_lateness),
    single_patch_mutant(
        "the fastest stream sets the watermark", watermark.Watermark, "_minimum_us", _largest_watermark
    ),
    single_patch_mutant("idle exactly at the timeout", watermark.Watermark, "_is_idle", _idle_too_soon),
    single_patch_mutant("the watermark moves back", watermark.Watermark, "after_batch", _moving_back),
    single_patch_mutant(
        "the last row of a batch is dropped", embedded.EmbeddedRun, "_read_event_times", _last_row_dropped
    ),
    single_patch_mutant("new rows meet new rows twice", grouped_runs, "_reachable_panes", _new_meets_new_twice),
    single_patch_mutant("new rows never meet new rows", grouped_runs, "_reachable_panes", _new_never_meets_new),
    single_patch_mutant("NULL equals NULL", admission, "evaluate", _nulls_filled),
    single_patch_mutant("expiry against now", state.WindowState, "add_pane", _expiry_against_now),
    single_patch_mutant("expiry one microsecond early", pane.Pane, "last_use_us", _expiry_one_early),
    single_patch_mutant("ROWS counts only rows that pass WHERE", admission, "_count_and_release", _counted_after_where),
    single_patch_mutant("ties in arrival order", admission, "sort_stream_rows", _ties_by_arrival),
    single_patch_mutant("ties by the last column first", admission, "sort_stream_rows", _ties_by_the_last_column_first),
    single_patch_mutant("PARTITION BY ignored", row_counter.RowCounter, "_partition_numbers", _one_partition),
    single_patch_mutant("ROWS holds one row too many", row_counter, "push_rows", _capacity_of(1)),
    single_patch_mutant("ROWS holds one row too few", row_counter, "push_rows", _capacity_of(-1)),
    single_patch_mutant("rows are counted before the watermark", driver, "release_rows", _not_waiting),
    single_patch_mutant("what waits when the input ends is lost", join_operator, "iter_join_batch", _never_ending),
    single_patch_mutant("-0.0 is not 0.0 among keys", keys, "_encode_floats", _zeros_differ),
    single_patch_mutant("NaN keys meet nothing", keys, "_encode_floats", _isolate_nan_keys),
    single_patch_mutant("floats compare as IEEE 754 has it", compare, "_compare_floats", _ieee_floats),
    single_patch_mutant("a window ends one instant early", grouped_runs, "_are_valid_together", _valid_before_the_end),
    Mutant(
        "predicates over several sources are not checked",
        (Patch(matches, "predicates_hold", _skip_recheck), Patch(grouped_runs, "predicates_hold", _skip_recheck)),
    ),
    Mutant(
        "hashes are trusted",
        (Patch(keys, "hash_slices", _one_bucket), Patch(matches, "compare_keys", _everything_equal)),
    ),
    single_patch_mutant(
        "a self join counts its stream per alias", embedded.EmbeddedRun, "_update_ledger", _counted_per_alias
    ),
)
