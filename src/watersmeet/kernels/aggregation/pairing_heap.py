"""MIN and MAX under expiry: per group a pairing heap over the distinct values it holds, with their multiplicities.

A value that comes again only raises its multiplicity; one whose multiplicity falls to zero stays where it is until it
reaches the root and is asked for. So a row costs an amortised logarithm of the distinct values of its group, and no
window is ever searched.

References: Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap: a new form of self-adjusting heap", 1986.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import HEAPS, NONE, Int64s, PairingHeaps
from watersmeet.kernels.compile import IN_INT64, kernel, subroutine


@kernel(IN_INT64, IN_INT64, IN_INT64, IN_INT64, IN_INT64, IN_INT64, HEAPS)
def first_values(
    groups: NDArray[np.int64],
    instants: NDArray[np.int64],
    nodes: NDArray[np.int64],
    weights: NDArray[np.int64],
    asked_instants: NDArray[np.int64],
    asked_groups: NDArray[np.int64],
    heaps: PairingHeaps,
) -> Int64s:
    """Adds values (`nodes`, −1 for none) with their signed multiplicities to their groups, by instant.

    Returns, for each group asked for at the end of an instant (asked by instant too), the node of its first value, or
    −1.
    """
    answers = np.empty(asked_groups.size, np.int64)
    answered = 0
    for at in range(groups.size):
        while answered < asked_groups.size and asked_instants[answered] < instants[at]:
            answers[answered] = _first(heaps, asked_groups[answered])
            answered += 1
        node = nodes[at]
        if node == NONE:
            continue
        heaps.held[node] += weights[at]
        if not heaps.in_heap[node] and heaps.held[node] != 0:
            heaps.in_heap[node] = True
            heaps.child[node] = NONE
            heaps.sibling[node] = NONE
            heaps.root[groups[at]] = _meld(heaps, heaps.root[groups[at]], node)
    while answered < asked_groups.size:
        answers[answered] = _first(heaps, asked_groups[answered])
        answered += 1
    return answers


def first_values_definition(held: dict[int, int]) -> int | None:
    """The law: the smallest value whose multiplicity is not zero.

    >>> first_values_definition({3: 0, 5: 2, 9: 1})
    5
    """
    return min((value for value, count in held.items() if count), default=None)


@subroutine
def _first(heaps: PairingHeaps, group: int) -> int:
    root = heaps.root[group]
    while root != NONE and heaps.held[root] == 0:
        heaps.in_heap[root] = False
        root = _joined(heaps, heaps.child[root])
    heaps.root[group] = root
    return root  # type: ignore[no-any-return] # numba's int


@subroutine
def _meld(heaps: PairingHeaps, a: int, b: int) -> int:
    if a == NONE:
        return b
    if b == NONE:
        return a
    if heaps.key[b] < heaps.key[a]:
        a, b = b, a
    heaps.sibling[b] = heaps.child[a]
    heaps.child[a] = b
    return a


@subroutine
def _joined(heaps: PairingHeaps, first: int) -> int:
    """One heap out of the children of a root that is gone: melded in pairs, then the pairs from last to first."""
    pairs = NONE
    while first != NONE:
        second = heaps.sibling[first]
        heaps.sibling[first] = NONE
        after = NONE
        if second != NONE:
            after = heaps.sibling[second]
            heaps.sibling[second] = NONE
        pair = _meld(heaps, first, second)
        heaps.sibling[pair] = pairs
        pairs = pair
        first = after
    root = NONE
    while pairs != NONE:
        after = heaps.sibling[pairs]
        heaps.sibling[pairs] = NONE
        root = _meld(heaps, root, pairs)
        pairs = after
    return root
