"""The balance of a T-tree: heights, rotations, and the entries a rotation must move along.

Rotations are the AVL tree's, with one thing more. The node that comes out on top has two children from then on, and
such a node must hold `least_inside` entries; a leaf or half-leaf need not have held that many. It forms a pair with its
only child, or, a leaf about to rise past its parent, with that parent; a pair holds at least `least_inside` + 1
entries, so it can be topped up from its partner. Lehman and Carey's special rotation, where a new leaf of one entry
rises between a full half-leaf and its parent, is one case of this.

Reference: Lehman, Carey, "A Study of Index Structures for Main Memory Database Management Systems", 1986.
"""

from __future__ import annotations

from numba.extending import register_jitable

from watersmeet.kernels.compile import piece
from watersmeet.kernels.tree_entries import Words, move_down, move_up
from watersmeet.kernels.tree_nodes import COUNT, LINK, NODE_SIZE, NONE, ROOT, UP

LEFT = LINK
RIGHT = -4
HEIGHT = -5
HEAD = 5


@register_jitable
def least_inside(node_size: int) -> int:
    """Entries a node with two children holds at least. Two below the most, as Lehman and Carey advise, absorbs updates
    that even out.
    """
    return max(1, node_size - 2)


@piece
def has_both(nodes: Words, node: int) -> bool:
    return bool(nodes[node + LEFT] != NONE and nodes[node + RIGHT] != NONE)


@piece
def only_child(nodes: Words, node: int) -> int:
    """The child of a half-leaf; NONE for a leaf and for a node with two children."""
    if has_both(nodes, node):
        return NONE
    return max(nodes[node + LEFT], nodes[node + RIGHT])  # type: ignore[no-any-return] # numba's int


@piece
def rebalance(nodes: Words, header: Words, node: int) -> None:
    """Corrects heights from `node`, whose subtree changed, towards the root, and rotates where sides differ by two."""
    while node != NONE:
        before = nodes[node + HEIGHT]
        lean = _height(nodes, nodes[node + LEFT]) - _height(nodes, nodes[node + RIGHT])
        if lean > 1:
            node = _rotate(nodes, header, node, LEFT)
        elif lean < -1:
            node = _rotate(nodes, header, node, RIGHT)
        else:
            _set_height(nodes, node)
        if nodes[node + HEIGHT] == before:
            return
        node = nodes[node + UP]


@piece
def _rotate(nodes: Words, header: Words, top: int, side: int) -> int:
    """Shortens the side of `top` that is two higher than the other; returns the node that is on top now."""
    other = LEFT + RIGHT - side
    rising: int = nodes[top + side]
    if _height(nodes, nodes[rising + other]) > _height(nodes, nodes[rising + side]):
        rising = nodes[rising + other]
        _top_up(nodes, header, rising)
        _lift(nodes, header, rising)
    else:
        _top_up(nodes, header, rising)
    _lift(nodes, header, rising)
    return rising


@piece
def _top_up(nodes: Words, header: Words, node: int) -> None:
    """Gives a leaf or half-leaf that is about to get two children the entries it lacks, from the other node of its
    pair.
    """
    lacking = least_inside(header[NODE_SIZE]) - nodes[node + COUNT]
    if lacking <= 0:
        return
    partner = only_child(nodes, node)
    if partner == NONE:
        partner = nodes[node + UP]
        partner_is_before = nodes[partner + RIGHT] == node
    else:
        partner_is_before = nodes[node + LEFT] == partner
    if partner_is_before:
        move_up(nodes, header, partner, node, lacking)
    else:
        move_down(nodes, header, node, partner, lacking)


@piece
def _lift(nodes: Words, header: Words, node: int) -> None:
    """Turns `node` over its parent: the parent becomes its child and adopts the subtree between the two."""
    parent = nodes[node + UP]
    side = LEFT if nodes[parent + LEFT] == node else RIGHT
    other = LEFT + RIGHT - side
    between = nodes[node + other]
    nodes[parent + side] = between
    if between != NONE:
        nodes[between + UP] = parent
    replace_child(nodes, header, nodes[parent + UP], parent, node)
    nodes[node + other] = parent
    nodes[parent + UP] = node
    _set_height(nodes, parent)
    _set_height(nodes, node)


@piece
def replace_child(nodes: Words, header: Words, parent: int, old: int, new: int) -> None:
    """Puts `new`, which may be NONE, where `old` hangs: below `parent`, or at the root if that is NONE."""
    if parent == NONE:
        header[ROOT] = new
    elif nodes[parent + LEFT] == old:
        nodes[parent + LEFT] = new
    else:
        nodes[parent + RIGHT] = new
    if new != NONE:
        nodes[new + UP] = parent


@piece
def _height(nodes: Words, node: int) -> int:
    if node == NONE:
        return 0
    return nodes[node + HEIGHT]  # type: ignore[no-any-return] # numba's int


@piece
def _set_height(nodes: Words, node: int) -> None:
    nodes[node + HEIGHT] = 1 + max(_height(nodes, nodes[node + LEFT]), _height(nodes, nodes[node + RIGHT]))
