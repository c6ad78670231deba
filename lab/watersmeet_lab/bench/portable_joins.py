"""Declarative window joins, from which the query text of each system is generated, so that all return the same rows.

Columns are written `alias.column`. Expressions use only syntax that every system reads alike. Event times are in the
column `ts` of each stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from watersmeet.errors import InputError

_ALIAS = re.compile(r"\b([a-z])\.")


@dataclass(frozen=True, slots=True)
class PairBound:
    """`low_us <= other.ts - one.ts <= high_us`."""

    one: str
    other: str
    low_us: int
    high_us: int


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Rows pairwise at most `length_us` apart: the same sliding window on every stream."""

    length_us: int

    def bounds(self, aliases: str) -> tuple[PairBound, ...]:
        return tuple(PairBound(one, other, -self.length_us, self.length_us) for one, other in combinations(aliases, 2))


@dataclass(frozen=True, slots=True)
class LookBackWindow:
    """Rows of the first stream, each with the rows of every other stream that precede it by at most a given time.

    `lengths_us` has that time for each of the other streams.
    """

    lengths_us: Mapping[str, int]

    def bounds(self, aliases: str) -> tuple[PairBound, ...]:
        return tuple(PairBound(aliases[0], other, -self.lengths_us[other], 0) for other in aliases[1:])


