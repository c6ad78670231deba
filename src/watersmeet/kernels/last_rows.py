"""The last C rows of a stream, or of each of its partitions: which row leaves when a new one arrives.

Each partition is a linked list of sequence numbers, oldest first. Nodes live in flat arrays, so the state is a few
buffers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, INT, OUT_INT64, kernel

NONE = -1


@kernel(IN_INT64, INT, INT, *[OUT_INT64] * 5, INT)
def push_rows(
    partitions: NDArray[np.int64],
    first_seq: int,
    capacity: int,
    oldest: NDArray[np.int64],
    newest: NDArray[np.int64],
    held: NDArray[np.int64],
    node_seq: NDArray[np.int64],
    node_next: NDArray[np.int64],
    nodes: int,
) -> tuple[NDArray[np.int64], int]:
    """Append rows `first_seq, first_seq + 1, …`, the i-th to `partitions[i]`.

    Return one evicted row per new row, or NONE, and the number of nodes in use. A full partition reuses the node of the
    evicted row. So the nodes grow with the rows held, never with the rows seen.
    """
    leaving = np.full(partitions.size, NONE, np.int64)
    for at in range(partitions.size):
        partition = partitions[at]
        if held[partition] == capacity:
            node = oldest[partition]
            leaving[at] = node_seq[node]
            oldest[partition] = node_next[node]
        else:
            node = nodes
            nodes += 1
            held[partition] += 1
        node_seq[node] = first_seq + at
        node_next[node] = NONE
        if oldest[partition] == NONE:
            oldest[partition] = node
        else:
            node_next[newest[partition]] = node
        newest[partition] = node
    return leaving, nodes


def push_rows_definition(held: dict[int, list[int]], partitions: list[int], first_seq: int, capacity: int) -> list[int]:
    """Return what `push_rows` evicts, on plain lists: its law.

    >>> push_rows_definition({}, [0, 0, 0], first_seq=7, capacity=2)
    [-1, -1, 7]
    """
    leaving = []
    for at, partition in enumerate(partitions):
        rows = held.setdefault(partition, [])
        rows.append(first_seq + at)
        leaving.append(rows.pop(0) if len(rows) > capacity else NONE)
    return leaving
