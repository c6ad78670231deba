"""XXH64: the kernels against the definition in plain Python, at every length and from every seed."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.hashing import hash_int32s, hash_int64s, hash_strings, xxhash64_definition

seeds = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=100)), max_size=20), seeds)
def test_strings_of_any_length_hash_as_defined(texts: list[bytes | None], seed: int) -> None:
    hashes = np.full(len(texts), seed, np.int64)
    offsets = np.cumsum([0, *(len(text or b"") for text in texts)]).astype(np.int64)
    data = np.frombuffer(b"".join(text or b"" for text in texts) or b"\0", np.uint8)
    hash_strings(hashes, data, offsets, np.array([text is not None for text in texts], np.bool_))
    assert hashes.tolist() == [seed if text is None else xxhash64_definition(text, seed) for text in texts]


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), seeds)
def test_four_byte_numbers_hash_as_their_bytes(numbers: list[int], seed: int) -> None:
    hashes = np.full(len(numbers), seed, np.int64)
    hash_int32s(hashes, np.array(numbers, np.int32), np.ones(len(numbers), np.bool_))
    assert hashes.tolist() == [xxhash64_definition(struct.pack("<i", number), seed) for number in numbers]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), seeds)
def test_eight_byte_numbers_hash_as_their_bytes(numbers: list[int], seed: int) -> None:
    hashes = np.full(len(numbers), seed, np.int64)
    hash_int64s(hashes, np.array(numbers, np.int64), np.ones(len(numbers), np.bool_))
    assert hashes.tolist() == [xxhash64_definition(struct.pack("<q", number), seed) for number in numbers]
