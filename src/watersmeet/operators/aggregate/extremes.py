"""MIN and MAX of every group: the heaps of one aggregate, and the values last shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import NONE, PairingHeaps
from watersmeet.kernels.aggregation.pairing_heap import find_improvements, first_values
from watersmeet.operators.aggregate.codes import Interner, OrderCodes

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass
class Extremes:
    """One MIN or MAX: the values of each group with their counts, the first of them, and the one shown last.

    If values are never removed, only those are kept that were the first of their group when they came.
    """

    coder: OrderCodes
    is_max: bool
    never_subtracts: bool = False
    nodes: Interner = field(default_factory=lambda: Interner(2))
    heaps: PairingHeaps = field(default_factory=lambda: _empty_heaps(0))
    shown: Int64s = field(default_factory=lambda: np.empty(0, np.int64))  # the node shown last, by group
    _ranked_nodes: int = 0
    _best: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    _has_best: Bools = field(default_factory=lambda: np.empty(0, np.bool_))

    def add_values(
        self,
        groups: Int64s,
        instants: Int64s,
        codes: Int64s,
        weights: Int64s,
        shown_instants: Int64s,
        shown_groups: Int64s,
        capacity: int,
    ) -> tuple[Int64s, Int64s]:
        """Add values by instant; return the current nodes of the requested groups, and the nodes they showed before."""
        self._reserve(capacity)
        if self.never_subtracts and self.coder.numbering is None:
            groups, instants, codes, weights = self._select_improvements(groups, instants, codes, weights)
        nodes = self.nodes.intern(np.stack([groups, codes], axis=1))
        self._reserve(capacity)
        now = first_values(groups, instants, nodes, weights, shown_instants, shown_groups, self.heaps)
        before = self._replace_shown(shown_groups, now)
        return now, before

    def _select_improvements(
        self, groups: Int64s, instants: Int64s, codes: Int64s, weights: Int64s
    ) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        added = np.flatnonzero(weights > 0)
        known = self._best.size
        if self.heaps.root.size > known:
            self._best = _extend(self._best, self.heaps.root.size)
            self._has_best = np.concatenate([self._has_best, np.zeros(self.heaps.root.size - known, np.bool_)])
        keys = ~codes[added] if self.is_max else codes[added]
        chosen = added[find_improvements(groups[added], keys, self._best, self._has_best, self.heaps)]
        return groups[chosen], instants[chosen], codes[chosen], weights[chosen]

    def restore(self, words: Int64s, counts: Int64s, shown: Int64s) -> None:
        """Restore heaps that hold these (group, value) pairs with these counts."""
        nodes, nothing = self.nodes.intern(words), np.empty(0, np.int64)
        self._reserve(shown.size)
        self.shown[: shown.size] = shown
        groups = np.ascontiguousarray(words[:, 0])
        first_values(groups, np.zeros(groups.size, np.int64), nodes, counts, nothing, nothing, self.heaps)

    def find_codes(self, nodes: Int64s) -> tuple[Int64s, Bools]:
        """Return the codes of nodes, and which of them exist."""
        present = nodes != NONE
        codes = np.zeros(nodes.size, np.int64)
        codes[present] = self.nodes.words[nodes[present], 1]
        return codes, present

    def decode_values(self, nodes: Int64s) -> pa.Array[Any]:
        """Return the values of nodes, null where there is none."""
        codes, present = self.find_codes(nodes)
        return self.coder.decode(codes, ~present)

    def with_values(self, groups: Int64s, codes: Int64s, weights: Int64s) -> Extremes:
        """Return other values of the same groups, which showed the same values last."""
        other = Extremes(self.coder, self.is_max, self.never_subtracts)
        at, nothing = np.zeros(groups.size, np.int64), np.empty(0, np.int64)
        other.add_values(groups, at, codes, weights, nothing, nothing, self.shown.size)
        showed = np.flatnonzero(self.shown != NONE)
        other.shown[showed] = other.nodes.intern(self.nodes.words[self.shown[showed]])
        other._reserve(self.shown.size)
        return other

    def _replace_shown(self, shown_groups: Int64s, now: Int64s) -> Int64s:
        """Store the nodes shown now and return those shown before; a group that repeats showed its previous node."""
        before = np.empty(shown_groups.size, np.int64)
        order = np.argsort(shown_groups, kind="stable")
        repeats = np.zeros(shown_groups.size, np.bool_)
        repeats[1:] = shown_groups[order[1:]] == shown_groups[order[:-1]]
        before[order] = (
            np.where(repeats, np.concatenate([[NONE], now[order[:-1]]]), self.shown[shown_groups[order]])
            if shown_groups.size
            else before
        )
        self.shown[shown_groups] = now  # numpy keeps the last value per index
        return before

    def _reserve(self, groups: int) -> None:
        if self.nodes.used > self.heaps.multiplicity.size:
            self.heaps = _grow_heaps(self.heaps, max(self.nodes.used, 2 * self.heaps.multiplicity.size))
        if groups > self.heaps.root.size:
            size = max(groups, 2 * self.heaps.root.size)
            self.heaps = self.heaps._replace(root=_extend(self.heaps.root, size))
            self.shown = _extend(self.shown, size)
        self._rank_new_nodes()

    def _rank_new_nodes(self) -> None:
        """Set the keys of new nodes. Ranks of numbered values move when a value is new, so all are set again."""
        first, used = self._ranked_nodes if self.coder.numbering is None else 0, self.nodes.used
        if self._ranked_nodes < used:
            keys = self.coder.rank(self.nodes.words[first:, 1])
            self.heaps.key[first:used] = ~keys if self.is_max else keys
            self._ranked_nodes = used


def _empty_heaps(size: int) -> PairingHeaps:
    multiplicity, key, child, sibling = (np.zeros(size, np.int64) for _ in range(4))
    return PairingHeaps(multiplicity, key, child, sibling, np.zeros(size, np.bool_), np.empty(0, np.int64))


def _grow_heaps(heaps: PairingHeaps, size: int) -> PairingHeaps:
    larger = _empty_heaps(size)
    for old, new in zip(heaps[:5], larger[:5], strict=True):
        new[: old.size] = old
    return larger._replace(root=heaps.root)


def _extend(values: Int64s, size: int) -> Int64s:
    grown = np.full(size, NONE, np.int64)
    grown[: values.size] = values
    return grown
