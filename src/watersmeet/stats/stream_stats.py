"""Statistics of a stream for the cost model, as declared, measured or assumed, and their TOML file.

[streams.bids]
rate = 5000
row_bytes = 48
distinct = { auction = 100 }

[streams.bids.hot]
auction = 0.2

[streams.bids.predicates]
"bids.price > 100" = { selectivity = 0.1, cost_us = 2 }

An estimate is a number with its provenance.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from numbers import Real
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.algebra.schema import SourceSchema
from watersmeet.errors import InputError, listing
from watersmeet.files import read_toml_file

#: Largest number of a statistic. Products of a few larger ones would overflow.
LARGEST = 1e20
ASSUMED_ROWS_PER_S = 1000.0
ASSUMED_ROW_BYTES = 64.0
ASSUMED_DISTINCT = 200.0
ASSUMED_TEXT_BYTES = 16.0

#: Tolerance for shares and their reciprocals, which are rounded.
_ROUNDING = 1e-9


class Provenance(StrEnum):
    """Origin of a number. A number is only as good as the worst number it was computed from."""

    DECLARED = "declared"
    MEASURED = "measured"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A finite number of at least zero, its provenance and, if that is not enough, a note.

    >>> print(Estimate(5000, Provenance.MEASURED), Estimate(1 / 3, Provenance.ASSUMED), sep=", ")
    5000 (measured), 0.3333 (assumed)

    """

    value: float
    provenance: Provenance
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_number(self.value, "a statistic"))

    @property
    def is_assumed(self) -> bool:
        """Whether the number is a default or was computed from one."""
        return self.provenance is Provenance.ASSUMED

    def __str__(self) -> str:
        return f"{format_number(self.value)} ({self.provenance})"


def assume(value: float, note: str) -> Estimate:
    """Return a default; the note gives the reason."""
    return Estimate(value, Provenance.ASSUMED, note)


def derive(value: float, *inputs: Estimate, note: str = "") -> Estimate:
    """Return a number computed from others: derived, or assumed if any of them is.

    >>> rate, window_s = Estimate(50, Provenance.MEASURED), Estimate(100, Provenance.DECLARED)
    >>> print(derive(rate.value * window_s.value, rate, window_s))
    5000 (derived)
    >>> print(derive(1 / 200, assume(200, "no statistics")))
    0.005 (assumed)

    """
    is_assumed = any(each.is_assumed for each in inputs)
    return Estimate(value, Provenance.ASSUMED if is_assumed else Provenance.DERIVED, note)


def check_number(value: object, what: str) -> float:
    """Return the value as a float; refuse anything but a finite number of at least zero.

    >>> check_number(float("nan"), "a rate")
    Traceback (most recent call last):
    watersmeet.errors.InputError: a rate must be a finite number of at least zero, got nan

    """
    number = _as_float(value)
    if not 0 <= number <= LARGEST:
        raise InputError(f"{what} must be a finite number of at least zero, got {format_value(value)}")
    return number


def format_number(value: float) -> str:
    """Format a number: without decimals if whole or large, otherwise with four digits.

    >>> format_number(5000.0), format_number(12345.678), format_number(0.012345)
    ('5000', '12346', '0.01235')

    """
    return f"{value:.0f}" if value.is_integer() or value >= 1000 else f"{value:.4g}"


def format_value(value: object) -> str:
    """Format a value for an error message, truncated if long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _as_float(value: object) -> float:
    """Convert to float; NaN if the value is not a number. Booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # integers are unbounded
        return math.inf


@dataclass(frozen=True, slots=True)
class PredicateStats:
    """Declared facts about a predicate: the share of rows or combinations that pass, and seconds per evaluation."""

    selectivity: Estimate | None = None
    cost_s: Estimate | None = None

    def __post_init__(self) -> None:
        if self.selectivity is not None:
            _check_share(self.selectivity, "the selectivity of a predicate")


