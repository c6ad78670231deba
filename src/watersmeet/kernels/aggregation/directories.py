"""Hash directories of entries and of rows of words.

The entries of one input with the same keys form a chain. An open-addressing hash table numbers the combinations of
keys, and such a number (a node) leads to the first entry of a chain. Entries are added at the front of their chain and
removed from anywhere. Functions that the AS join needs are inlined into its loops, which allocate nothing.

Interning gives rows of int64 words dense numbers 0, 1, 2, … in order of first appearance; equal rows share one. The
directory compares rows word by word. So equal numbers mean equal rows, and nothing has to be rechecked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import DIRECTORIES, NONE, EntryDirectories, Int64s
from watersmeet.kernels.compile import (
    IN_BOOL,
    IN_INT64,
    IN_INT64_2D,
    INT,
    OUT_INT64,
    OUT_INT64_2D,
    inlined_subroutine,
    kernel,
    subroutine,
)
from watersmeet.kernels.hashing import mix_bits


@inlined_subroutine
def find_first_entry(
    classes: Int64s,
    slots: Int64s,
    node_codes: Int64s,
    head: Int64s,
    key_codes: Int64s,
    providers: Int64s,
    chosen: Int64s,
    origin: int,
    level: int,
    directory: int,
    space: int,
    places: int,
    mask: int,
) -> int:
    """Return the first entry of the step's target whose keys are those of the entries chosen so far."""
    bits = np.uint64(0)
    for place in range(places):
        key_class = classes[space, place]
        if key_class == NONE:
            break
        bits = mix_bits(np.int64(bits ^ np.uint64(key_codes[chosen[providers[origin, level, place]], key_class])))
    slot = np.int64(bits & np.uint64(mask))
    entry = NONE
    while slots[space, slot] != NONE:
        node = slots[space, slot]
        same = True
        for place in range(places):
            key_class = classes[space, place]
            if key_class == NONE:
                break
            if node_codes[space, node, place] != key_codes[chosen[providers[origin, level, place]], key_class]:
                same = False
                break
        if same:
            entry = head[node, directory]
            break
        slot = (slot + 1) & mask
    return entry


@kernel(DIRECTORIES, IN_INT64_2D, IN_INT64, INT)
def find_nodes(
    directories: EntryDirectories, key_codes: NDArray[np.int64], entries: NDArray[np.int64], space: int
) -> None:
    """Find the node of each of these entries in a key space; combinations of keys that are new get the next nodes."""
    classes, slots, node_codes = directories.classes, directories.slots, directories.node_codes
    head, nodes, node_of = directories.head, directories.nodes, directories.node_of
    mask, places = slots.shape[1] - 1, 0
    while places < classes.shape[1] and classes[space, places] != NONE:
        places += 1
    for entry in entries:
        bits = np.uint64(0)
        for place in range(places):
            bits = mix_bits(np.int64(bits ^ np.uint64(key_codes[entry, classes[space, place]])))
        slot = np.int64(bits & np.uint64(mask))
        node = slots[space, slot]
        while node != NONE:
            same = True
            for place in range(places):
                if node_codes[space, node, place] != key_codes[entry, classes[space, place]]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & mask
            node = slots[space, slot]
        if node == NONE:
            node = nodes[space]
            nodes[space] += 1
            slots[space, slot] = node
            for directory in range(head.shape[1]):
                if directories.space_of[directory] == space:
                    head[node, directory] = NONE
            for place in range(places):
                node_codes[space, node, place] = key_codes[entry, classes[space, place]]
        node_of[space, entry] = node


@inlined_subroutine
def link_entry(head: Int64s, following: Int64s, preceding: Int64s, node: int, directory: int, entry: int) -> None:
    """Add the entry at the front of the chain of its keys."""
    first = head[node, directory]
    preceding[directory, entry] = NONE
    following[directory, entry] = first
    if first != NONE:
        preceding[directory, first] = entry
    head[node, directory] = entry


@inlined_subroutine
def unlink_entry(head: Int64s, following: Int64s, preceding: Int64s, node: int, directory: int, entry: int) -> None:
    earlier, later = preceding[directory, entry], following[directory, entry]
    if earlier == NONE:
        head[node, directory] = later
    else:
        following[directory, earlier] = later
    if later != NONE:
        preceding[directory, later] = earlier


