"""Mutants of values.

They concern decimals as doubles, units of integer times, the order of nested values, and the scope of a JOIN's
condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tests.properties.mutants.mutant import Mutant, Original, Patch, single_patch_mutant
from watersmeet.operators import ordering
from watersmeet.operators.aggregate import functions
from watersmeet.operators.expressions import casts
from watersmeet.operators.window_join import admission
from watersmeet.runtime import planning
from watersmeet.runtime.embedded import run as embedded
from watersmeet.sources import times
from watersmeet.sql.clauses import QueryParser


def _arrows_cast(_: Original) -> Original:
    return lambda values: values.cast(pa.float64())


def _multiplied_by_a_negative_power(_: Original) -> Original:
    """Multiply by a negative power of ten, which is not a double, so the product is rounded twice."""
    return lambda values: pa.array(
        [None if each is None else int(each.scaleb(2)) * 0.01 for each in values.to_pylist()], pa.float64()
    )


def _unit_sizes(**wrong_ns: int) -> Callable[[dict[str, int]], dict[str, int]]:
    return lambda right_ns: {**right_ns, **wrong_ns}


def _units_forgotten(event_times_us: Original) -> Original:
    return lambda name, table, time, unit=None: event_times_us(name, table, time, None if unit is None else "us")


def _rounded_towards_zero(convert: Original) -> Original:
    def truncate_ticks(name: str, time: str, ticks: Any, units: str, tick_ns: int) -> Any:
        return np.trunc(ticks / 1_000).astype(np.int64) if tick_ns == 1 else convert(name, time, ticks, units, tick_ns)

    return truncate_ticks


def _unit_never_checked(_: Original) -> Original:
    return lambda *_: None


def _ignore_nested_order(_: Original) -> Original:
    return lambda column, codes, lengths: np.zeros(len(column), np.int64)


def _inner_nulls_last(sequence_order: Original) -> Original:
    return lambda column, codes, lengths: sequence_order(column, np.where(codes == 0, 2**40, codes), lengths)


def _outer_nulls_with_the_empty(sequence_order: Original) -> Original:
    def rank_null_as_empty(column: Any, codes: Any, lengths: Any) -> Any:
        return np.maximum(sequence_order(column, codes, lengths), 1)

    return rank_null_as_empty


def _shorter_first(sequence_order: Original) -> Original:
    def rank_shorter_first(column: Any, codes: Any, lengths: Any) -> Any:
        ranks = sequence_order(column, codes, lengths)
        return np.where(ranks == 0, 0, lengths * 2**20 + ranks)

    return rank_shorter_first


def _fields_from_the_last(_: Original) -> Original:
    def order_by_last_field(column: Any) -> Any:
        fields = [ordering.rank_values(field) for field in reversed(column.flatten())]
        return ordering._rank_sequences(
            column, np.stack(fields, axis=1).reshape(-1), np.full(len(column), len(fields), np.int64)
        )

    return order_by_last_field


def _only_first_elements(list_order: Original) -> Original:
    def order_by_first_elements(column: Any) -> Any:
        firsts = pa.array(
            [None if each is None else list(each[:1]) for each in column.to_pylist()], pa.list_(column.type.value_type)
        )
        return list_order(firsts)

    return order_by_first_elements


def _no_finer_times(_: Original) -> Original:
    return lambda source, table: []


def _every_source_visible(parse_condition: Original) -> Original:
    return lambda parser, visible: parse_condition(parser, visible=None)


#: Caught by generated cases.
VALUE_MUTANTS = (
    single_patch_mutant("decimals go through Arrow's cast", casts, "decimals_to_doubles", _arrows_cast),
    single_patch_mutant(
        "decimals are multiplied by a negative power of ten",
        casts,
        "decimals_to_doubles",
        _multiplied_by_a_negative_power,
    ),
    single_patch_mutant("integers beyond 2**53 count as exact doubles", casts, "_EXACT_INTEGER", lambda _: 2**62),
    single_patch_mutant("unit s read as ms", times, "TIME_UNITS_NS", _unit_sizes(s=1_000_000)),
    single_patch_mutant("unit ms read as us", times, "TIME_UNITS_NS", _unit_sizes(ms=1_000)),
    single_patch_mutant("unit ns read as us", times, "TIME_UNITS_NS", _unit_sizes(ns=1_000)),
    single_patch_mutant("the declared unit is forgotten", embedded, "extract_event_times_us", _units_forgotten),
    single_patch_mutant("nanoseconds round towards zero", times, "_scale_to_us", _rounded_towards_zero),
)

#: Caught by ties that a nested column decides.
TIE_MUTANTS = (
    single_patch_mutant("nested ties ignored", ordering, "_rank_sequences", _ignore_nested_order),
    single_patch_mutant("nulls inside nested values come last", ordering, "_rank_sequences", _inner_nulls_last),
    single_patch_mutant("a missing list is an empty one", ordering, "_rank_sequences", _outer_nulls_with_the_empty),
    single_patch_mutant("shorter lists come first", ordering, "_rank_sequences", _shorter_first),
    single_patch_mutant("structs compare from their last field", ordering, "_rank_structs", _fields_from_the_last),
    single_patch_mutant("lists compare by their first element only", ordering, "_rank_lists", _only_first_elements),
)

#: Caught by aggregations.
SUM_MUTANTS = (
    single_patch_mutant("AVG of decimals goes through Arrow's cast", functions, "decimals_to_doubles", _arrows_cast),
)

#: Caught by one example each, under the same name in the tests.
EXAMPLE_MUTANTS = (
    Mutant(
        "integers that look like seconds need no unit",
        (
            Patch(embedded, "refuse_undeclared_unit", _unit_never_checked),
            Patch(planning, "refuse_undeclared_unit", _unit_never_checked),
        ),
    ),
    single_patch_mutant(
        "times after 2038 do not look like seconds", times, "_LIKELY_S", lambda _: (631_152_000, 2**31)
    ),
    single_patch_mutant(
        "rows of one microsecond stay in arrival order", admission, "_nanosecond_times", _no_finer_times
    ),
    single_patch_mutant(
        "a JOIN's condition sees later sources", QueryParser, "_parse_join_condition", _every_source_visible
    ),
)
