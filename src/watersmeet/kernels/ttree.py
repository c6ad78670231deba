"""A window indexed by a T-tree: an AVL tree whose nodes hold up to N sorted entries (key, row) each.

The law, with m = `min_inner_entries(N)`:

- In order, the entries are sorted.
- The heights of a node's two sides differ by at most one.
- No node is empty.
- A node with two children holds at least m entries.
- A half-leaf (one child, which is a leaf) and its leaf together hold at least m + 1 entries.

So the arena is bounded whatever the history (`arena_words`).

On the way down, an entry is compared with a node's first entry and, if it is not below that, with its last. The paper
counts 1.5 comparisons on average.

Rotations are the AVL tree's, with one addition. The node that becomes the top has two children from then on, and such a
node must hold m entries. A leaf or half-leaf need not have held that many. It forms a pair with its only child or, if
it is a leaf about to rise past its parent, with that parent. A pair holds at least m + 1 entries, so the node can be
filled from its partner. Lehman and Carey's special rotation is one case of this: a new leaf of one entry rises between
a full half-leaf and its parent.

Assumptions: N is at least 2, and (key, row) is held at most once. Keys and rows are any int64. Entries of one key are
sorted by row.

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams", eq. 6. Lehman, Carey, "A Study of
Index Structures for Main Memory Database Management Systems", 1986.
"""

from __future__ import annotations

from numba.extending import register_jitable

from watersmeet.errors import InternalError
from watersmeet.kernels.compile import subroutine
from watersmeet.kernels.tree_nodes import (
    COMPARISONS,
    COUNT,
    FREE,
    HEADER,
    INSERTS,
    LINK,
    NODE_SIZE,
    NONE,
    PROBES,
    REMOVES,
    ROOM,
    ROOT,
    TOUCHED,
    UP,
    USED,
    Words,
    copy_entries,
    count_keys_below,
    find_entry_place,
    find_range_end,
    insert_entry,
    is_entry,
    move_to_next,
    move_to_previous,
    release_node,
    remove_entry,
    renumber_node,
    take_free_node,
    write_rows,
)

_INSIDE = 0


