"""Declared selectivities and costs of predicates, matched with the predicates of a query.

Statistics name a predicate by its text. The text is bound like a condition of the query, so spelling and implied casts
do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watersmeet.algebra.expressions import FLIPPED, Comparison, Expr, conjuncts, sources_of
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.render import format_expression
from watersmeet.errors import InputError, listing
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.join_predicates import split_betweens
from watersmeet.sql.binder import bind_predicate
from watersmeet.stats.stream_stats import Estimate, PredicateStats, StreamStats


@dataclass(frozen=True, slots=True)
class DeclaredPredicates:
    """Facts about predicates, by the name of the stream that declares them."""

    by_stream: Mapping[str, Mapping[Expr, PredicateStats]]

    @classmethod
    def resolve(cls, bound: BoundQuery, config: JoinConfig, stats: Mapping[str, StreamStats]) -> DeclaredPredicates:
        """Bind the declared predicates; refuse one that is not a predicate of the query."""
        known = {_normalize(each): each for each in split_betweens(conjuncts(bound.where))}
        found: dict[str, dict[Expr, PredicateStats]] = {}
        for name in dict.fromkeys(each.name for each in config.inputs):
            for text, facts in stats[name].predicates.items():
                predicate = _normalize(bind_predicate(text, bound))
                if predicate not in known:
                    texts = [str(format_expression(each)) for each in known.values()]
                    raise InputError(
                        f'the statistics of "{name}" name the predicate "{text}", which the query does not have',
                        hint=f"its predicates: {listing(texts) if texts else 'none'}",
                    )
                found.setdefault(name, {})[predicate] = facts
        return cls(found)

    def selectivity(self, predicate: Expr) -> Estimate | None:
        """Return the declared selectivity of a predicate, by any of the streams."""
        return next((each.selectivity for each in self._facts(predicate) if each.selectivity is not None), None)

    def cost_s(self, predicate: Expr) -> Estimate | None:
        """Return the declared seconds per evaluation of a predicate."""
        return next((each.cost_s for each in self._facts(predicate) if each.cost_s is not None), None)

    def pair_shares(self, config: JoinConfig) -> dict[tuple[int, int, int], float]:
        """Return the selectivities of equalities between two inputs, by (equality class, origin, target).

        The statistics of a stream hold for rows that arrive on it. Without such statistics, the other stream's hold.
        """
        shares: dict[tuple[int, int, int], float] = {}
        for name, facts in self.by_stream.items():
            for predicate, each in facts.items():
                sides = _find_key_sides(config, predicate)
                if sides is None or each.selectivity is None:
                    continue
                key_class, pair = sides
                for origin, target in (pair, pair[::-1]):
                    if config.inputs[origin].name == name:
                        shares[key_class, origin, target] = each.selectivity.value
                    shares.setdefault((key_class, origin, target), each.selectivity.value)
        return shares

    def _facts(self, predicate: Expr) -> list[PredicateStats]:
        normal = _normalize(predicate)
        return [facts[normal] for facts in self.by_stream.values() if normal in facts]


def _find_key_sides(config: JoinConfig, predicate: Expr) -> tuple[int, tuple[int, int]] | None:
    """Return the equality class of a predicate and the two inputs it joins; None for other predicates."""
    if not isinstance(predicate, Comparison) or predicate.op != "=" or len(sources_of(predicate)) != 2:
        return None
    sides = [(sources_of(side), side) for side in (predicate.left, predicate.right)]
    for key_class, members in enumerate(config.classes.keys):
        inputs = [
            config.aliases[alias]
            for read, side in sides
            for alias in read
            if members.get(config.aliases[alias]) == side
        ]
        if len(inputs) == 2:
            return key_class, (inputs[0], inputs[1])
    return None


def _normalize(predicate: Expr) -> Expr:
    """Return a comparison with its operands in one order: `a.k = b.k` and `b.k = a.k` are the same predicate."""
    if isinstance(predicate, Comparison) and repr(predicate.right) < repr(predicate.left):
        return Comparison(FLIPPED[predicate.op], predicate.right, predicate.left)
    return predicate
