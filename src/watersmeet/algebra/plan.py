"""Plans as values: the algorithm that runs a query, with every knob of the papers by name.

A plan names sources by alias. The planner decides everything that the plan leaves open. Everything that it states is
done, or refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from watersmeet.algebra.render import html_table
from watersmeet.algebra.windows import format_sql_duration
from watersmeet.errors import PlanError, listing
from watersmeet.units import format_duration

INDEX_KINDS = ("list", "hash", "btree", "ttree")
DEFAULT_BUCKETS = 1021
DEFAULT_NODE_ROWS = 100
DEFAULT_CLEANUP_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Index:
    """Access path of a window: `size` is the number of hash buckets, or of entries in a tree node; a list has none.

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
            raise PlanError(f"the size of a {self.kind} index is {smallest} to {1 << 24}, got {self.size}")

    @classmethod
    def parse(cls, text: str | Index) -> Index:
        if isinstance(text, Index):
            return text
        kind, _, size = text.strip().lower().partition("(")
        if not size:
            return cls(
                kind, {"hash": DEFAULT_BUCKETS, "btree": DEFAULT_NODE_ROWS, "ttree": DEFAULT_NODE_ROWS}.get(kind, 0)
            )
        if not (size.endswith(")") and size[:-1].strip().isdecimal()):
            raise PlanError(f'"{text}" is not an index', hint="write list, hash(5), btree(100) or ttree(100)")
        return cls(kind, int(size[:-1]))

    def __str__(self) -> str:
        return self.kind if self.kind == "list" else f"{self.kind}({self.size})"


Tree: TypeAlias = "str | tuple[Tree, Tree]"
#: A tree as callers and JSON write it.
NestedPairs: TypeAlias = "str | Sequence[NestedPairs]"


def tree_leaves(tree: Tree) -> list[str]:
    """Return the sources of a tree of joins, from left to right.

    >>> tree_leaves((("a", "b"), "c"))
    ['a', 'b', 'c']
    """
    return [tree] if isinstance(tree, str) else [*tree_leaves(tree[0]), *tree_leaves(tree[1])]


def left_deep_tree(aliases: Sequence[str]) -> Tree:
    """Build the tree that joins sources in this order.

    >>> left_deep_tree(["a", "b", "c"])
    (('a', 'b'), 'c')
    """
    rest: list[Tree] = list(aliases)
    return reduce(lambda left, right: (left, right), rest)


def parse_tree(nested: NestedPairs | None) -> Tree | None:
    """Build a tree from nested lists, as JSON has them.

    >>> parse_tree([["a", "b"], "c"])
    (('a', 'b'), 'c')
    """
    if nested is None or isinstance(nested, str):
        return nested
    if not isinstance(nested, list | tuple) or len(nested) != 2:
        raise PlanError("a tree of joins is written as nested pairs of sources", hint='write (("a", "b"), "c")')
    left, right = (parse_tree(side) for side in nested)
    if left is None or right is None:
        raise PlanError("a tree of joins must have a source at every leaf")
    return left, right