@register_jitable
def arena_words(rows: int, node_size: int) -> int:
    """Return the words of an arena for at most `rows` rows at a time, whatever the inserts and removes before.

    With I nodes of two children there are I + 1 leaves; p of these hang below a half-leaf. There are 2I + p + 1 nodes.
    Each of the I nodes has at least m entries, each of the p pairs m + 1, and each other leaf 1. So I(m + 1) + pm + 1
    <= rows, and nodes <= 1 + 2(rows - 1)/(m + 1). An insert takes at most one node and releases none, so no operation
    needs more on its way.

    >>> arena_words(rows=1, node_size=100), arena_words(rows=100, node_size=100)
    (205, 615)
    """
    if node_size < 2:
        raise InternalError("a tree node must hold at least two entries")
    return (1 + 2 * max(rows - 1, 0) // (min_inner_entries(node_size) + 1)) * _node_words(node_size)


@register_jitable
def _node_words(node_size: int) -> int:
    return HEAD + 2 * node_size


@subroutine
def clear(nodes: Words, header: Words, node_size: int) -> None:
    """Make the tree empty and its counters zero."""
    header[:HEADER] = 0
    header[NODE_SIZE] = node_size
    header[ROOM] = node_size
    header[FREE] = NONE
    header[ROOT] = NONE


@subroutine
def insert(nodes: Words, header: Words, key: int, row: int) -> None:
    """Add the entry (key, row).

    It goes into the node whose entries enclose it, or else into the last node on its way. A full enclosing node passes
    its smallest entry on to the previous node in order, at the bottom of its left side. A full node at the bottom gets
    a new leaf.
    """
    header[INSERTS] += 1
    node, side = _find_enclosing(nodes, header, key, row)
    if node == NONE:
        header[ROOT] = _new_leaf(nodes, header, NONE, key, row)
        return
    place = 0 if side == LEFT else nodes[node + COUNT]
    if side == _INSIDE:
        place = find_entry_place(nodes, header, node, 1, key, row)
        if nodes[node + COUNT] == header[NODE_SIZE]:
            key, row = _replace_first(nodes, header, node, place, key, row)
            node, side, place = _find_place_before(nodes, node)
    if nodes[node + COUNT] < header[NODE_SIZE]:
        insert_entry(nodes, header, node, place, key, row)
    else:
        nodes[node + side] = _new_leaf(nodes, header, node, key, row)
        rebalance(nodes, header, node)


@subroutine
def remove(nodes: Words, header: Words, key: int, row: int) -> bool:
    """Remove the entry (key, row); return False if it is not there.

    A node with two children that falls below the minimum borrows the previous entry in order, from the bottom of its
    left side. There, an empty node is unlinked. A half-leaf and its leaf become one if they fit one node with room to
    spare.
    """
    node, side = _find_enclosing(nodes, header, key, row)
    if node == NONE or side != _INSIDE:
        return False
    place = find_entry_place(nodes, header, node, 0, key, row)
    if not is_entry(nodes, header, node, place, key, row):
        return False
    header[REMOVES] += 1
    inside = has_two_children(nodes, node)
    if inside and nodes[node + COUNT] == min_inner_entries(header[NODE_SIZE]):
        node = _borrow_previous(nodes, header, node, place)
    else:
        remove_entry(nodes, header, node, place)
        if inside:
            return True
    _repair(nodes, header, node)
    return True


@subroutine
def renumber(nodes: Words, header: Words, dropped: int) -> None:
    """Subtract a number from the row of every entry. Their order stays the same.

    Released nodes are renumbered as well, which does no harm: they are empty when they are taken again.
    """
    for node in range(header[USED]):
        renumber_node(nodes, header, node * _node_words(header[NODE_SIZE]) + HEAD, dropped)


@subroutine
def probe(nodes: Words, header: Words, low: int, high: int, out: Words, at: int) -> int:
    """Write the rows of all entries with `low <= key <= high` into `out`, and return the place after the last.

    Rows are written from place `at` on, ordered by key and row.
    """
    header[PROBES] += 1
    start = at
    node, first = _seek(nodes, header, low)
    while node != NONE:
        end = find_range_end(nodes, header, node, first, high)
        at = write_rows(nodes, header, node, first, end, out, at)
        if end < nodes[node + COUNT]:
            break
        node, first = _next_node(nodes, node), 0
    header[TOUCHED] += at - start
    return at


@subroutine
def count_range(nodes: Words, header: Words, low: int, high: int) -> int:
    """Return how many rows `probe` would write."""
    header[PROBES] += 1
    found = 0
    node, first = _seek(nodes, header, low)
    while node != NONE:
        end = find_range_end(nodes, header, node, first, high)
        found += end - first
        if end < nodes[node + COUNT]:
            break
        node, first = _next_node(nodes, node), 0
    header[TOUCHED] += found
    return found


@subroutine
def _seek(nodes: Words, header: Words, low: int) -> tuple[int, int]:
    """Return node and place of the first entry with key `low` or a larger one; (NONE, 0) if there is none.

    A first key equal to `low` does not end the way down: the same key may continue in the left side.
    """
    node = header[ROOT]
    after = NONE
    comparisons = 0
    while node != NONE:
        comparisons += 1
        if low <= nodes[node]:
            after = node
            node = nodes[node + LEFT]
            continue
        comparisons += 1
        if low <= nodes[node + nodes[node + COUNT] - 1]:
            break
        node = nodes[node + RIGHT]
    header[COMPARISONS] += comparisons
    if node == NONE:
        return after, 0
    return node, count_keys_below(nodes, header, node, low)


@subroutine
def _next_node(nodes: Words, node: int) -> int:
    """Return the node after `node` in order, or NONE."""
    if nodes[node + RIGHT] != NONE:
        return _outermost(nodes, nodes[node + RIGHT], LEFT)  # type: ignore[no-any-return]
    parent = nodes[node + UP]
    while parent != NONE and nodes[parent + RIGHT] == node:
        node = parent
        parent = nodes[node + UP]
    return parent  # type: ignore[no-any-return] # numba's int


@subroutine
def _outermost(nodes: Words, node: int, side: int) -> int:
    """Return the outermost node on that side of the subtree of `node`."""
    while nodes[node + side] != NONE:
        node = nodes[node + side]
    return node


@subroutine
def _find_enclosing(nodes: Words, header: Words, key: int, row: int) -> tuple[int, int]:
    """Return the node whose first and last entries enclose (key, row), and _INSIDE.

    If there is none, return the last node on the way and its side without a child. For the empty tree, return (NONE,
    _INSIDE).
    """
    node = header[ROOT]
    last, side = NONE, _INSIDE
    comparisons = 0
    while node != NONE:
        last = node
        comparisons += 1
        if key < nodes[node] or (key == nodes[node] and row < nodes[node + header[ROOM]]):
            side = LEFT
        else:
            comparisons += 1
            end = node + nodes[node + COUNT] - 1
            if key < nodes[end] or (key == nodes[end] and row <= nodes[end + header[ROOM]]):
                side = _INSIDE
                break
            side = RIGHT
        node = nodes[node + side]
    header[COMPARISONS] += comparisons
    return last, side


@subroutine
def _replace_first(nodes: Words, header: Words, node: int, place: int, key: int, row: int) -> tuple[int, int]:
    """Insert (key, row) before `place` in a full node, and return the first entry, which it displaces."""
    first, first_row = nodes[node], nodes[node + header[ROOM]]
    copy_entries(nodes, header, node + 1, node, place - 1)
    nodes[node + place - 1] = key
    nodes[node + header[ROOM] + place - 1] = row
    return first, first_row


@subroutine
def _borrow_previous(nodes: Words, header: Words, node: int, place: int) -> int:
    """Close the gap at `place` with the entry before the node's first entry.

    Return the node that lent it, at the bottom of the left side.
    """
    lender: int = _outermost(nodes, nodes[node + LEFT], RIGHT)
    copy_entries(nodes, header, node, node + 1, place)
    nodes[lender + COUNT] -= 1
    copy_entries(nodes, header, lender + nodes[lender + COUNT], node, 1)
    return lender


@subroutine
def _find_place_before(nodes: Words, node: int) -> tuple[int, int, int]:
    """Return where the entry just before `node` goes: (node, side of a new leaf if it is full, place in it)."""
    if nodes[node + LEFT] == NONE:
        return node, LEFT, 0
    before = _outermost(nodes, nodes[node + LEFT], RIGHT)
    return before, RIGHT, nodes[before + COUNT]


@subroutine
def _repair(nodes: Words, header: Words, node: int) -> None:
    """Restore the law after `node`, a leaf or half-leaf, lost an entry.

    A pair is merged at m entries, not as soon as it fits one node, so that the next insert does not split it again.
    """
    child = find_only_child(nodes, node)
    top = node if child != NONE else nodes[node + UP]
    leaf = NONE if top == NONE else find_only_child(nodes, top)
    if leaf != NONE:
        emptied = nodes[top + COUNT] == 0 or nodes[leaf + COUNT] == 0
        if emptied or nodes[top + COUNT] + nodes[leaf + COUNT] <= min_inner_entries(header[NODE_SIZE]):
            _merge_leaf(nodes, header, top, leaf)
            rebalance(nodes, header, top)
    elif nodes[node + COUNT] == 0:
        replace_child(nodes, header, top, node, NONE)
        release_node(nodes, header, FREE, node)
        rebalance(nodes, header, top)


@subroutine
def _merge_leaf(nodes: Words, header: Words, top: int, leaf: int) -> None:
    if nodes[top + LEFT] == leaf:
        move_to_next(nodes, header, leaf, top, nodes[leaf + COUNT])
    else:
        move_to_previous(nodes, header, top, leaf, nodes[leaf + COUNT])
    replace_child(nodes, header, top, leaf, NONE)
    release_node(nodes, header, FREE, leaf)


@subroutine
def _new_leaf(nodes: Words, header: Words, parent: int, key: int, row: int) -> int:
    node: int = take_free_node(nodes, header, FREE)
    if node == NONE:
        node = header[USED] * _node_words(header[NODE_SIZE]) + HEAD
        header[USED] += 1
    nodes[node + COUNT] = 0
    nodes[node + LEFT] = NONE
    nodes[node + RIGHT] = NONE
    nodes[node + UP] = parent
    nodes[node + HEIGHT] = 1
    insert_entry(nodes, header, node, 0, key, row)
    return node


LEFT = LINK
RIGHT = -4
HEIGHT = -5
HEAD = 5


@register_jitable
def min_inner_entries(node_size: int) -> int:
    """Return the entries that a node with two children holds at least.

    Two below the most, as Lehman and Carey advise, absorbs updates that even out.
    """
    return max(1, node_size - 2)


@subroutine
def has_two_children(nodes: Words, node: int) -> bool:
    return bool(nodes[node + LEFT] != NONE and nodes[node + RIGHT] != NONE)


@subroutine
def find_only_child(nodes: Words, node: int) -> int:
    """Return the child of a half-leaf; NONE for a leaf and for a node with two children."""
    if has_two_children(nodes, node):
        return NONE
    return max(nodes[node + LEFT], nodes[node + RIGHT])  # type: ignore[no-any-return] # numba's int


@subroutine
def rebalance(nodes: Words, header: Words, node: int) -> None:
    """Correct heights from `node`, whose subtree changed, towards the root, and rotate where sides differ by two."""
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


@subroutine
def _rotate(nodes: Words, header: Words, top: int, side: int) -> int:
    """Shorten the side of `top` that is two higher than the other; return the node that is on top now."""
    other = LEFT + RIGHT - side
    rising: int = nodes[top + side]
    if _height(nodes, nodes[rising + other]) > _height(nodes, nodes[rising + side]):
        rising = nodes[rising + other]
        _fill_from_partner(nodes, header, rising)
        _lift(nodes, header, rising)
    else:
        _fill_from_partner(nodes, header, rising)
    _lift(nodes, header, rising)
    return rising


@subroutine
def _fill_from_partner(nodes: Words, header: Words, node: int) -> None:
    """Give a leaf or half-leaf that is about to get two children its missing entries, from its pair's other node."""
    lacking = min_inner_entries(header[NODE_SIZE]) - nodes[node + COUNT]
    if lacking <= 0:
        return
    partner = find_only_child(nodes, node)
    if partner == NONE:
        partner = nodes[node + UP]
        partner_is_before = nodes[partner + RIGHT] == node
    else:
        partner_is_before = nodes[node + LEFT] == partner
    if partner_is_before:
        move_to_next(nodes, header, partner, node, lacking)
    else:
        move_to_previous(nodes, header, node, partner, lacking)


@subroutine
def _lift(nodes: Words, header: Words, node: int) -> None:
    """Rotate `node` over its parent: the parent becomes its child and adopts the subtree between the two."""
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


@subroutine
def replace_child(nodes: Words, header: Words, parent: int, old: int, new: int) -> None:
    """Replace `old` by `new`, which may be NONE, below `parent`, or at the root if `parent` is NONE."""
    if parent == NONE:
        header[ROOT] = new
    elif nodes[parent + LEFT] == old:
        nodes[parent + LEFT] = new
    else:
        nodes[parent + RIGHT] = new
    if new != NONE:
        nodes[new + UP] = parent


@subroutine
def _height(nodes: Words, node: int) -> int:
    if node == NONE:
        return 0
    return nodes[node + HEIGHT]  # type: ignore[no-any-return] # numba's int


@subroutine
def _set_height(nodes: Words, node: int) -> None:
    nodes[node + HEIGHT] = 1 + max(_height(nodes, nodes[node + LEFT]), _height(nodes, nodes[node + RIGHT]))