@dataclass(frozen=True, slots=True)
class StreamStats:
    """Statistics of one stream or relation. The mappings contain only columns with statistics.

    `distinct` counts the values of a column without nulls. `hot_share` is the share of the most frequent value among
    the rows that have a value: at least 1/distinct. `null_share` is the share of rows without a value. `rows` and
    `span_s` describe the measured rows, and `rows` a relation. `predicates` are facts about predicates of a query, by
    their text; of a predicate over two streams, they hold for the rows that arrive on this one.
    """

    rows_per_s: Estimate
    row_bytes: Estimate
    distinct: Mapping[str, Estimate] = field(default_factory=dict)
    hot_share: Mapping[str, Estimate] = field(default_factory=dict)
    span_s: Estimate | None = None
    rows: Estimate | None = None
    null_share: Mapping[str, Estimate] = field(default_factory=dict)
    predicates: Mapping[str, PredicateStats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in fields(self):
            if isinstance(value := getattr(self, part.name), Mapping):
                object.__setattr__(self, part.name, dict(value))  # a copy, so that the caller cannot change it
        _check_above_zero(self.rows_per_s, "the rate of a stream")
        _check_above_zero(self.row_bytes, "the size of a row")
        for column, count in self.distinct.items():
            _check_distinct(column, count)
        for column, share in self.hot_share.items():
            _check_hot(column, share, self.distinct.get(column))
        for column, share in self.null_share.items():
            _check_share(share, f'the share of nulls in column "{column}"')

    def __repr__(self) -> str:
        shown = {"rate": self.rows_per_s, "row_bytes": self.row_bytes}
        distinct = ", ".join(f"{column} {count}" for column, count in self.distinct.items())
        parts = [f"{name} {value}" for name, value in shown.items()] + ([f"distinct {distinct}"] if distinct else [])
        return f"StreamStats({', '.join(parts)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns with statistics."""
        return tuple(dict.fromkeys((*self.distinct, *self.hot_share, *self.null_share)))

    def check_columns(self, schema: SourceSchema) -> StreamStats:
        """Return these statistics; refuse a column that the source does not have."""
        unknown = [column for column in self.columns if column not in schema.fields.names]
        if unknown:
            raise InputError(
                f'the statistics of {schema.noun} "{schema.name}" name column "{unknown[0]}", which it does not have',
                hint=f"existing columns: {listing(schema.fields.names)}",
            )
        return self

    def with_assumptions(self, schema: SourceSchema, window_rows: float | None = None) -> StreamStats:
        """Return these statistics with defaults for missing ones, each marked and explained.

        A row's size comes from its Arrow types. A column has 200 distinct values, but no more than its type or the rows
        of the window allow. All values are equally frequent. Declared and measured statistics stay.
        """
        self.check_columns(schema)
        if window_rows is not None:
            check_number(window_rows, "the rows of a window")
        distinct = {
            each.name: self.distinct.get(each.name) or self._assumed_distinct(each, window_rows)
            for each in schema.fields
        }
        hot = {name: self.hot_share.get(name) or _assume_even_share(count) for name, count in distinct.items()}
        row_bytes = _assume_row_bytes_by_type(schema.fields) if self.row_bytes.is_assumed else self.row_bytes
        return replace(self, row_bytes=row_bytes, distinct=distinct, hot_share=hot)

    def _assumed_distinct(self, column: pa.Field[Any], window_rows: float | None) -> Estimate:
        reasons = {
            ASSUMED_DISTINCT: "no statistics: PostgreSQL's default",
            _count_type_values(column.type): f"no statistics: values of {column.type}",
        }
        if window_rows is not None:
            reasons[max(1.0, window_rows)] = "no statistics: no more values than rows in the window"
        value = min(reasons)
        hot = self.hot_share.get(column.name)
        if hot is not None and hot.value * value < 1:
            return assume(
                1 / hot.value,
                f"no statistics: a most frequent value of {format_number(hot.value)} allows no fewer values",
            )
        return assume(value, reasons[value])


def stats(
    rate: float | None = None,
    distinct: Mapping[str, float] | None = None,
    row_bytes: float | None = None,
    hot: Mapping[str, float] | None = None,
    rows: float | None = None,
    predicates: Mapping[str, float | Mapping[str, float]] | None = None,
) -> StreamStats:
    """Declare the statistics of a stream, to plan without data.

    `rate` is in rows per second and `row_bytes` is the size of a row. By column, `distinct` counts distinct values and
    `hot` is the share of the most frequent value. `rows` is the size of a relation. `predicates` gives, by the text of
    a predicate of the query, its `selectivity` and its `cost_us` per row; a number alone is the selectivity. A
    predicate that joins two streams may have another selectivity in the statistics of the other stream: each holds for
    rows that arrive on its own stream. Missing statistics are assumed, and marked so in every output.

    >>> bids = stats(rate=5000, distinct={"auction": 100}, hot={"auction": 0.2})
    >>> print(bids.rows_per_s, bids.distinct["auction"], bids.row_bytes, sep=", ")
    5000 (declared), 100 (declared), 64 (assumed)

    """
    return StreamStats(
        rows_per_s=assume_rate("no rate was declared") if rate is None else _declare_rate(rate),
        row_bytes=assume_row_bytes("no row size was declared")
        if row_bytes is None
        else _declare(row_bytes, "row_bytes"),
        distinct=_declare_columns(distinct, "distinct"),
        hot_share=_declare_columns(hot, "hot"),
        rows=None if rows is None else _declare(rows, "rows"),
        predicates=_declare_predicates(predicates),
    )


def assume_rate(why: str) -> Estimate:
    """Return the default rate, with the reason."""
    return assume(ASSUMED_ROWS_PER_S, f"{why}: 1000 rows/s, a round number to compare plans with")


def assume_row_bytes(why: str) -> Estimate:
    """Return the default row size, with the reason."""
    return assume(ASSUMED_ROW_BYTES, f"{why}: 64 bytes, eight numbers, until the columns are known")


def _declare_rate(rate: object) -> Estimate:
    found = _declare(rate, "rate")
    if found.value == 0:
        raise InputError(
            "a rate of 0 rows per second means no stream",
            hint="leave the stream out, or leave the rate out to have it assumed",
        )
    return found


def _declare(value: object, what: str) -> Estimate:
    return Estimate(check_number(value, what), Provenance.DECLARED)


def _declare_columns(values: object, what: str) -> dict[str, Estimate]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(
            f"{what} must map columns to numbers, got {format_value(values)}",
            hint=f'write it like {what}={{"item": 0.5}}',
        )
    for column in values:
        if not isinstance(column, str):
            raise InputError(f"{what} names columns by their name, got {format_value(column)}")
    return {column: _declare(value, f'{what} of column "{column}"') for column, value in values.items()}


def _declare_predicates(values: object) -> dict[str, PredicateStats]:
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(text, str) for text in values):
        raise InputError(
            f"predicates must map predicates to their selectivities, got {format_value(values)}",
            hint='write it like predicates={"price > 10": 0.2} or {"price > 10": {"selectivity": 0.2, "cost_us": 3}}',
        )
    return {text: _declare_predicate(text, facts) for text, facts in values.items()}