@dataclass(frozen=True, slots=True)
class TumblingTile:
    """Rows in the same tumbling window.

    No benchmark row falls on the instant between two windows, where systems differ.
    """

    length_us: int

    def bounds(self, aliases: str) -> tuple[PairBound, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class ValueBand:
    """`ABS(one - other) < width` on columns of non-negative integers, for joins without an equality."""

    one: str
    other: str
    width: int


@dataclass(frozen=True, slots=True)
class JoinAggregate:
    """AVG, COUNT, MAX or SUM of a column, once per tumbling window."""

    function: str
    column: str
    name: str


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Conditions that become decidable when the rows of `alias` join those of the sources before it."""

    alias: str
    stream: str
    equal: tuple[tuple[str, str], ...]
    where: tuple[str, ...]
    bounds: tuple[PairBound, ...]


@dataclass(frozen=True, slots=True)
class PortableJoin:
    """Sources by alias (one letter each), joined in that order by systems that join two at a time.

    With aggregates, `outputs` are the group keys, the windows are tiles, and each row carries the end of its tile as
    `as_of`.

    >>> sources = {"a": "ask", "b": "bid"}
    >>> join = PortableJoin(sources, SlidingWindow(5_000_000), (("a.k", "k"),), equal=(("a.k", "b.k"),))
    >>> join.to_watersmeet_sql()
    'SELECT a.k AS k FROM ask [RANGE 5000000 MICROSECONDS] AS a, bid [RANGE 5000000 MICROSECONDS] AS b WHERE a.k = b.k'
    """

    sources: Mapping[str, str]
    windows: SlidingWindow | LookBackWindow | TumblingTile
    outputs: tuple[tuple[str, str], ...]
    equal: tuple[tuple[str, str], ...] = ()
    where: tuple[str, ...] = ()
    band: ValueBand | None = None
    aggregates: tuple[JoinAggregate, ...] = ()

    def __post_init__(self) -> None:
        if self.aggregates and not isinstance(self.windows, TumblingTile):
            raise InputError("aggregates need tumbling windows: the systems agree on no other kind")

    @property
    def aliases(self) -> str:
        return "".join(self.sources)

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.sources.values()))

    def steps(self) -> tuple[JoinStep, ...]:
        return tuple(self._step(self.aliases[: number + 1]) for number in range(len(self.sources)))

    def to_watersmeet_sql(self) -> str:
        """Return the join in Watersmeet's query language."""
        sources = ", ".join(
            f"{stream} {self._window_clause()} AS {alias}".replace("  ", " ") for alias, stream in self.sources.items()
        )
        text = f"SELECT {', '.join(self._select_items())} FROM {sources}{self._pair_constraints()}"
        conditions = [*(f"{one} = {other}" for one, other in self.equal), *self._band_conditions(), *self.where]
        text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if self.aggregates and self.outputs:
            text += f" GROUP BY {', '.join(expression for expression, _ in self.outputs)}"
        return text + (
            f" EVERY {self.windows.length_us} MICROSECONDS"
            if self.aggregates and isinstance(self.windows, TumblingTile)
            else ""
        )

    def to_duckdb_sql(self) -> str:
        """Return the join over finite tables in DuckDB's SQL; a window is a band on the times of pairs."""
        first, *others = self.steps()
        joins = "".join(
            f" JOIN {step.stream} AS {step.alias} ON {' AND '.join(self._duckdb_conditions(step))}" for step in others
        )
        text = f"FROM {first.stream} AS {first.alias}{joins}"
        text += f" WHERE {' AND '.join(first.where)}" if first.where else ""
        if not self.aggregates or not isinstance(self.windows, TumblingTile):
            return f"SELECT {', '.join(self._select_items())} {text}"
        end = f"({first.alias}.ts // {self.windows.length_us} + 1) * {self.windows.length_us} AS as_of"
        return f"SELECT {end}, {', '.join(self._select_items())} {text} GROUP BY ALL"

    def _step(self, known: str) -> JoinStep:
        before, alias = known[:-1], known[-1]
        equal = tuple(pair for pair in self.equal if _last_alias(" ".join(pair), known) == alias)
        where = tuple(text for text in self.where if _last_alias(text, known) == alias)
        bounds = tuple(
            each
            for each in self.windows.bounds(self.aliases)
            if {each.one, each.other} <= {*known} and alias in (each.one, each.other)
        )
        return JoinStep(alias, self.sources[alias], equal, where, bounds if before else ())

    def _duckdb_conditions(self, step: JoinStep) -> list[str]:
        conditions = [f"{one} = {other}" for one, other in step.equal]
        if isinstance(self.windows, TumblingTile):
            conditions.append(
                f"{self.aliases[0]}.ts // {self.windows.length_us} = {step.alias}.ts // {self.windows.length_us}"
            )
        between = (
            f"{each.other}.ts BETWEEN {each.one}.ts + {each.low_us} AND {each.one}.ts + {each.high_us}"
            for each in step.bounds
        )
        # DuckDB's inequality join sorts by the first two inequalities, and values are more selective than times.
        return [*conditions, *self._band_conditions(), *step.where, *between]

    def _select_items(self) -> list[str]:
        items = [f"{expression} AS {name}" for expression, name in self.outputs]
        return items + [f"{each.function}({each.column}) AS {each.name}" for each in self.aggregates]

    def _band_conditions(self) -> list[str]:
        """Write the band as two comparisons, which an index over the values can serve."""
        if self.band is None:
            return []
        one, other, width = self.band.one, self.band.other, self.band.width
        return [f"{one} < {other} + {width}", f"{one} > {other} - {width}"]

    def _window_clause(self) -> str:
        """Return the window of every source.

        With aggregates, the evaluation at the end of a tile looks back one tile length, so the window is a RANGE.
        Without aggregates, a probing row looks back to the start of its tile, so the window is a TUMBLE.
        """
        if isinstance(self.windows, LookBackWindow):
            return ""
        kind = "TUMBLE" if isinstance(self.windows, TumblingTile) and not self.aggregates else "RANGE"
        return f"[{kind} {self.windows.length_us} MICROSECONDS]"

    def _pair_constraints(self) -> str:
        if not isinstance(self.windows, LookBackWindow):
            return ""
        pairs = (
            f"DWINDOW ({other}, {self.aliases[0]}) = {us} MICROSECONDS" for other, us in self.windows.lengths_us.items()
        )
        return f" {' AND '.join(pairs)}"


def _last_alias(text: str, known: str) -> str | None:
    """Return the last of the `known` aliases in the text; None if the text names other aliases."""
    aliases = set(_ALIAS.findall(text))
    return max(aliases, key=known.index) if aliases and aliases <= set(known) else None
