"""What a B+tree and a T-tree keep outside their nodes, and the head every node starts with.

One tree is two flat arrays of int64: `nodes`, an arena, and `header`, the `HEADER` words named here. Both may be slices
of larger arrays. A node's address is the place of its first key in the arena. Its head stands before that place, hence
the negative offsets; its keys stand from there on and the row of the key at place p stands at p + `header[ROOM]`. One
set of pieces (`tree_entries`) so serves both trees.
"""

from __future__ import annotations

NONE = -1

# Words of the header.
NODE_SIZE = 0  # N: entries a node may hold between two operations
ROOM = 1  # entries a node has words for, hence the distance from a key to its row
ROOT = 2
LEVELS = 3  # B+tree: levels of inner nodes above the leaves
COMPARISONS = 4  # an entry's key, and on a tie its row, against the one looked for; a three-way comparison counts once
TOUCHED = 5  # entries found by probes, written out or only counted
PROBES = 6  # calls of `probe` and of `count_range`
INSERTS = 7
REMOVES = 8  # rows that were there and left; inserts less removes is the number of rows held
FREE = 9  # first node given back, the rest follow through LINK
USED = 10  # nodes ever taken from the arena, those given back since included
FREE_INNER = 11  # B+tree: the same two for inner nodes, which are larger and come from the arena's far end
USED_INNER = 12
HEADER = 13

# Words of a node's head, from its address backwards.
COUNT = -1
LINK = -2  # next free node; B+tree: next leaf, or the child an update went down to; T-tree: left child
UP = -3
