"""Interning: rows of int64 words become dense numbers 0, 1, 2, … in order of first appearance; equal rows share one.

An open-addressing directory over the known rows, compared word by word, so equal numbers mean equal rows: nothing has
to be re-checked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64_2D, INT, OUT_INT64, OUT_INT64_2D, kernel, piece
from watersmeet.kernels.hashing import mix

NONE = -1


@kernel(IN_INT64_2D, OUT_INT64, OUT_INT64_2D, INT)
def intern_words(
    words: NDArray[np.int64], slots: NDArray[np.int64], known: NDArray[np.int64], used: int
) -> tuple[NDArray[np.int64], int]:
    """The number of each row of words, and how many rows are known then; `slots` (a power of two) and `known` have room
    for all.
    """
    numbers = np.empty(words.shape[0], np.int64)
    for row in range(words.shape[0]):
        slot = slot_of(words, row, slots, known)
        if slots[slot] == NONE:
            slots[slot] = used
            for word in range(words.shape[1]):
                known[used, word] = words[row, word]
            used += 1
        numbers[row] = slots[slot]
    return numbers, used


def intern_words_definition(known: dict[tuple[int, ...], int], words: list[tuple[int, ...]]) -> list[int]:
    """The law of `intern_words`.

    >>> intern_words_definition({}, [(7, 1), (7, 2), (7, 1)])
    [0, 1, 0]
    """
    return [known.setdefault(row, len(known)) for row in words]


@kernel(OUT_INT64_2D, INT, OUT_INT64)
def place_words(known: NDArray[np.int64], used: int, slots: NDArray[np.int64]) -> None:
    """Fills a larger directory with the rows known so far."""
    slots[:] = NONE
    for row in range(used):
        slots[slot_of(known, row, slots, known)] = row


@piece
def slot_of(words: NDArray[np.int64], row: int, slots: NDArray[np.int64], known: NDArray[np.int64]) -> int:
    """Where the number of this row of words stands, or the free slot where it would."""
    bits = np.uint64(0)
    for word in range(words.shape[1]):
        bits = mix(np.int64(bits ^ np.uint64(words[row, word])))
    mask = slots.size - 1
    slot = np.int64(bits & np.uint64(mask))
    while slots[slot] != NONE and not _same_row(words, row, known, slots[slot]):
        slot = (slot + 1) & mask
    return slot  # type: ignore[return-value] # numba's int


@piece
def _same_row(words: NDArray[np.int64], row: int, known: NDArray[np.int64], number: int) -> bool:
    for word in range(words.shape[1]):  # noqa: SIM110 # all() of a generator is not Numba
        if words[row, word] != known[number, word]:
            return False
    return True