@kernel(DIRECTORIES)
def rehash_nodes(directories: EntryDirectories) -> None:
    """Fill larger key spaces with the existing nodes."""
    mask = directories.slots.shape[1] - 1
    for space in range(directories.nodes.size):
        places = 0
        while places < directories.classes.shape[1] and directories.classes[space, places] != NONE:
            places += 1
        for node in range(directories.nodes[space]):
            bits = np.uint64(0)
            for place in range(places):
                bits = mix_bits(np.int64(bits ^ np.uint64(directories.node_codes[space, node, place])))
            slot = np.int64(bits & np.uint64(mask))
            while directories.slots[space, slot] != NONE:
                slot = (slot + 1) & mask
            directories.slots[space, slot] = node


@kernel(DIRECTORIES, IN_BOOL)
def remove_unused_nodes(directories: EntryDirectories, is_used: NDArray[np.bool_]) -> None:
    """Remove the nodes that no used entry has, and renumber the others in order. The caller rehashes them."""
    node_codes, head, nodes, node_of = directories.node_codes, directories.head, directories.nodes, directories.node_of
    for space in range(nodes.size):
        number_of = np.full(nodes[space], NONE, np.int64)
        for entry in range(is_used.size):
            if not is_used[entry]:
                node_of[space, entry] = NONE
            elif node_of[space, entry] != NONE:
                number_of[node_of[space, entry]] = 0
        kept = 0
        for node in range(nodes[space]):
            if number_of[node] == NONE:
                continue
            number_of[node] = kept
            for place in range(node_codes.shape[2]):
                node_codes[space, kept, place] = node_codes[space, node, place]
            for directory in range(head.shape[1]):
                if directories.space_of[directory] == space:
                    head[kept, directory] = head[node, directory]
            kept += 1
        nodes[space] = kept
        for entry in range(is_used.size):
            if node_of[space, entry] != NONE:
                node_of[space, entry] = number_of[node_of[space, entry]]


@kernel(IN_INT64_2D, OUT_INT64, OUT_INT64_2D, INT)
def intern_words(
    words: NDArray[np.int64], slots: NDArray[np.int64], known: NDArray[np.int64], used: int
) -> tuple[NDArray[np.int64], int]:
    """Return the number of each row of words, and how many rows are known then.

    `slots` (a power of two) and `known` have room for all.
    """
    numbers = np.empty(words.shape[0], np.int64)
    for row in range(words.shape[0]):
        slot = find_slot(words, row, slots, known)
        if slots[slot] == NONE:
            slots[slot] = used
            for word in range(words.shape[1]):
                known[used, word] = words[row, word]
            used += 1
        numbers[row] = slots[slot]
    return numbers, used


def intern_words_definition(known: dict[tuple[int, ...], int], words: list[tuple[int, ...]]) -> list[int]:
    """Assign numbers to rows of words in order of first appearance: the law of `intern_words`.

    >>> intern_words_definition({}, [(7, 1), (7, 2), (7, 1)])
    [0, 1, 0]
    """
    return [known.setdefault(row, len(known)) for row in words]


@kernel(OUT_INT64_2D, INT, OUT_INT64)
def rehash_words(known: NDArray[np.int64], used: int, slots: NDArray[np.int64]) -> None:
    """Fill a larger directory with the rows known so far."""
    slots[:] = NONE
    for row in range(used):
        slots[find_slot(known, row, slots, known)] = row


@subroutine
def find_slot(words: NDArray[np.int64], row: int, slots: NDArray[np.int64], known: NDArray[np.int64]) -> int:
    """Return the slot that holds the number of this row of words, or the free slot for it."""
    bits = np.uint64(0)
    for word in range(words.shape[1]):
        bits = mix_bits(np.int64(bits ^ np.uint64(words[row, word])))
    mask = slots.size - 1
    slot = np.int64(bits & np.uint64(mask))
    while slots[slot] != NONE and not _is_same_row(words, row, known, slots[slot]):
        slot = (slot + 1) & mask
    return slot  # type: ignore[return-value] # numba's int


@subroutine
def _is_same_row(words: NDArray[np.int64], row: int, known: NDArray[np.int64], number: int) -> bool:
    for word in range(words.shape[1]):  # noqa: SIM110 # all() of a generator is not Numba
        if words[row, word] != known[number, word]:
            return False
    return True
