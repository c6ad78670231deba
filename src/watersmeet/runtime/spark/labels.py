"""Bucket labels: integers that Spark's own hash puts on distinct partitions.

Spark places a group by `pmod(murmur3(label), partitions)`. Buckets numbered 0, 1, 2, … would share partitions and leave
others idle.

References: Appleby, MurmurHash3, the 32-bit variant, with the seed Spark uses.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 42


def bucket_labels(buckets: int, partitions: int) -> tuple[int, ...]:
    """One label per bucket, dealt out over the partitions in turns. The label 0 is always among them.

    >>> labels = bucket_labels(4, 4)
    >>> sorted(partition_of(label, 4) for label in labels)
    [0, 1, 2, 3]
    """
    waiting: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    most = -(-buckets // partitions)
    label = 0
    while sum(len(found) for found in waiting.values()) < most * partitions:
        found = waiting[partition_of(label, partitions)]
        if len(found) < most:
            found.append(label)
        label += 1
    in_turns = [found[turn] for turn in range(most) for found in waiting.values()]
    return tuple(sorted(in_turns, key=lambda each: (each != 0, in_turns.index(each)))[:buckets])


def partition_of(label: int, partitions: int) -> int:
    """The partition Spark gives a group with this INT key.

    >>> partition_of(0, 1_000_000)
    211791
    """
    signed = _murmur3(label)
    return (signed - (1 << 32) if signed >> 31 else signed) % partitions


def _murmur3(value: int) -> int:
    mixed = (value * 0xCC9E2D51) & _MASK
    mixed = (_rotated(mixed, 15) * 0x1B873593) & _MASK
    state = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    state ^= 4
    state = ((state ^ state >> 16) * 0x85EBCA6B) & _MASK
    state = ((state ^ state >> 13) * 0xC2B2AE35) & _MASK
    return state ^ state >> 16


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK
