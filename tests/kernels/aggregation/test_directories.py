"""Interning of rows of int64 words, compared with a Python dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.aggregation.directories import intern_words_definition
from watersmeet.operators.aggregate.codes import Interner

WORDS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


@given(
    st.integers(0, 3).flatmap(lambda width: st.lists(st.lists(st.tuples(*[WORDS] * width), max_size=50), max_size=6))
)
@settings(deadline=None)
def test_interning_numbers_rows_like_a_dict(batches: list[list[tuple[int, ...]]]) -> None:
    width = next((len(row) for batch in batches for row in batch), 0)
    interner, known = Interner(width), dict[tuple[int, ...], int]()
    for batch in batches:
        words = np.array(batch, np.int64).reshape(len(batch), width)
        assert interner.intern(words).tolist() == intern_words_definition(known, batch)
    assert [tuple(row) for row in interner.words.tolist()] == list(known)


def test_interning_the_same_rows_again_returns_the_same_numbers() -> None:
    interner = Interner(2)
    words = np.stack([np.arange(100_000) // 3, np.arange(100_000) % 7], axis=1)
    numbers = interner.intern(words)
    assert np.array_equal(interner.words[numbers], words)
    assert np.array_equal(interner.intern(words), numbers)
