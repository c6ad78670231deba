"""A window indexed by a B+tree: entries (key, row) in linked leaves, separators above them.

The law holds between two operations:

- Every leaf but the root holds from ⌊(N+1)/2⌋ to N entries.
- Every inner node but the root holds from ⌊N/2⌋ to N separators.
- All leaves are equally deep.
- A separator is at least every entry on its left and below every entry on its right.

So a probe reads one node per level, and the arena is bounded whatever the history (`arena_words`).

Assumptions: N is at least 2, and (key, row) is held at most once. Keys and rows are any int64. Entries of one key are
sorted by row.

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams", eq. 5. Comer, "The Ubiquitous
B-Tree", 1979.
"""

from __future__ import annotations

from numba.extending import register_jitable

from watersmeet.errors import InternalError
from watersmeet.kernels.compile import subroutine
from watersmeet.kernels.tree_nodes import (
    COUNT,
    FREE,
    FREE_INNER,
    HEADER,
    INSERTS,
    LEVELS,
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
    USED_INNER,
    Words,
    copy_entries,
    copy_words,
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

_HEAD = 3


@register_jitable
def arena_words(rows: int, node_size: int) -> int:
    """Return the words of an arena for at most `rows` rows at a time, whatever the inserts and removes before.

    Leaves: each but a lone root holds ⌊(N+1)/2⌋ entries. Inner levels: each node but the root has ⌊N/2⌋ + 1 children.
    An insert only takes nodes and a remove only releases them. So no operation needs more nodes on its way than the
    larger of the trees before and after.

    >>> arena_words(rows=1, node_size=100), arena_words(rows=100, node_size=100)
    (205, 717)
    """
    if node_size < 2:
        raise InternalError("a tree node must hold at least two entries")
    leaves = max(1, rows // ((node_size + 1) // 2))
    inner = 0
    level = leaves
    while level > 1:
        level = max(1, level // (node_size // 2 + 1))
        inner += level
    return leaves * _leaf_words(node_size) + inner * _inner_words(node_size)


@register_jitable
def _leaf_words(node_size: int) -> int:
    """Return the words of a leaf: head, keys, rows.

    One place is spare, so that a node may overflow first and be split afterwards.
    """
    return _HEAD + 2 * (node_size + 1)


@register_jitable
def _inner_words(node_size: int) -> int:
    return _leaf_words(node_size) + node_size + 2


@subroutine
def clear(nodes: Words, header: Words, node_size: int) -> None:
    """Make the tree empty and its counters zero."""
    header[:HEADER] = 0
    header[NODE_SIZE] = node_size
    header[ROOM] = node_size + 1
    header[FREE] = NONE
    header[FREE_INNER] = NONE
    header[ROOT] = _new_leaf(nodes, header)


@subroutine
def insert(nodes: Words, header: Words, key: int, row: int) -> None:
    """Add the entry (key, row)."""
    header[INSERTS] += 1
    leaf = _find_leaf(nodes, header, key, row)
    insert_entry(nodes, header, leaf, find_entry_place(nodes, header, leaf, 0, key, row), key, row)
    if nodes[leaf + COUNT] > header[NODE_SIZE]:
        _split_leaf(nodes, header, leaf)


@subroutine
def remove(nodes: Words, header: Words, key: int, row: int) -> bool:
    """Remove the entry (key, row); return False if it is not there."""
    leaf = _find_leaf(nodes, header, key, row)
    place = find_entry_place(nodes, header, leaf, 0, key, row)
    if not is_entry(nodes, header, leaf, place, key, row):
        return False
    header[REMOVES] += 1
    remove_entry(nodes, header, leaf, place)
    if leaf != header[ROOT] and nodes[leaf + COUNT] < (header[NODE_SIZE] + 1) // 2:
        _repair_leaf(nodes, header, leaf)
    return True


@subroutine
def renumber(nodes: Words, header: Words, dropped: int) -> None:
    """Subtract a number from the row of every entry and separator. Their order stays the same.

    Released nodes are renumbered as well, which does no harm: they are empty when they are taken again.
    """
    for leaf in range(header[USED]):
        renumber_node(nodes, header, leaf * _leaf_words(header[NODE_SIZE]) + _HEAD, dropped)
    for inner in range(1, header[USED_INNER] + 1):
        renumber_node(nodes, header, nodes.size - inner * _inner_words(header[NODE_SIZE]) + _HEAD, dropped)


@subroutine
def probe(nodes: Words, header: Words, low: int, high: int, out: Words, at: int) -> int:
    """Write the rows of all entries with `low <= key <= high` into `out`, and return the place after the last.

    Rows are written from place `at` on, ordered by key and row.
    """
    header[PROBES] += 1
    start = at
    leaf = _find_first_leaf(nodes, header, low)
    first = count_keys_below(nodes, header, leaf, low)
    while leaf != NONE:
        end = find_range_end(nodes, header, leaf, first, high)
        at = write_rows(nodes, header, leaf, first, end, out, at)
        if end < nodes[leaf + COUNT]:
            break
        leaf, first = nodes[leaf + LINK], 0
    header[TOUCHED] += at - start
    return at


@subroutine
def count_range(nodes: Words, header: Words, low: int, high: int) -> int:
    """Return how many rows `probe` would write."""
    header[PROBES] += 1
    found = 0
    leaf = _find_first_leaf(nodes, header, low)
    first = count_keys_below(nodes, header, leaf, low)
    while leaf != NONE:
        end = find_range_end(nodes, header, leaf, first, high)
        found += end - first
        if end < nodes[leaf + COUNT]:
            break
        leaf, first = nodes[leaf + LINK], 0
    header[TOUCHED] += found
    return found


@subroutine
def _find_first_leaf(nodes: Words, header: Words, low: int) -> int:
    """Return the leaf where keys from `low` on begin; if it holds none of them, the next leaf begins with them."""
    node: int = header[ROOT]
    children = 2 * header[ROOM]
    for _ in range(header[LEVELS]):
        node = nodes[node + children + count_keys_below(nodes, header, node, low)]
    return node


@subroutine
def _find_leaf(nodes: Words, header: Words, key: int, row: int) -> int:
    """Return the leaf where (key, row) belongs.

    Each node on the way notes its parent, and each parent notes which child was taken. This is the way back for this
    update. The notes hold for one operation only, so splits and merges need not correct them in nodes they do not
    visit.
    """
    node: int = header[ROOT]
    children = 2 * header[ROOM]
    for _ in range(header[LEVELS]):
        taken = find_entry_place(nodes, header, node, 0, key, row)
        child = nodes[node + children + taken]
        nodes[node + LINK] = taken
        nodes[child + UP] = node
        node = child
    return node


@subroutine
def _split_leaf(nodes: Words, header: Words, leaf: int) -> None:
    """Move the upper half of an overfull leaf to a new leaf on its right.

    The last entry that stays separates the two.
    """
    right = _new_leaf(nodes, header)
    move_to_next(nodes, header, leaf, right, nodes[leaf + COUNT] // 2)
    nodes[right + LINK] = nodes[leaf + LINK]
    nodes[leaf + LINK] = right
    last = leaf + nodes[leaf + COUNT] - 1
    _add_child(nodes, header, leaf, nodes[last], nodes[last + header[ROOM]], right)


@subroutine
def _add_child(nodes: Words, header: Words, left: int, key: int, row: int, right: int) -> None:
    """Add `right` after `left` in the parent, separated by (key, row).

    Inner nodes towards the root are split while they overflow.
    """
    children = 2 * header[ROOM]
    while left != header[ROOT]:
        parent = nodes[left + UP]
        taken = nodes[parent + LINK]
        after = parent + children + taken + 1
        copy_words(nodes, after, after + 1, nodes[parent + COUNT] - taken)
        nodes[after] = right
        insert_entry(nodes, header, parent, taken, key, row)
        if nodes[parent + COUNT] <= header[NODE_SIZE]:
            return
        left = parent
        key, row, right = _split_inner(nodes, header, parent)
    root = _new_inner(nodes, header)
    nodes[root + children] = left
    nodes[root + children + 1] = right
    insert_entry(nodes, header, root, 0, key, row)
    header[ROOT] = root
    header[LEVELS] += 1


@subroutine
def _split_inner(nodes: Words, header: Words, node: int) -> tuple[int, int, int]:
    """Move the upper half of an inner node to a new one; return the separator between the two and the new node.

    The separator stays in neither of them.
    """
    children = 2 * header[ROOM]
    right = _new_inner(nodes, header)
    moved = header[NODE_SIZE] // 2
    move_to_next(nodes, header, node, right, moved)
    nodes[node + COUNT] -= 1
    middle = nodes[node + COUNT]
    copy_words(nodes, node + children + middle + 1, right + children, moved + 1)
    return nodes[node + middle], nodes[node + header[ROOM] + middle], right


@subroutine
def _repair_leaf(nodes: Words, header: Words, leaf: int) -> None:
    """Share entries with a neighbour, or merge the two when both are at the minimum."""
    parent = nodes[leaf + UP]
    separator, left, right = _neighbours(nodes, header, parent)
    total = nodes[left + COUNT] + nodes[right + COUNT]
    if total >= (header[NODE_SIZE] + 1) // 2 * 2:
        # Moving one entry would be enough. Evening out makes the next removes here free of repair.
        if nodes[left + COUNT] > nodes[right + COUNT]:
            move_to_next(nodes, header, left, right, nodes[left + COUNT] - (total + 1) // 2)
        else:
            move_to_previous(nodes, header, left, right, (total + 1) // 2 - nodes[left + COUNT])
        copy_entries(nodes, header, left + nodes[left + COUNT] - 1, parent + separator, 1)
        return
    move_to_previous(nodes, header, left, right, nodes[right + COUNT])
    nodes[left + LINK] = nodes[right + LINK]
    release_node(nodes, header, FREE, right)
    _drop_child(nodes, header, parent, separator)
    _repair_inner(nodes, header, parent)


@subroutine
def _repair_inner(nodes: Words, header: Words, node: int) -> None:
    """Repair inner nodes towards the root while they are below the minimum.

    A root with one child is replaced by that child.
    """
    least = header[NODE_SIZE] // 2
    while node != header[ROOT] and nodes[node + COUNT] < least:
        parent = nodes[node + UP]
        separator, left, right = _neighbours(nodes, header, parent)
        if nodes[left + COUNT] + nodes[right + COUNT] >= 2 * least:
            _share_child(nodes, header, parent, separator, left, right)
            return
        _merge_inner(nodes, header, parent, separator, left, right)
        node = parent
    root = header[ROOT]
    if header[LEVELS] > 0 and nodes[root + COUNT] == 0:
        header[ROOT] = nodes[root + 2 * header[ROOM]]
        header[LEVELS] -= 1
        release_node(nodes, header, FREE_INNER, root)


@subroutine
def _neighbours(nodes: Words, header: Words, parent: int) -> tuple[int, int, int]:
    """Return the separator's place and the two nodes around it.

    They are the child taken and the one on its left, or on its right if it is the first.
    """
    separator = max(nodes[parent + LINK] - 1, 0)
    left = parent + 2 * header[ROOM] + separator
    return separator, nodes[left], nodes[left + 1]


@subroutine
def _share_child(nodes: Words, header: Words, parent: int, separator: int, left: int, right: int) -> None:
    """Move one child from the fuller of two inner nodes to the other, and rotate the separator through the parent."""
    children = 2 * header[ROOM]
    if nodes[left + COUNT] > nodes[right + COUNT]:
        copy_words(nodes, right + children, right + children + 1, nodes[right + COUNT] + 1)
        nodes[right + children] = nodes[left + children + nodes[left + COUNT]]
        insert_entry(nodes, header, right, 0, nodes[parent + separator], nodes[parent + header[ROOM] + separator])
        nodes[left + COUNT] -= 1
        copy_entries(nodes, header, left + nodes[left + COUNT], parent + separator, 1)
    else:
        copy_entries(nodes, header, parent + separator, left + nodes[left + COUNT], 1)
        nodes[left + COUNT] += 1
        nodes[left + children + nodes[left + COUNT]] = nodes[right + children]
        copy_words(nodes, right + children + 1, right + children, nodes[right + COUNT])
        copy_entries(nodes, header, right, parent + separator, 1)
        remove_entry(nodes, header, right, 0)


@subroutine
def _merge_inner(nodes: Words, header: Words, parent: int, separator: int, left: int, right: int) -> None:
    """Append the separator and all of `right` to `left`."""
    children = 2 * header[ROOM]
    copy_entries(nodes, header, parent + separator, left + nodes[left + COUNT], 1)
    nodes[left + COUNT] += 1
    copy_words(nodes, right + children, left + children + nodes[left + COUNT], nodes[right + COUNT] + 1)
    move_to_previous(nodes, header, left, right, nodes[right + COUNT])
    release_node(nodes, header, FREE_INNER, right)
    _drop_child(nodes, header, parent, separator)


@subroutine
def _drop_child(nodes: Words, header: Words, parent: int, separator: int) -> None:
    """Remove the separator at `separator` and the child on its right."""
    dropped = parent + 2 * header[ROOM] + separator + 1
    copy_words(nodes, dropped + 1, dropped, nodes[parent + COUNT] - separator - 1)
    remove_entry(nodes, header, parent, separator)


@subroutine
def _new_leaf(nodes: Words, header: Words) -> int:
    node: int = take_free_node(nodes, header, FREE)
    if node == NONE:
        node = header[USED] * _leaf_words(header[NODE_SIZE]) + _HEAD
        header[USED] += 1
    nodes[node + COUNT] = 0
    nodes[node + LINK] = NONE
    return node


@subroutine
def _new_inner(nodes: Words, header: Words) -> int:
    """Return an empty inner node.

    Inner nodes come from the arena's far end. So leaves, nearly all of the tree, need no words for children.
    """
    node: int = take_free_node(nodes, header, FREE_INNER)
    if node == NONE:
        header[USED_INNER] += 1
        node = nodes.size - header[USED_INNER] * _inner_words(header[NODE_SIZE]) + _HEAD
    nodes[node + COUNT] = 0
    return node
