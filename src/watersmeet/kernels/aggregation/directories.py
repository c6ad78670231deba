"""Hash directories of entries and of rows of words.

The entries of one input with the same keys form a chain, and an open-addressing hash table leads to the first. Entries
are added at the front of their chain and removed from anywhere. These functions are inlined into the loops of the AS
join, which allocate nothing.

Interning gives rows of int64 words dense numbers 0, 1, 2, … in order of first appearance; equal rows share one. The
directory compares rows word by word. So equal numbers mean equal rows, and nothing has to be rechecked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import DIRECTORIES, NONE, EntryDirectories, Int64s
from watersmeet.kernels.compile import IN_INT64_2D, INT, OUT_INT64, OUT_INT64_2D, inlined_subroutine, kernel, subroutine
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
    places: int,
    mask: int,
) -> int:
    """Return the first entry of the step's target whose keys are those of the entries chosen so far."""
    bits = np.uint64(0)
    for place in range(places):
        key_class = classes[directory, place]
        if key_class == NONE:
            break
        bits = mix_bits(np.int64(bits ^ np.uint64(key_codes[chosen[providers[origin, level, place]], key_class])))
    slot = np.int64(bits & np.uint64(mask))
    entry = NONE
    while slots[directory, slot] != NONE:
        node = slots[directory, slot]
        same = True
        for place in range(places):
            key_class = classes[directory, place]
            if key_class == NONE:
                break
            if node_codes[directory, node, place] != key_codes[chosen[providers[origin, level, place]], key_class]:
                same = False
                break
        if same:
            entry = head[directory, node]
            break
        slot = (slot + 1) & mask
    return entry


@inlined_subroutine
def link_entry(
    classes: Int64s,
    slots: Int64s,
    node_codes: Int64s,
    head: Int64s,
    nodes: Int64s,
    following: Int64s,
    preceding: Int64s,
    node_of: Int64s,
    key_codes: Int64s,
    directory: int,
    entry: int,
    places: int,
    mask: int,
) -> None:
    """Add the entry at the front of the chain of its keys; create their node if there is none."""
    bits = np.uint64(0)
    for part in range(places):
        key_class = classes[directory, part]
        if key_class == NONE:
            break
        bits = mix_bits(np.int64(bits ^ np.uint64(key_codes[entry, key_class])))
    slot = np.int64(bits & np.uint64(mask))
    node = slots[directory, slot]
    while node != NONE:
        same = True
        for part in range(places):
            key_class = classes[directory, part]
            if key_class == NONE:
                break
            if node_codes[directory, node, part] != key_codes[entry, key_class]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & mask
        node = slots[directory, slot]
    if node == NONE:
        node = nodes[directory]
        nodes[directory] += 1
        slots[directory, slot] = node
        head[directory, node] = NONE
        for part in range(places):
            key_class = classes[directory, part]
            if key_class == NONE:
                break
            node_codes[directory, node, part] = key_codes[entry, key_class]
    first = head[directory, node]
    node_of[directory, entry] = node
    preceding[directory, entry] = NONE
    following[directory, entry] = first
    if first != NONE:
        preceding[directory, first] = entry
    head[directory, node] = entry


@inlined_subroutine
def unlink_entry(
    head: Int64s, following: Int64s, preceding: Int64s, node_of: Int64s, directory: int, entry: int
) -> None:
    earlier, later = preceding[directory, entry], following[directory, entry]
    if earlier == NONE:
        head[directory, node_of[directory, entry]] = later
    else:
        following[directory, earlier] = later
    if later != NONE:
        preceding[directory, later] = earlier


@kernel(DIRECTORIES)
def rehash_nodes(directories: EntryDirectories) -> None:
    """Fill larger directories with the existing nodes."""
    mask = directories.slots.shape[1] - 1
    for directory in range(directories.nodes.size):
        places = 0
        while places < directories.classes.shape[1] and directories.classes[directory, places] != NONE:
            places += 1
        for node in range(directories.nodes[directory]):
            bits = np.uint64(0)
            for place in range(places):
                bits = mix_bits(np.int64(bits ^ np.uint64(directories.node_codes[directory, node, place])))
            slot = np.int64(bits & np.uint64(mask))
            while directories.slots[directory, slot] != NONE:
                slot = (slot + 1) & mask
            directories.slots[directory, slot] = node


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
