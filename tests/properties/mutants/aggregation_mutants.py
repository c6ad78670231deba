"""Mutants of the aggregation: each is a small mistake someone could make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.properties.mutants.mutant import Original, single_patch_mutant
from watersmeet.operators import build
from watersmeet.operators.aggregate import (
    codes,
    config,
    encoding,
    functions,
    input_window,
    result_set,
    step,
    tables,
    window_rows,
)
from watersmeet.operators.aggregate import window_changes as events
from watersmeet.operators.window_join import row_counter


def _ends_later_by(more_us: int) -> Callable[[Original], Original]:
    return lambda ends_of: lambda *args: ends_of(*args) + more_us


def _keep_leaving_rows(happening: Original) -> Original:
    def drop_leaving_rows(*args: Any) -> Any:
        found = happening(*args)
        return replace(found, leaving=found.leaving.take(slice(0, 0)), leaving_at=found.leaving_at[:0])

    return drop_leaving_rows


def _enters_once_more(happening: Original) -> Original:
    def repeat_entering_rows(*args: Any) -> Any:
        found = happening(*args)
        twice = np.repeat(np.arange(found.entering_at.size), 2)
        return replace(found, entering=found.entering.take(twice), entering_at=found.entering_at[twice])

    return repeat_entering_rows


def _instants_from_the_end(_: Original) -> Original:
    return lambda times_us, every_us: times_us // every_us * every_us + every_us


def _group_keys_ignore_null(intern: Original) -> Original:
    def fill_null_keys(self: Any, columns: Any, rows: int) -> Any:
        filled = [column.fill_null(column[0]) if len(column) and column[0].is_valid else column for column in columns]
        return intern(self, filled, rows)

    return fill_null_keys


def _without_identity_of(place: int) -> Callable[[Original], Original]:
    """Merge early entries that differ in a word that matters later."""

    def make(identity: Original) -> Original:
        def zero_one_word(self: Any, rows: Any) -> Any:
            words = identity(self, rows).copy()
            words[:, place] = 0
            return words

        return zero_one_word

    return make


def _always_changed(_: Original) -> Original:
    return lambda left, right: np.ones(len(left), np.bool_)


def _never_changed(_: Original) -> Original:
    return lambda left, right: np.zeros(len(left), np.bool_)


def _no_nulls_counted(numbers_of: Original) -> Original:
    def count_nulls_too(kind: Any, values: Any) -> Any:
        found = numbers_of(kind, values)
        found.ints[:, 0] = 1
        return found

    return count_nulls_too


def _wrapped_sums(_: Original) -> Original:
    return lambda wrapped, approx: np.zeros(wrapped.size, np.bool_)


def _smallest_for_largest(order: Original) -> Original:
    """Reverse the order of all values."""
    return lambda self, found: ~order(self, found)


def _not_taken_back(undone: Original) -> Original:
    return lambda self: replace(
        undone(self), entering=self.entering.take(slice(0, 0)), entering_at=self.entering_at[:0]
    )


def _evaluated_at(shift_us: int) -> Callable[[Original], Original]:
    def make(take_step: Original) -> Original:
        def step_at_shifted_time(
            settings: Any, state: Any, input_batches: Any, watermark_us: int, future_us: int, newest_us: int
        ) -> Any:
            shifted_us = future_us + (shift_us if abs(future_us) < 2**61 else 0)
            return take_step(settings, state, input_batches, watermark_us, shifted_us, newest_us)

        return step_at_shifted_time

    return make


def _having_ignored(make_config: Original) -> Original:
    def drop_having(*args: Any, **knobs: Any) -> Any:
        found = make_config(*args, **knobs)
        return replace(found, group_outputs=replace(found.group_outputs, having=None))

    return drop_having


def _pairs_longer(pair_bounds_us: Original) -> Original:
    def lengthen_pair_bounds(bound: Any) -> Any:
        found = pair_bounds_us(bound)
        return None if found is None else tuple(tuple(each + 1 for each in row) for row in found)

    return lengthen_pair_bounds


def _capacity_of(change: int) -> Callable[[Original], Original]:
    return lambda push: lambda numbers, first, capacity, *rest: push(numbers, first, max(1, capacity + change), *rest)


AGGREGATION_MUTANTS = (
    single_patch_mutant("windows end one microsecond early", encoding, "row_ends_us", _ends_later_by(-1)),
    single_patch_mutant("windows end one microsecond late", encoding, "row_ends_us", _ends_later_by(1)),
    single_patch_mutant("rows never leave", input_window.TimeWindow, "find_changes", _keep_leaving_rows),
    single_patch_mutant("rows enter twice", input_window.TimeWindow, "find_changes", _enters_once_more),
    single_patch_mutant(
        "a row on a multiple waits for the next", window_rows, "_round_up_to_multiple", _instants_from_the_end
    ),
    single_patch_mutant("NULL is a group key like the first", codes.Attributes, "number_rows", _group_keys_ignore_null),
    single_patch_mutant(
        "early groups forget a join key", tables.JoinTables, "_identity_words", _without_identity_of(0)
    ),
    single_patch_mutant(
        "early groups forget the group keys", tables.JoinTables, "_identity_words", _without_identity_of(-1)
    ),
    single_patch_mutant("unchanged groups are shown again", result_set, "_find_unequal_values", _always_changed),
    single_patch_mutant("changed groups are not shown", result_set, "_find_unequal_values", _never_changed),
    single_patch_mutant("COUNT(x) counts nulls", encoding, "encode_measure", _no_nulls_counted),
    single_patch_mutant("sums wrap", functions, "_has_wrapped", _wrapped_sums),
    single_patch_mutant("MIN and MAX are each other", codes.OrderCodes, "rank", _smallest_for_largest),
    single_patch_mutant(
        "what is shown for now is not taken back", input_window.WindowChanges, "invert", _not_taken_back
    ),
    single_patch_mutant("evaluation a microsecond before the watermark", step, "step", _evaluated_at(-1)),
    single_patch_mutant("HAVING is ignored", build, "build_aggregate_config", _having_ignored),
    single_patch_mutant("pair windows a microsecond too long", config, "compute_pair_bounds_us", _pairs_longer),
    single_patch_mutant("ROWS holds one row too many", row_counter, "push_rows", _capacity_of(1)),
    single_patch_mutant(
        "residual predicates are not checked",
        events,
        "all_true",
        lambda _: lambda predicates, columns, size: np.ones(size, np.bool_),
    ),
    single_patch_mutant(
        "instants are one too few",
        step,
        "find_evaluation_instants",
        lambda original: lambda *args: original(*args)[:-1],
    ),
)
