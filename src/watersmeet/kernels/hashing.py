"""Hashes of keys and of columns: the same bits in every process and on every machine.

Keys of any width become 64 well-mixed bits (`mix_bits`). The mixing step is the finaliser of splitmix64. It is a
bijection, so mixing alone never makes two different keys equal.

Columns are hashed by XXH64, bit for bit as Spark SQL's `xxhash64` does: the hash after a column is the seed for the
next. There is one kernel per width of value: 4 bytes, 8 bytes, and strings of any length. A row whose value is missing
keeps its hash.

References: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. Collet, "xxHash fast digest
algorithm", the 64-bit variant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_BOOL, IN_INT32, IN_INT64, IN_UINT8, OUT_INT64, kernel, subroutine

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@subroutine
def mix_bits(key: int) -> np.uint64:
    """Spread the bits of one key over all 64."""
    bits = np.uint64(key) + _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


@kernel(IN_INT64, IN_INT64)
def combine_codes(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Combine two codes per row into one.

    Different pairs may share a code, so matches have to be rechecked.
    """
    combined = np.empty(first.size, np.int64)
    for row in range(first.size):
        combined[row] = np.int64(mix_bits(np.int64(mix_bits(first[row]) ^ np.uint64(second[row]))))
    return combined


@kernel(IN_UINT8, IN_INT64)
def hash_slices(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one code per byte string `data[offsets[i]:offsets[i + 1]]`.

    Eight bytes are mixed at a time; the length is mixed in first.
    """
    codes = np.empty(offsets.size - 1, np.int64)
    for row in range(codes.size):
        start, stop = offsets[row], offsets[row + 1]
        state = mix_bits(stop - start)
        at = start
        while at + 8 <= stop:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            state = mix_bits(np.int64(state ^ word))
            at += 8
        word = np.uint64(0)
        for byte in range(stop - at):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        codes[row] = np.int64(mix_bits(np.int64(state ^ word)))
    return codes


_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LOW_HALF = np.uint64(0xFFFFFFFF)


@kernel(OUT_INT64, IN_INT32, IN_BOOL, allocates=False)
def hash_int32s(hashes: NDArray[np.int64], values: NDArray[np.int32], present: NDArray[np.bool_]) -> None:
    """Fold a column of 4-byte values into the hash of every row."""
    for row in range(hashes.size):
        if present[row]:
            state = np.uint64(hashes[row]) + _PRIME_5 + np.uint64(4)
            hashes[row] = np.int64(_avalanche(_absorb_half_word(state, np.uint64(values[row]) & _LOW_HALF)))


@kernel(OUT_INT64, IN_INT64, IN_BOOL, allocates=False)
def hash_int64s(hashes: NDArray[np.int64], values: NDArray[np.int64], present: NDArray[np.bool_]) -> None:
    """Fold a column of 8-byte values into the hash of every row."""
    for row in range(hashes.size):
        if present[row]:
            state = np.uint64(hashes[row]) + _PRIME_5 + np.uint64(8)
            hashes[row] = np.int64(_avalanche(_absorb_word(state, np.uint64(values[row]))))


@kernel(OUT_INT64, IN_UINT8, IN_INT64, IN_BOOL, allocates=False)
def hash_strings(
    hashes: NDArray[np.int64], data: NDArray[np.uint8], offsets: NDArray[np.int64], present: NDArray[np.bool_]
) -> None:
    """Fold a column of byte strings `data[offsets[i]:offsets[i + 1]]` into the hash of every row."""
    for row in range(hashes.size):
        if present[row]:
            hashes[row] = np.int64(_hash_bytes(data, offsets[row], offsets[row + 1], np.uint64(hashes[row])))


@subroutine
def _hash_bytes(data: NDArray[np.uint8], start: int, stop: int, seed: np.uint64) -> np.uint64:
    at = start
    if stop - start >= 32:
        one, two = seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2
        three, four = seed, seed - _PRIME_1
        while at + 32 <= stop:
            one, two = _round(one, _read_bytes(data, at, 8)), _round(two, _read_bytes(data, at + 8, 8))
            three, four = _round(three, _read_bytes(data, at + 16, 8)), _round(four, _read_bytes(data, at + 24, 8))
            at += 32
        state = _rotate_left(one, 1) + _rotate_left(two, 7) + _rotate_left(three, 12) + _rotate_left(four, 18)
        state = _merge_lane(_merge_lane(_merge_lane(_merge_lane(state, one), two), three), four)
    else:
        state = seed + _PRIME_5
    return np.uint64(_avalanche(_hash_tail(data, at, stop, state + np.uint64(stop - start))))


@subroutine
def _hash_tail(data: NDArray[np.uint8], at: int, stop: int, state: np.uint64) -> np.uint64:
    """Hash the bytes after the last full 32: words, then half a word, then bytes."""
    while at + 8 <= stop:
        state = _absorb_word(state, _read_bytes(data, at, 8))
        at += 8
    if at + 4 <= stop:
        state = _absorb_half_word(state, _read_bytes(data, at, 4))
        at += 4
    while at < stop:
        state = _rotate_left(state ^ (np.uint64(data[at]) * _PRIME_5), 11) * _PRIME_1
        at += 1
    return state


@subroutine
def _absorb_word(state: np.uint64, value: np.uint64) -> np.uint64:
    return np.uint64(_rotate_left(state ^ _round(np.uint64(0), value), 27) * _PRIME_1 + _PRIME_4)


@subroutine
def _absorb_half_word(state: np.uint64, value: np.uint64) -> np.uint64:
    return np.uint64(_rotate_left(state ^ (value * _PRIME_1), 23) * _PRIME_2 + _PRIME_3)


@subroutine
def _round(lane: np.uint64, value: np.uint64) -> np.uint64:
    return np.uint64(_rotate_left(lane + value * _PRIME_2, 31) * _PRIME_1)


@subroutine
def _merge_lane(state: np.uint64, lane: np.uint64) -> np.uint64:
    return np.uint64((state ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4)


@subroutine
def _avalanche(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(33))) * _PRIME_2
    state = (state ^ (state >> np.uint64(29))) * _PRIME_3
    return state ^ (state >> np.uint64(32))


@subroutine
def _rotate_left(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@subroutine
def _read_bytes(data: NDArray[np.uint8], at: int, width: int) -> np.uint64:
    """Return `width` bytes as a number, the lowest byte first."""
    value = np.uint64(0)
    for byte in range(width):
        value |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return value


def xxhash64_definition(data: bytes, seed: int) -> int:
    """Return XXH64 of one byte string in plain Python, as a signed number.

    >>> f"{xxhash64_definition(b'', 0) % 2**64:x}", f"{xxhash64_definition(b'abc', 0) % 2**64:x}"
    ('ef46db3751d8e999', '44bc2cf5ad770999')
    """
    p1, p2, p3, p4, p5 = (int(prime) for prime in (_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5))
    most = 2**64 - 1

    def rotate(value: int, bits: int) -> int:
        return (value << bits | (value & most) >> (64 - bits)) & most

    def round_of(lane: int, value: int) -> int:
        return rotate((lane + value * p2) & most, 31) * p1 & most

    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 8)]
    whole = len(data) // 32 * 4
    if whole:
        lanes = [(seed + p1 + p2) & most, (seed + p2) & most, seed & most, (seed - p1) & most]
        for number, word in enumerate(words[:whole]):
            lanes[number % 4] = round_of(lanes[number % 4], word)
        state = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & most
        for lane in lanes:
            state = ((state ^ round_of(0, lane)) * p1 + p4) & most
    else:
        state = (seed + p5) & most
    state = (state + len(data)) & most
    for word in words[whole:]:
        state = (rotate(state ^ round_of(0, word), 27) * p1 + p4) & most
    rest = data[len(words) * 8 :]
    if len(rest) >= 4:
        state = (rotate(state ^ (int.from_bytes(rest[:4], "little") * p1 & most), 23) * p2 + p3) & most
        rest = rest[4:]
    for byte in rest:
        state = rotate(state ^ (byte * p5 & most), 11) * p1 & most
    state = (state ^ state >> 33) * p2 & most
    state = (state ^ state >> 29) * p3 & most
    state ^= state >> 32
    return state - 2**64 if state >= 2**63 else state
