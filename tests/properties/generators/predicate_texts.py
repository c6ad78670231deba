"""Predicates as query text: equalities, theta conditions, filters on one source, and mixtures.

Every source has the columns `k` and `m` (keys of the case's two families), `v` (small integers), `x` (floats), `s`
(text), and `p` (prices: decimals or doubles).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.properties.generators.cases import QueryPiece

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
THETA_OPERATORS = ("<", "<=", ">", ">=", "<>")

#: Filters of one source; {a} is its alias, {n} a small number.
LOCAL_FILTERS = (
    "{a}.v > {n}",
    "{a}.v <= {n}",
    "{a}.v IN ({n}, 2, 0)",
    "{a}.v NOT IN ({n}, 1)",
    "{a}.v IN (1, NULL, {n})",
    "{a}.v BETWEEN -1 AND {n}",
    "NOT {a}.v BETWEEN {n} AND 1",
    "{a}.x > 0",
    "{a}.x >= {n}.5",
    "{a}.x = {a}.x",
    "{a}.x IS NOT NULL",
    "{a}.k IS NOT NULL",
    "{a}.s IS NULL",
    "NOT ({a}.v > {n} AND {a}.x < 1.5)",
    "{a}.s LIKE 'a%'",
    "{a}.s NOT LIKE '_'",
    "{a}.s LIKE '%b'",
    "{a}.s <> ''",
    "{a}.s < 'b'",
    "CASE WHEN {a}.v > {n} THEN {a}.x > 0 ELSE {a}.s IS NOT NULL END",
    "CASE WHEN {a}.v = 0 THEN 'zero' WHEN {a}.v > 0 THEN 'more' END = 'more'",
    "{a}.v + 1 > {n}",
    "{a}.v * 2 - 1 <> {n}",
    "-{a}.v < {n}",
    "{a}.v % 2 = 0",
    "ABS({a}.v) < 3",
    "COALESCE({a}.v, {n}) >= {n}",
    "NULLIF({a}.v, {n}) IS NULL",
    "LENGTH({a}.s) > 0",
    "UPPER({a}.s) = 'A'",
    "CAST({a}.v AS DOUBLE) > {n}.5",
    "{a}.v IS NULL OR {a}.v > {n}",
    "{a}.p = 1.15",
    "{a}.p > 4.35",
    "{a}.p <= 8.2",
    "{a}.p IN (1.15, 4.35, {n})",
    "{a}.p BETWEEN 1.15 AND 4.35",
    "CASE WHEN {a}.v > {n} THEN {a}.p ELSE 1.15 END = 1.15",
)

#: Filters of one source that DuckDB reads differently.
LOCAL_FILTERS_UNLIKE_DUCKDB = (
    r"{a}.s LIKE 'a\%'",
    "{a}.v / {n} > 1",
    "{a}.v % {n} = 1",
    "{a}.x % 1 >= 0",
    "{a}.x / 2 >= {n}",
    "SUBSTRING({a}.s, 1, 1) = 'a'",
    "SUBSTRING({a}.s, -1) <> 'b'",
    "CONCAT({a}.s, 'b') = 'ab'",
    "TRIM({a}.s) = {a}.s",
    "REPLACE({a}.s, 'a', 'b') <> {a}.s",
    "STARTS_WITH({a}.s, 'a')",
    "GREATEST({a}.v, {n}) > {n}",
    "LEAST({a}.x, 0.0) < {n}",
    "ROUND({a}.x) = 2",
    "FLOOR({a}.x) <= {n}",
    "CAST({a}.s AS BIGINT) IS NULL",
    "NOT ({a}.s LIKE '%a%' AND {a}.v IS NULL)",
)

#: Equalities of two sources that are not a plain column pair, so the key is an expression.
EXPRESSION_KEYS = (
    "{a}.v + 1 = {b}.v",
    "{a}.v = {b}.v * 2",
    "ABS({a}.v) = ABS({b}.v)",
    "{a}.v % 2 = {b}.v % 2",
    "LOWER({a}.s) = LOWER({b}.s)",
    "COALESCE({a}.v, 0) = COALESCE({b}.v, 0)",
    "{a}.v - {b}.v = 1",
    "CASE WHEN {a}.v > 0 THEN 1 ELSE 0 END = {b}.v",
    "{a}.v = {b}.x",
    "LENGTH({a}.s) = {b}.v",
    "{a}.s = {b}.s",
    "{a}.x = {b}.x",
    "{a}.v = {b}.v",
    "{a}.p = {b}.p",
    "{a}.p * 1.0 = {b}.p",
)

#: Predicates over two sources without a mandatory equality.
MIXED_PREDICATES = (
    "({a}.v = 1 OR {b}.v = 2)",
    "({a}.k = {b}.k OR {a}.v > {b}.v)",
    "({a}.v = {b}.v OR {a}.v IS NULL)",
    "NOT ({a}.v = {b}.v)",
    "NOT ({a}.v < {b}.v OR {b}.x > 1)",
    "{a}.v + {b}.v > 2",
    "{a}.v - {b}.v BETWEEN -1 AND 1",
    "{a}.v IN ({b}.v, 1)",
    "{a}.v BETWEEN {b}.v AND {b}.v + 2",
    "CASE WHEN {a}.v = {b}.v THEN TRUE WHEN {a}.x > {b}.x THEN {b}.v > 0 ELSE FALSE END",
    "({a}.k IS NULL OR {b}.k IS NULL)",
    "({a}.k IS NULL AND {b}.k IS NULL OR {a}.k = {b}.k)",
    "({a}.v = {b}.v AND {a}.x IS NULL OR {a}.v <> {b}.v AND {b}.x > 0)",
    "{a}.id <> {b}.id",
    "{a}.id < {b}.id",
    "{a}.p BETWEEN {b}.p AND 4.35",
    "COALESCE({a}.p, 1.15) >= {b}.p",
)

#: Three sources at once.
TRIPLE_PREDICATES = (
    "{a}.v + {b}.v = {c}.v",
    "{b}.v BETWEEN {a}.v AND {c}.v",
    "({a}.v = {b}.v OR {b}.v = {c}.v)",
    "{a}.v + {b}.v + {c}.v > 2",
)

#: Two sources' times. All of them are counts of microseconds, or all of them are dates and timestamps.
COUNTED_TIMES = (
    "{a}.ts <= {b}.ts",
    "{a}.ts <> {b}.ts",
    "{a}.ts - {b}.ts <= {n}",
    "{a}.ts + {n} > {b}.ts",
)
CALENDAR_TIMES = (
    "{a}.ts <= {b}.ts",
    "{a}.ts = {b}.ts",
    "{a}.ts - {b}.ts <= INTERVAL {n} {unit}",
    "{a}.ts + INTERVAL {n} {unit} > {b}.ts",
)

#: One source's times.
CALENDAR_FILTERS = (
    "SECOND({a}.ts) < 30",
    "YEAR({a}.ts) >= 1970",
    "{a}.ts > TIMESTAMP '1970-01-01 00:00:00'",
    "CAST({a}.ts AS DATE) <= DATE '1970-01-01'",
    "EXTRACT(HOUR FROM {a}.ts) = 0",
)


@dataclass(frozen=True, slots=True)
class TimePredicates:
    """Predicates on times: the streams that have them, the unit, and whether they are dates or integers."""

    streams: Sequence[str]
    unit: str
    of_calendar: bool

    def choose(self, rng: Random) -> list[QueryPiece]:
        if len(self.streams) > 1 and rng.random() < 0.7:
            a, b = rng.sample(self.streams, 2)
            text = rng.choice(CALENDAR_TIMES if self.of_calendar else COUNTED_TIMES)
            return [QueryPiece(text.format(a=a, b=b, n=rng.randrange(1, 4), unit=self.unit), (a, b), portable=False)]
        if not self.of_calendar:
            return []
        alias = rng.choice(self.streams)
        return [QueryPiece(rng.choice(CALENDAR_FILTERS).format(a=alias), (alias,), portable=False)]


def choose_predicates(
    rng: Random, aliases: Sequence[str], portable_keys: bool, times: TimePredicates | None, common_share: float
) -> tuple[QueryPiece, ...]:
    """Choose a WHERE clause: how the sources join, then filters and mixtures, in any order."""
    shape = _common_key if rng.random() < common_share else rng.choice(_JOIN_SHAPES)
    pieces = shape(rng, aliases, portable_keys) if len(aliases) > 1 else []
    pieces += [_local(rng, aliases) for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2)[: 9 - len(aliases)]))]
    if len(aliases) > 1 and rng.random() < 0.25:
        pieces.append(_pair(rng, MIXED_PREDICATES, aliases, portable_keys))
    if len(aliases) > 2 and rng.random() < 0.15:
        a, b, c = rng.sample(aliases, 3)
        pieces.append(QueryPiece(rng.choice(TRIPLE_PREDICATES).format(a=a, b=b, c=c), (a, b, c)))
    if times is not None and rng.random() < 0.15:
        pieces += times.choose(rng)
    if rng.random() < 0.1:
        rng.shuffle(pieces)
    return tuple(pieces)


def _common_key(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    """Join all sources on one attribute: a chain or a star, with the sides in either order."""
    pairs = _tree(rng, aliases)
    return [_equality(rng, "k", pair, portable) for pair in pairs]


def _attribute_per_pair(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    return [_equality(rng, rng.choice("kmvp"), pair, portable) for pair in _tree(rng, aliases)]


def _two_attributes(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    return [
        _equality(rng, name, pair, portable) for pair in _tree(rng, aliases) for name in rng.choice(("kv", "km", "vk"))
    ]


def _expression_keys(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    return [_pair(rng, EXPRESSION_KEYS, pair, portable) for pair in _tree(rng, aliases)]


def _theta_only(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    return [
        QueryPiece(f"{a}.{name} {rng.choice(THETA_OPERATORS)} {b}.{name}", (a, b), portable)
        for a, b in _tree(rng, aliases)
        for name in (rng.choice("kvvxsp"),)
        if rng.random() < 0.8
    ]


def _equal_here_theta_there(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    shapes = (_common_key, _theta_only, _expression_keys)
    return [piece for pair in _tree(rng, aliases) for piece in rng.choice(shapes)(rng, pair, portable)]


def _no_predicate(rng: Random, aliases: Sequence[str], portable: bool) -> list[QueryPiece]:
    return []


_JoinShape = Callable[[Random, Sequence[str], bool], list[QueryPiece]]

_JOIN_SHAPES: tuple[_JoinShape, ...] = (
    _common_key,
    _attribute_per_pair,
    _attribute_per_pair,
    _two_attributes,
    _expression_keys,
    _theta_only,
    _equal_here_theta_there,
    _equal_here_theta_there,
    _no_predicate,
)


def _tree(rng: Random, aliases: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs that connect all aliases: each one with an earlier one."""
    pairs = [(aliases[rng.randrange(i)], aliases[i]) for i in range(1, len(aliases))]
    return [pair if rng.random() < 0.7 else (pair[1], pair[0]) for pair in pairs]


def _equality(rng: Random, name: str, pair: tuple[str, str], portable: bool) -> QueryPiece:
    a, b = pair
    return QueryPiece(f"{a}.{name} = {b}.{name}", pair, portable or name in "vp")


def _pair(rng: Random, texts: Sequence[str], aliases: Sequence[str], portable: bool) -> QueryPiece:
    a, b = rng.sample(aliases, 2)
    text = rng.choice(texts)
    return QueryPiece(text.format(a=a, b=b), (a, b), portable or "k" not in text)


def _local(rng: Random, aliases: Sequence[str]) -> QueryPiece:
    alias = rng.choice(aliases)
    own = rng.random() < 0.3
    text = rng.choice(LOCAL_FILTERS_UNLIKE_DUCKDB if own else LOCAL_FILTERS).format(a=alias, n=rng.randrange(4))
    return QueryPiece(text if " OR " not in text else f"({text})", (alias,), not own)
