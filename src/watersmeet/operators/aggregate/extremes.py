"""MIN and MAX of every group: the heaps of one aggregate, and the values they show."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import NONE, PairingHeaps
from watersmeet.kernels.aggregation.pairing_heap import first_values
from watersmeet.operators.aggregate.codes import Interner, OrderCodes

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass
class Extremes:
    """One MIN or MAX: which values each group holds how often, the first of them, and the one shown last."""

    coder: OrderCodes
    is_max: bool
    nodes: Interner = field(default_factory=lambda: Interner(2))
    heaps: PairingHeaps = field(default_factory=lambda: _empty_heaps(0))
    shown: Int64s = field(default_factory=lambda: np.empty(0, np.int64))  # the node shown last, by group

    def add_values(
        self,
        groups: Int64s,
        instants: Int64s,
        codes: Int64s,
        present: Bools,
        weights: Int64s,
        asked_instants: Int64s,
        asked: Int64s,
        room: int,
    ) -> tuple[Int64s, Int64s]:
        """Adds values by instant; returns the nodes that the groups asked for have now, and those they showed before."""
        nodes = np.full(groups.size, NONE, np.int64)
        if present.any():
            nodes[present] = self.nodes.intern(np.stack([groups[present], codes[present]], axis=1))
        self._reserve(room)
        now = first_values(groups, instants, nodes, weights, asked_instants, asked, self.heaps)
        before = self._replace_shown(asked, now)
        return now, before

    def restore(self, words: Int64s, counts: Int64s, shown: Int64s) -> None:
        """Heaps with these (group, value) pairs, so often each."""
        nodes, nothing = self.nodes.intern(words), np.empty(0, np.int64)
        self._reserve(shown.size)
        self.shown[: shown.size] = shown
        groups = np.ascontiguousarray(words[:, 0])
        first_values(groups, np.zeros(groups.size, np.int64), nodes, counts, nothing, nothing, self.heaps)

    def decode_values(self, nodes: Int64s) -> pa.Array:
        missing = nodes == NONE
        codes = np.zeros(nodes.size, np.int64)
        codes[~missing] = self.nodes.words[nodes[~missing], 1]
        return self.coder.decode(codes, missing)

    def _replace_shown(self, asked: Int64s, now: Int64s) -> Int64s:
        """A group that is asked for several times showed before what it had the time before."""
        before = np.empty(asked.size, np.int64)
        order = np.argsort(asked, kind="stable")
        again = np.zeros(asked.size, np.bool_)
        again[1:] = asked[order[1:]] == asked[order[:-1]]
        before[order] = (
            np.where(again, np.concatenate([[NONE], now[order[:-1]]]), self.shown[asked[order]])
            if asked.size
            else before
        )
        self.shown[asked] = now  # numpy keeps the last of equal places
        return before

    def _reserve(self, groups: int) -> None:
        if self.nodes.used > self.heaps.held.size:
            self.heaps = _grow_heaps(self.heaps, max(self.nodes.used, 2 * self.heaps.held.size))
        if groups > self.heaps.root.size:
            size = max(groups, 2 * self.heaps.root.size)
            self.heaps = self.heaps._replace(root=_extend(self.heaps.root, size))
            self.shown = _extend(self.shown, size)
        keys = self.coder.rank(self.nodes.words[:, 1])
        self.heaps.key[: self.nodes.used] = ~keys if self.is_max else keys


def _empty_heaps(size: int) -> PairingHeaps:
    held, key, child, sibling = (np.zeros(size, np.int64) for _ in range(4))
    return PairingHeaps(held, key, child, sibling, np.zeros(size, np.bool_), np.empty(0, np.int64))


def _grow_heaps(heaps: PairingHeaps, size: int) -> PairingHeaps:
    larger = _empty_heaps(size)
    for old, new in zip(heaps[:5], larger[:5], strict=True):
        new[: old.size] = old
    return larger._replace(root=heaps.root)


def _extend(values: Int64s, size: int) -> Int64s:
    grown = np.full(size, NONE, np.int64)
    grown[: values.size] = values
    return grown
