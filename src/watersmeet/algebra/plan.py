"""Plans as values: which algorithm runs a query, with every knob of the papers by name.

A plan names sources by alias. What it leaves out is decided by the optimizer; what it says is done or refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import PlanError, listing

INDEX_KINDS = ("list", "hash", "btree", "ttree")
DEFAULT_BUCKETS = 1021
DEFAULT_NODE_ROWS = 100
DEFAULT_CLEANUP_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Index:
    """How a window is probed: `size` is the number of hash buckets, or of entries in a tree's node; a list has none.

    >>> Index.parse("hash(5)"), str(Index.parse("btree"))
    (Index(kind='hash', size=5), 'btree(100)')
    """

    kind: str = "list"
    size: int = 0

    def __post_init__(self) -> None:
        if self.kind not in INDEX_KINDS:
            raise PlanError(f'there is no index "{self.kind}"', hint=f"indexes: {listing(INDEX_KINDS)}")
        if self.kind == "list" and self.size:
            raise PlanError("a list has no buckets or nodes to size")
        smallest = {"list": 0, "hash": 1, "btree": 2, "ttree": 2}[self.kind]
        if not smallest <= self.size <= 1 << 24:
            raise PlanError(f"a {self.kind} index of size {self.size} cannot be; it takes {smallest} to {1 << 24}")

    @classmethod
    def parse(cls, text: str | Index) -> Index:
        if isinstance(text, Index):
            return text
        kind, _, size = text.strip().lower().partition("(")
        if not size:
            return cls(kind, {"hash": DEFAULT_BUCKETS, "btree": DEFAULT_NODE_ROWS, "ttree": DEFAULT_NODE_ROWS}.get(kind, 0))
        if not (size.endswith(")") and size[:-1].strip().isdecimal()):
            raise PlanError(f'"{text}" is not an index', hint="write list, hash(5), btree(100) or ttree(100)")
        return cls(kind, int(size[:-1]))

    def __str__(self) -> str:
        return self.kind if self.kind == "list" else f"{self.kind}({self.size})"


@dataclass(frozen=True, slots=True)
class Plan:
    """An algorithm and its knobs.

    `orders` gives, per origin, the order of the loops: the other sources, or all of them with the origin at any place where the algorithm
    allows that. `global_order` is one order for every origin. `evaluate_us` and `expire_us` 0 mean eager.
    """

    algorithm: str = "runs"
    global_order: tuple[str, ...] = ()
    orders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    indexes: tuple[tuple[str, Index], ...] = ()
    evaluate_us: int = 0
    expire_us: int = 0
    cleanup_rows: int = DEFAULT_CLEANUP_ROWS

    def __post_init__(self) -> None:
        if self.evaluate_us < 0 or self.expire_us < 0:
            raise PlanError("an interval cannot be negative")
        if self.cleanup_rows < 1:
            raise PlanError("clean-up needs at least one row between two rounds")
        if self.global_order and self.orders:
            raise PlanError("give either one order for all origins or an order per origin, not both")

    def order(self, origin: str) -> tuple[str, ...] | None:
        return dict(self.orders).get(origin, self.global_order or None)

    def index(self, alias: str) -> Index | None:
        return dict(self.indexes).get(alias)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "algorithm": self.algorithm,
            "global_order": list(self.global_order),
            "orders": {origin: list(order) for origin, order in self.orders},
            "indexes": {alias: str(index) for alias, index in self.indexes},
            "evaluate_us": self.evaluate_us,
            "expire_us": self.expire_us,
            "cleanup_rows": self.cleanup_rows,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Plan:
        """The inverse of `to_dict`; keys may be missing, unknown ones are refused."""
        unknown = sorted(set(saved) - set(cls().to_dict()))
        if unknown:
            raise PlanError(f"a plan has no {listing(unknown)}", hint=f"it has: {listing(list(cls().to_dict()))}")
        return cls(
            algorithm=saved.get("algorithm", "runs"),
            global_order=tuple(saved.get("global_order", ())),
            orders=tuple((origin, tuple(order)) for origin, order in saved.get("orders", {}).items()),
            indexes=tuple((alias, Index.parse(text)) for alias, text in saved.get("indexes", {}).items()),
            evaluate_us=saved.get("evaluate_us", 0),
            expire_us=saved.get("expire_us", 0),
            cleanup_rows=saved.get("cleanup_rows", DEFAULT_CLEANUP_ROWS),
        )
