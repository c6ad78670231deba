"""A growing set of rows of words, each with its number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.interning import intern_words, place_words

Int64s = NDArray[np.int64]


class Interner:
    """Numbers rows of `width` words: 0, 1, 2, … in order of first appearance."""

    def __init__(self, width: int):
        self.used = 0
        self._known = np.empty((16, width), np.int64)
        self._slots = np.full(64, -1, np.int64)

    @property
    def words(self) -> Int64s:
        """The rows known so far, by number."""
        return self._known[: self.used]

    def numbers(self, words: Int64s) -> Int64s:
        self._reserve(self.used + words.shape[0])
        found, self.used = intern_words(np.ascontiguousarray(words), self._slots, self._known, self.used)
        return found

    def _reserve(self, rows: int) -> None:
        if rows > self._known.shape[0]:
            grown = np.empty((max(rows, 2 * self._known.shape[0]), self._known.shape[1]), np.int64)
            grown[: self.used] = self.words
            self._known = grown
        if 2 * rows > self._slots.size:
            self._slots = np.empty(1 << int(2 * rows).bit_length(), np.int64)
            place_words(self._known, self.used, self._slots)
