"""MIN and MAX under expiry: per group a pairing heap over the distinct values it holds, with their multiplicities.

A value that comes again only raises its multiplicity. A value whose multiplicity falls to zero stays in place until it
reaches the root and is queried. So a row costs an amortised logarithm of the distinct values of its group, and no
window is ever searched.

References: Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap: a new form of self-adjusting heap", 1986.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import HEAPS, NONE, Int64s, PairingHeaps
from watersmeet.kernels.compile import IN_INT64, OUT_BOOL, OUT_INT64, kernel, subroutine


@kernel(IN_INT64, IN_INT64, IN_INT64, IN_INT64, IN_INT64, IN_INT64, HEAPS)
def first_values(
    groups: NDArray[np.int64],
    instants: NDArray[np.int64],
    nodes: NDArray[np.int64],
    weights: NDArray[np.int64],
    queried_instants: NDArray[np.int64],
    queried_groups: NDArray[np.int64],
    heaps: PairingHeaps,
) -> Int64s:
    """Add values (`nodes`, −1 for none) with their signed multiplicities to their groups, by instant.

    Return, for each group queried at the end of an instant, the node of its first value, or −1. Queries are sorted by
    instant, too.
    """
    answers = np.empty(queried_groups.size, np.int64)
    queries_done = 0
    for at in range(groups.size):
        while queries_done < queried_groups.size and queried_instants[queries_done] < instants[at]:
            answers[queries_done] = _find_first(heaps, queried_groups[queries_done])
            queries_done += 1
        node = nodes[at]
        if node == NONE:
            continue
        heaps.multiplicity[node] += weights[at]
        if not heaps.in_heap[node] and heaps.multiplicity[node] != 0:
            heaps.in_heap[node] = True
            heaps.child[node] = NONE
            heaps.sibling[node] = NONE
            heaps.root[groups[at]] = _meld(heaps, heaps.root[groups[at]], node)
    while queries_done < queried_groups.size:
        answers[queries_done] = _find_first(heaps, queried_groups[queries_done])
        queries_done += 1
    return answers


@kernel(IN_INT64, IN_INT64, OUT_INT64, OUT_BOOL, HEAPS)
def find_improvements(
    groups: NDArray[np.int64],
    keys: NDArray[np.int64],
    best: NDArray[np.int64],
    is_known: NDArray[np.bool_],
    heaps: PairingHeaps,
) -> NDArray[np.bool_]:
    """Return which values come before all earlier ones of their group, if no value is ever removed.

    `best` has the smallest key of the groups that are known; a heap knows that of the others.
    """
    improves = np.zeros(groups.size, np.bool_)
    for at in range(groups.size):
        group = groups[at]
        if not is_known[group]:
            root = heaps.root[group]
            improves[at] = root == NONE or keys[at] < heaps.key[root]
            best[group] = keys[at] if improves[at] else heaps.key[root]
            is_known[group] = True
        elif keys[at] < best[group]:
            best[group] = keys[at]
            improves[at] = True
    return improves


def first_values_definition(multiplicities: dict[int, int]) -> int | None:
    """Return the smallest value whose multiplicity is not zero: the law.

    >>> first_values_definition({3: 0, 5: 2, 9: 1})
    5
    """
    return min((value for value, count in multiplicities.items() if count), default=None)


@subroutine
def _find_first(heaps: PairingHeaps, group: int) -> int:
    root = heaps.root[group]
    while root != NONE and heaps.multiplicity[root] == 0:
        heaps.in_heap[root] = False
        root = _meld_children(heaps, heaps.child[root])
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
def _meld_children(heaps: PairingHeaps, first: int) -> int:
    """Meld the children of a removed root into one heap: in pairs, then the pairs from last to first."""
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