@dataclass(frozen=True, slots=True)
class Plan:
    """An algorithm and its knobs.

    `orders` gives, per origin, the order of the loops: the other sources, or all sources with the origin at any place
    where the algorithm allows that. `global_order` is one order for every origin. `evaluate_us` and `expire_us` 0 mean
    eager.

    `tree` is the shape of a tree of two-input joins, sources nested in pairs. `early` names the sources that are
    aggregated before the join. `filters` gives, per source, the order in which its own predicates are tested: their
    numbers in the order of the query, from 1. `drop` gives the share of a stream's rows to shed, by stream name or
    alias. `drop_seed` and the rows' values decide which rows.

    `probe` and `window` allocate limited resources between two streams: the share of a stream's rows that probe the
    other window, and the share that its own window stores. A stream without a share keeps all rows in that role.
    """

    algorithm: str = "runs"
    global_order: tuple[str, ...] = ()
    orders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    indexes: tuple[tuple[str, Index], ...] = ()
    evaluate_us: int = 0
    expire_us: int = 0
    cleanup_rows: int = DEFAULT_CLEANUP_ROWS
    tree: Tree | None = None
    early: tuple[str, ...] = ()
    filters: tuple[tuple[str, tuple[int, ...]], ...] = ()
    drop: tuple[tuple[str, float], ...] = ()
    drop_seed: int = 0
    probe: tuple[tuple[str, float], ...] = ()
    window: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.evaluate_us < 0 or self.expire_us < 0:
            raise PlanError("an interval cannot be negative")
        if self.cleanup_rows < 1:
            raise PlanError("cleanup_rows must be at least 1")
        if self.global_order and self.orders:
            raise PlanError("give either one order for all origins or an order per origin, not both")
        for name, share in self.drop:
            if not 0 <= share <= 1:  # also refuses NaN
                raise PlanError(f'the share of "{name}" to drop is between 0 and 1, got {share}')
        for alias, numbers in self.filters:
            if sorted(numbers) != list(range(1, len(numbers) + 1)):
                raise PlanError(
                    f'the filters of "{alias}" are numbered from 1, and a plan names each once, got {list(numbers)}'
                )
        for role, shares in (("probe", self.probe), ("store", self.window)):
            for name, share in shares:
                if not 0 <= share <= 1:
                    raise PlanError(f'the share of "{name}" to {role} is between 0 and 1, got {share}')
        if self.drop and self.is_allocated:
            raise PlanError(
                "a plan either drops rows at the sources or divides probes and windows, not both",
                hint="remove either drop, or probe and window",
            )
        if self.tree is not None and len(set(tree_leaves(self.tree))) < len(tree_leaves(self.tree)):
            raise PlanError("a tree of joins must name each source once")

    def order(self, origin: str) -> tuple[str, ...] | None:
        return dict(self.orders).get(origin, self.global_order or None)

    @property
    def is_allocated(self) -> bool:
        """Whether the plan divides probes and windows between two streams."""
        return bool(self.probe or self.window)

    @property
    def sheds(self) -> bool:
        """Whether the plan keeps only some rows, at the sources or in a role."""
        return bool(self.drop) or self.is_allocated

    def index(self, alias: str) -> Index | None:
        return dict(self.indexes).get(alias)

    def filter_order(self, alias: str) -> tuple[int, ...]:
        """Return the order of a source's own predicates; empty: as the query writes them."""
        return dict(self.filters).get(alias, ())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON. Plans without an allocation have no shares of it."""
        allocation = {"probe": dict(self.probe), "window": dict(self.window)} if self.is_allocated else {}
        return {
            "algorithm": self.algorithm,
            "global_order": list(self.global_order),
            "orders": {origin: list(order) for origin, order in self.orders},
            "indexes": {alias: str(index) for alias, index in self.indexes},
            "evaluate_us": self.evaluate_us,
            "expire_us": self.expire_us,
            "cleanup_rows": self.cleanup_rows,
            "tree": self.tree,
            "early": list(self.early),
            "filters": {alias: list(numbers) for alias, numbers in self.filters},
            "drop": dict(self.drop),
            "drop_seed": self.drop_seed,
            **allocation,
        }

    def __repr__(self) -> str:
        """Return the code that builds the plan.

        >>> Plan("eager-hash", global_order=("a", "b"), indexes=(("a", Index("hash", 5)),), evaluate_us=2_000_000)
        wm.plan('eager-hash', order=['a', 'b'], indexes={'a': 'hash(5)'}, evaluate='2 seconds')
        """
        knobs: dict[str, object] = {
            "order": list(self.global_order) or {origin: list(order) for origin, order in self.orders},
            "indexes": {alias: str(index) for alias, index in self.indexes},
            "evaluate": self.evaluate_us and format_sql_duration(self.evaluate_us).lower(),
            "expire": self.expire_us and format_sql_duration(self.expire_us).lower(),
            "cleanup_rows": 0 if self.cleanup_rows == DEFAULT_CLEANUP_ROWS else self.cleanup_rows,
            "tree": self.tree,
            "early": list(self.early),
            "filters": {alias: list(numbers) for alias, numbers in self.filters},
            "drop": dict(self.drop),
            "drop_seed": self.drop_seed,
            "probe": dict(self.probe),
            "window": dict(self.window),
        }
        named = [f"{name}={value!r}" for name, value in knobs.items() if value]
        return f"wm.plan({', '.join([repr(self.algorithm), *named])})"

    def _repr_html_(self) -> str:
        """Return a table of the knobs that are not at their defaults."""
        default = Plan(self.algorithm).to_dict()
        changed = [
            (name.replace("_", " "), value) for name, value in self.to_dict().items() if value != default.get(name)
        ]
        return html_table(("plan", self.algorithm), changed)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Plan:
        """Build the plan from the result of `to_dict`; keys may be missing, unknown ones are refused."""
        known = [*cls().to_dict(), "probe", "window"]
        unknown = sorted(set(saved) - set(known))
        if unknown:
            raise PlanError(f"a plan has no {listing(unknown)}", hint=f"it has: {listing(known)}")
        return cls(
            algorithm=saved.get("algorithm", "runs"),
            global_order=tuple(saved.get("global_order", ())),
            orders=tuple((origin, tuple(order)) for origin, order in saved.get("orders", {}).items()),
            indexes=tuple((alias, Index.parse(text)) for alias, text in saved.get("indexes", {}).items()),
            evaluate_us=saved.get("evaluate_us", 0),
            expire_us=saved.get("expire_us", 0),
            cleanup_rows=saved.get("cleanup_rows", DEFAULT_CLEANUP_ROWS),
            tree=parse_tree(saved.get("tree")),
            early=tuple(saved.get("early", ())),
            filters=tuple((alias, tuple(numbers)) for alias, numbers in saved.get("filters", {}).items()),
            drop=tuple(saved.get("drop", {}).items()),
            drop_seed=saved.get("drop_seed", 0),
            probe=tuple(saved.get("probe", {}).items()),
            window=tuple(saved.get("window", {}).items()),
        )


def describe_plan(plan: Plan) -> str:
    """Return the algorithm and the options that differ from their defaults.

    >>> hashed = (("a", Index("hash", 5)), ("b", Index("list")))
    >>> describe_plan(Plan("window-join", indexes=hashed, evaluate_us=5_000_000, drop=(("a", 0.25),)))
    'window-join (a hash(5), b list; every 5 s; sheds 25 % of a)'
    """
    details = [
        ", ".join(f"{alias} {index}" for alias, index in plan.indexes),
        f"every {format_duration(plan.evaluate_us / 1e6)}" if plan.evaluate_us else "",
        f"tree {describe_tree(plan.tree)}" if plan.tree is not None else "",
        f"aggregates {', '.join(plan.early)} early" if plan.early else "",
        ", ".join(f"sheds {share * 100:.3g} % of {name}" for name, share in plan.drop if share),
        ", ".join(f"{share * 100:.3g} % of {name} probe" for name, share in plan.probe if share < 1),
        ", ".join(f"{share * 100:.3g} % of {name} stored" for name, share in plan.window if share < 1),
    ]
    options = "; ".join(detail for detail in details if detail)
    return f"{plan.algorithm} ({options})" if options else plan.algorithm


def describe_tree(tree: Tree) -> str:
    """Return a tree of joins with a join sign between its inputs.

    >>> describe_tree((("a", "b"), "c"))
    '((a ⋈ b) ⋈ c)'
    """
    return tree if isinstance(tree, str) else f"({describe_tree(tree[0])} ⋈ {describe_tree(tree[1])})"
