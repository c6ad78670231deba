"""Mutants of predicate tests.

They change which rows are evaluated, which errors count, and when a predicate is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.properties.mutants.mutant import Mutant, Original, Patch, single_patch_mutant
from watersmeet.errors import QueryError
from watersmeet.operators.expressions import EarlyTest, all_true, evaluate, evaluate_or_null, is_true
from watersmeet.operators.window_join import admission, config, driver, matches, pane
from watersmeet.operators.window_join.tactics import grouped_runs, joined_rows, loop_stages, w_joins

#: Every module that tests partial matches.
EARLY = (grouped_runs, joined_rows, loop_stages, w_joins)


def _columns(rows: Any) -> Callable[[Any], Any]:
    return lambda column: rows.table.column(column.name).combine_chunks()


def _keys_of_all_rows(pane_of: Original) -> Original:
    def evaluate_all_keys(source: Any, rows: Any) -> Any:
        for _, key in source.keys:
            evaluate(key, _columns(rows), rows.times.size)
        return pane_of(source, rows)

    return evaluate_all_keys


def _operands_of_all_rows(pane_of: Original) -> Original:
    def evaluate_all_operands(source: Any, rows: Any) -> Any:
        for operand in source.operands:
            evaluate(operand, _columns(rows), rows.times.size)
        return pane_of(source, rows)

    return evaluate_all_operands


def _without_operands(pane_of: Original) -> Original:
    return lambda source, rows: pane_of(replace(source, operands=()), rows)


def _from_left_to_right(_: Original) -> Original:
    """Stop at the first conjunct that raises, whatever the later ones say."""

    def test_left_to_right(predicates: Any, columns: Any, length: int) -> Any:
        keep = np.ones(length, np.bool_)
        for predicate in predicates:
            keep &= is_true(predicate, columns, length)
        return keep

    return test_left_to_right


def _errors_are_false(_: Original) -> Original:
    def treat_errors_as_false(predicates: Any, columns: Any, length: int) -> Any:
        keep = np.ones(length, np.bool_)
        for predicate in predicates:
            values, errs = evaluate_or_null(predicate, columns, length)
            keep &= np.array([value is True for value in values.to_pylist()], np.bool_) & ~errs
        return keep

    return treat_errors_as_false


def _dropped_early(_: Original) -> Original:
    return lambda predicates, columns, length: EarlyTest(_errors_are_false(all_true)(predicates, columns, length), ())


def _raised_early(_: Original) -> Original:
    return lambda predicates, columns, length: EarlyTest(all_true(predicates, columns, length), ())


def _kept_and_forgotten(maybe_true: Original) -> Original:
    def forget_raised_predicates(predicates: Any, columns: Any, length: int) -> Any:
        return replace(maybe_true(predicates, columns, length), raised=())

    return forget_raised_predicates


def _all_survive(_: Original) -> Original:
    return lambda tests, found, level: found


def _last_dropped(survivors: Original) -> Original:
    """Drop the last survivor of a piece."""

    def drop_last_survivor(tests: Any, found: Any, level: int) -> Any:
        for rows in survivors(tests, found, level):
            if rows.shape[1] > 1:
                yield np.ascontiguousarray(rows[:, :-1])

    return drop_last_survivor


def _last_untested(_: Original) -> Original:
    return lambda tests, origin: tuple(tests.raised)


def _sides_swapped(thetas: Original) -> Original:
    def swap_sides(config: Any, live: Any) -> Any:
        right = thetas(config, live)
        return right._replace(left=right.right, left_at=right.right_at, right=right.left, right_at=right.left_at)

    return swap_sides


def _nulls_compare(ranged: Original) -> Original:
    def mark_all_valid(rows: Any, expr: Any) -> Any:
        codes, valid = ranged(rows, expr)
        return codes, np.ones_like(valid)

    return mark_all_valid


def _unbound_tests(_: Original) -> Original:
    """Test no predicate between the loops of a W-join, and treat whole matches as tested."""
    return lambda scans, grown, depth: grown


def _own_after_others(split: Original) -> Original:
    """Test predicates of one source together with those over several."""

    def share_own_predicates(bound: Any) -> Any:
        local, shared = split(bound)
        return [() for _ in local], (*(part for parts in local for part in parts), *shared)

    return share_own_predicates


def _error_is_no_error(evaluate_outputs: Original) -> Original:
    def null_on_error(expr: Any, columns: Any, length: int) -> Any:
        try:
            return evaluate_outputs(expr, columns, length)
        except QueryError:
            return evaluate_or_null(expr, columns, length)[0]

    return null_on_error


def _everywhere(mistake: str, owners: tuple[Any, ...], attribute: str, broken: Callable[[Any], Any]) -> Mutant:
    return Mutant(mistake, tuple(Patch(owner, attribute, broken) for owner in owners))


PREDICATE_MUTANTS = (
    single_patch_mutant(
        "keys are computed for rows that fail their own predicate", driver, "build_pane", _keys_of_all_rows
    ),
    single_patch_mutant(
        "operands are computed for rows that fail their own predicate", driver, "build_pane", _operands_of_all_rows
    ),
    single_patch_mutant(
        "operands are computed only for rows that meet others", driver, "build_pane", _without_operands
    ),
    single_patch_mutant("own predicates are tested from left to right", admission, "all_true", _from_left_to_right),
    single_patch_mutant("a row on which an own predicate raises is left out", admission, "all_true", _errors_are_false),
    _everywhere("whole matches are tested from left to right", (matches, joined_rows), "all_true", _from_left_to_right),
    _everywhere(
        "whole matches on which a predicate raises are left out", (matches, joined_rows), "all_true", _errors_are_false
    ),
    _everywhere("partial matches on which a predicate raises are dropped", EARLY, "maybe_true", _dropped_early),
    _everywhere("a predicate that raises on a partial match stops the query", EARLY, "maybe_true", _raised_early),
    _everywhere("whole matches are not tested again", EARLY, "maybe_true", _kept_and_forgotten),
    single_patch_mutant(
        "partial matches that fail go on", loop_stages.StagedPredicates, "filter_matches", _all_survive
    ),
    single_patch_mutant(
        "the last survivor of a piece is lost", loop_stages.StagedPredicates, "filter_matches", _last_dropped
    ),
    single_patch_mutant(
        "predicates that the innermost loop binds are not tested",
        loop_stages.StagedPredicates,
        "final_predicates",
        _last_untested,
    ),
    single_patch_mutant("W-joins compare the wrong way round", w_joins, "_encode_thetas", _sides_swapped),
    single_patch_mutant("NULL compares as a number", pane.Pane, "range_codes", _nulls_compare),
    single_patch_mutant("W-joins test no predicate between loops", w_joins.StagedScans, "_test", _unbound_tests),
    single_patch_mutant(
        "own predicates are tested with those over several sources", config, "_split_by_source", _own_after_others
    ),
    single_patch_mutant("an output that raises is NULL", driver, "evaluate", _error_is_no_error),
)
