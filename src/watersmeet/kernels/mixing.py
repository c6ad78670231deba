"""Hashing: keys of any width become 64 well-mixed bits. The same bits in every process and on every machine.

The mixing step is the finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
2014): a bijection, so mixing alone never makes two different keys equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, IN_UINT8, kernel, piece

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@piece
def mix(key: int) -> np.uint64:
    """Spreads the bits of one key over all 64."""
    bits = np.uint64(key) + _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


@kernel(IN_INT64, IN_INT64)
def combine_codes(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """One code per row out of two; different pairs may share one, so matches have to be re-checked."""
    combined = np.empty(first.size, np.int64)
    for row in range(first.size):
        combined[row] = np.int64(mix(np.int64(mix(first[row]) ^ np.uint64(second[row]))))
    return combined


@kernel(IN_UINT8, IN_INT64)
def hash_slices(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """One code per byte string `data[offsets[i]:offsets[i + 1]]`; eight bytes at a time, the length mixed in."""
    codes = np.empty(offsets.size - 1, np.int64)
    for row in range(codes.size):
        start, stop = offsets[row], offsets[row + 1]
        state = mix(stop - start)
        at = start
        while at + 8 <= stop:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            state = mix(np.int64(state ^ word))
            at += 8
        word = np.uint64(0)
        for byte in range(stop - at):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        codes[row] = np.int64(mix(np.int64(state ^ word)))
    return codes
