"""Bucket labels: integers that Spark's own hash puts on distinct partitions.

Spark places a group by `pmod(murmur3(label), partitions)`. Buckets numbered 0, 1, 2, … would share partitions and leave
others idle.

References: Appleby, MurmurHash3, the 32-bit variant, with the seed Spark uses.
"""

from __future__ import annotations

_MASK_32 = 0xFFFFFFFF
_SEED = 42


def bucket_labels(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return one label per bucket. Labels are assigned to the partitions in turn; label 0 is always among them.

    >>> labels = bucket_labels(4, 4)
    >>> sorted(partition_of(label, 4) for label in labels)
    [0, 1, 2, 3]
    """
    by_partition: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    per_partition = -(-buckets // partitions)
    label = 0
    while sum(map(len, by_partition.values())) < per_partition * partitions:
        labels = by_partition[partition_of(label, partitions)]
        if len(labels) < per_partition:
            labels.append(label)
        label += 1
    in_turn = [labels[turn] for turn in range(per_partition) for labels in by_partition.values()]
    return tuple(sorted(in_turn, key=lambda each: (each != 0, in_turn.index(each)))[:buckets])


def partition_of(label: int, partitions: int) -> int:
    """Return the partition that Spark assigns to a group with this INT key.

    >>> partition_of(0, 1_000_000)
    211791
    """
    signed = _murmur3(label)
    return (signed - (1 << 32) if signed >> 31 else signed) % partitions


def _murmur3(value: int) -> int:
    mixed = (value * 0xCC9E2D51) & _MASK_32
    mixed = (_rotate_left(mixed, 15) * 0x1B873593) & _MASK_32
    state = (_rotate_left(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK_32
    state ^= 4
    state = ((state ^ state >> 16) * 0x85EBCA6B) & _MASK_32
    state = ((state ^ state >> 13) * 0xC2B2AE35) & _MASK_32
    return state ^ state >> 16


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK_32
