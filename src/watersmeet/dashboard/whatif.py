"""Answers to what-if questions: plan the same query again with other rates, windows, memory or processors.

A question is a number per control. The controls come from the parsed query and its statistics, so a question can name
nothing else. Windows are replaced in the parsed tree, and the planner runs as it does for `explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import Query, Source
from watersmeet.api import Budget, explain
from watersmeet.errors import InputError, listing
from watersmeet.planner.explain import Explanation
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.stats.stream_stats import Estimate, Provenance, StreamStats

#: Range of a slider: from its value divided by this factor to its value times this factor.
_RANGE_FACTOR = 100.0
#: Upper end of the slider of a window of length 0, because no factor leads away from zero.
_MAX_FROM_ZERO_S = 60.0
_MIN_MEMORY, _MAX_MEMORY = 1e6, 1e12
_MAX_PROCESSORS = 256.0


@dataclass(frozen=True, slots=True)
class Control:
    """Number that the page may change: its current value and its range.

    An `unlimited` control means no limit at its largest value.
    """

    key: str
    label: str
    unit: str
    value: float
    least: float
    most: float
    is_integer: bool = False
    unlimited: bool = False
    linear: bool = False

    def check_value(self, value: object) -> float:
        """Return a value within the range; refuse any other."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.least <= value <= self.most:
            raise InputError(f"{self.label} goes from {self.least:g} to {self.most:g} {self.unit}")
        return float(round(value)) if self.is_integer else float(value)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class WhatIf:
    """Query with its sources and its explanation: the starting point of every question."""

    query: Query
    sources: Mapping[str, Stream | Relation | StreamStats]
    base: Explanation
    plan: Plan | None = None

    @cached_property
    def baseline(self) -> Explanation:
        """Answer with every control unchanged. Other answers are compared with it: both use the same statistics."""
        return self.answer({})

    @property
    def controls(self) -> list[Control]:
        return [
            *self._rates(),
            *_window_controls(self.query),
            *_pair_controls(self.query),
            *_budget_controls(self.base.budget),
        ]

    def answer(self, question: Mapping[str, object]) -> Explanation:
        """Explain the query with these values. Controls that the question does not name stay unchanged."""
        known = {control.key: control for control in self.controls}
        unknown = [key for key in question if key not in known]
        if unknown:
            raise InputError(f'there is no control "{unknown[0][:60]}"', hint=f"controls: {listing(list(known))}")
        values = {key: known[key].check_value(value) for key, value in question.items()}
        stats = {name: _with_rate(each, values.get(f"rate {name}")) for name, each in self.base.stats.items()}
        return explain(
            _with_windows(self.query, values),
            self.sources,
            stats=stats,
            budget=_budget_with(self.base.budget, values),
            plan=self.plan,
            engine=self.base.engine,
        )

    def _rates(self) -> list[Control]:
        streams = dict.fromkeys(self.base.config.inputs[i].name for i in self.base.config.stream_inputs)
        rates = {name: self.base.stats[name].rows_per_s.value for name in streams}
        return [
            Control(f"rate {name}", f"rate of {name}", "rows/s", rate, rate / _RANGE_FACTOR, rate * _RANGE_FACTOR)
            for name, rate in rates.items()
        ]


def _with_rate(known: StreamStats, rate: float | None) -> StreamStats:
    return (
        known
        if rate is None
        else replace(known, rows_per_s=Estimate(rate, Provenance.DECLARED, "set on the dashboard"))
    )


def _window_controls(query: Query) -> list[Control]:
    found = []
    for source in query.sources:
        key = f"window {source.alias}"
        if source.window is None or source.window.size is None:
            continue
        if source.window.row_limit is not None:
            found.append(_rows_control(key, f"rows in the window of {source.alias}", source.window.size))
        else:
            found.append(_length_control(key, f"window of {source.alias}", source.window.size))
    return found


def _pair_controls(query: Query) -> list[Control]:
    found = [
        _length_control(
            f"pair {number}", f"{pair.first} {'then' if pair.directed else 'and'} {pair.second} within", pair.length_us
        )
        for number, pair in enumerate(query.pairs)
    ]
    return [
        *(
            [_length_control("all pairs", "all pairs within", query.all_pairs_us)]
            if query.all_pairs_us is not None
            else []
        ),
        *found,
    ]


def _length_control(key: str, label: str, length_us: int) -> Control:
    seconds = length_us / 1e6
    if not seconds:
        return Control(key, label, "s", 0.0, 0.0, _MAX_FROM_ZERO_S, linear=True)
    return Control(key, label, "s", seconds, max(seconds / _RANGE_FACTOR, 1e-6), seconds * _RANGE_FACTOR)


def _rows_control(key: str, label: str, rows: int) -> Control:
    return Control(key, label, "rows", rows, 1, min(rows * _RANGE_FACTOR, 2.0**31 - 1), is_integer=True)


def _budget_controls(budget: Budget) -> list[Control]:
    memory = budget.memory_bytes
    return [
        Control(
            "processors",
            "processors",
            "",
            budget.processors,
            min(0.01, budget.processors),
            max(_MAX_PROCESSORS, budget.processors),
        ),
        Control("headroom", "fraction of CPU to keep free", "", budget.headroom, 0.0, 0.95, linear=True),
        Control(
            "memory",
            "memory for state",
            "bytes",
            _MAX_MEMORY if memory is None else memory,
            min(_MIN_MEMORY, memory or _MIN_MEMORY),
            max(_MAX_MEMORY, memory or 0.0),
            unlimited=True,
        ),
    ]


def _budget_with(budget: Budget, values: Mapping[str, float]) -> Budget:
    memory = values.get("memory", budget.memory_bytes)
    return Budget(
        processors=values.get("processors", budget.processors),
        headroom=values.get("headroom", budget.headroom),
        memory_bytes=None if memory is None or memory >= _MAX_MEMORY else memory,
    )


def _with_windows(query: Query, values: Mapping[str, float]) -> Query:
    pairs = tuple(
        replace(pair, length_us=_to_us(values[f"pair {number}"])) if f"pair {number}" in values else pair
        for number, pair in enumerate(query.pairs)
    )
    all_pairs_us = _to_us(values["all pairs"]) if "all pairs" in values else query.all_pairs_us
    sources = tuple(_with_window(source, values.get(f"window {source.alias}")) for source in query.sources)
    return replace(query, sources=sources, pairs=pairs, all_pairs_us=all_pairs_us, text=None)


def _with_window(source: Source, value: float | None) -> Source:
    if value is None or source.window is None:
        return source
    size = _to_us(value) if source.window.row_limit is None else max(1, round(value))
    return replace(source, window=source.window.resize(size))


def _to_us(seconds: float) -> int:
    """Convert seconds to whole microseconds, rounded to three digits for display. Only 0 becomes 0.

    >>> _to_us(12.3456), _to_us(1e-9), _to_us(0)
    (12300000, 1, 0)
    """
    return max(1, round(float(f"{seconds:.3g}") * 1e6)) if seconds else 0