def _declare_predicate(text: str, facts: object) -> PredicateStats:
    if not isinstance(facts, Mapping):
        return PredicateStats(_declare(facts, f'the selectivity of "{text}"'))
    for key in facts:
        if key not in {"selectivity", "cost_us"}:
            raise InputError(
                f'the predicate "{text}" has no setting "{key}"', hint="existing settings: selectivity, cost_us"
            )
    share, cost_us = facts.get("selectivity"), facts.get("cost_us")
    return PredicateStats(
        None if share is None else _declare(share, f'the selectivity of "{text}"'),
        None
        if cost_us is None
        else Estimate(_declare(cost_us, f'the cost of "{text}"').value / 1e6, Provenance.DECLARED),
    )


def _check_above_zero(estimate: Estimate, what: str) -> None:
    if estimate.value <= 0:
        raise InputError(f"{what} must be above zero, got {format_number(estimate.value)}")


def _check_share(share: Estimate, what: str) -> None:
    if share.value > 1:
        raise InputError(f"{what} must be at most one, got {format_number(share.value)}")


def _check_distinct(column: str, count: Estimate) -> None:
    if count.value < 1:
        raise InputError(
            f'column "{column}" cannot have {format_number(count.value)} distinct values',
            hint="the least is 1; leave out unknown columns",
        )


def _check_hot(column: str, share: Estimate, count: Estimate | None) -> None:
    what = f'the share of the most frequent value of column "{column}"'
    _check_share(share, what)
    _check_above_zero(share, what)
    if count is not None and share.value * count.value < 1 - _ROUNDING:
        raise InputError(
            f"{what} cannot be {format_number(share.value)}: with {format_number(count.value)} distinct values"
            f" it is at least {format_number(1 / count.value)}"
        )


def _assume_even_share(count: Estimate) -> Estimate:
    return assume(1 / count.value, "no statistics: all values equally frequent")


def _count_type_values(kind: pa.DataType) -> float:
    if pa.types.is_null(kind):
        return 1.0
    if pa.types.is_boolean(kind):
        return 2.0
    return 2.0**kind.bit_width if pa.types.is_integer(kind) else float("inf")


def _assume_row_bytes_by_type(fields_: Iterable[pa.Field[Any]]) -> Estimate:
    total = sum(_type_bytes(each.type) for each in fields_)
    return assume(
        max(1.0, total), "no rows were read: the widths of the Arrow types, 16 bytes for each of varying width"
    )


def _type_bytes(kind: pa.DataType) -> float:
    if pa.types.is_dictionary(kind):
        return _type_bytes(kind.index_type)
    if pa.types.is_null(kind):
        return 0.0
    try:
        return float(kind.bit_width) / 8
    except ValueError:  # strings, binary and nested types have no fixed width
        return ASSUMED_TEXT_BYTES


_KEYS = ("rate", "distinct", "row_bytes", "hot", "rows", "predicates")


def read_stats(path: str | os.PathLike[str]) -> dict[str, StreamStats]:
    """Read the statistics of every stream in a TOML file, by stream name."""
    place = Path(path)
    content = read_toml_file(place, "statistics file")
    _check_keys(content, ("streams",), f"{place}")
    streams = _table(content.get("streams", {}), f"{place}: streams")
    if not streams:
        raise InputError(f"{place} declares no stream", hint="start a section with [streams.NAME]")
    return {name: parse_stats(values, f"{place}: streams.{name}") for name, values in streams.items()}


def parse_stats(values: object, where: str) -> StreamStats:
    """Return the statistics of a section: the options of `stats`."""
    known = _table(values, where)
    _check_keys(known, _KEYS, where)
    try:
        return stats(**known)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", hint=error.hint) from error


def _table(values: object, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(f"{where} must be a section, got {format_value(values)}")
    return values


def _check_keys(values: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            raise InputError(f'{where}: there is no setting "{key[:60]}"', hint=f"existing settings: {listing(known)}")
