"""Exact int64 codes for values of any type: equal codes mean equal values, so later stages never compare values.

If a type fits into 64 bits, the code is computed from the value. Otherwise values are numbered in order of appearance,
and the numbers are part of the state. `Interner` numbers rows of several codes in the same way, and `Attributes`
numbers the combinations of values and of group keys that an input carries.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import null_array
from watersmeet.kernels.aggregation.directories import intern_words, rehash_words
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.aggregate.config import CarriedAttributes
from watersmeet.operators.keys import encode_keys, has_exact_codes
from watersmeet.operators.window_join.join_predicates import encode_ordered, is_orderable

Int64s = NDArray[np.int64]


class Interner:
    """Numbers rows of `width` words: 0, 1, 2, … in order of first appearance."""

    def __init__(self, width: int):
        self.used = 0
        self._known = np.empty((16, width), np.int64)
        self._slots = np.full(64, -1, np.int64)

    @property
    def words(self) -> Int64s:
        """Known rows, by number."""
        return self._known[: self.used]

    def intern(self, words: Int64s) -> Int64s:
        """Return the number of each row; new rows get the next numbers."""
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
            rehash_words(self._known, self.used, self._slots)


@dataclass
class ValueNumbering:
    """Values of a type that does not fit a code, numbered in order of appearance."""

    type: pa.DataType
    known: dict[Hashable, int] = field(default_factory=dict)
    _values: pa.Array[Any] | None = None

    def encode(self, values: pa.Array[Any]) -> Int64s:
        """Return the number of each value. Values are not null."""
        encoded = values.dictionary_encode()
        numbers = [self.known.setdefault(value, len(self.known)) for value in encoded.dictionary.to_pylist()]
        return np.array(numbers, np.int64)[encoded.indices.to_numpy()] if numbers else np.empty(0, np.int64)

    @property
    def values(self) -> pa.Array[Any]:
        """Known values, by number."""
        if self._values is None or len(self._values) != len(self.known):
            self._values = pa.array(list(self.known), self.type)
        return self._values

    @property
    def ranks(self) -> Int64s:
        """Rank of each number's value among all values. Two values never change their relative order."""
        order = pc.sort_indices(self.values).to_numpy()
        ranks = np.empty(order.size, np.int64)
        ranks[order] = np.arange(order.size)
        return ranks


@dataclass
class ValueCodes:
    """Codes of one attribute's values for equality. Nulls become zero."""

    type: pa.DataType
    numbering: ValueNumbering | None = None

    @classmethod
    def for_type(cls, kind: pa.DataType) -> ValueCodes:
        """Return an encoder for values of this type."""
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        exact = pa.types.is_null(plain) or has_exact_codes(plain)
        return cls(plain, None if exact else ValueNumbering(plain))

    def encode(self, values: pa.Array[Any]) -> Int64s:
        """Return the code of each value."""
        return _encode_present(
            decode_dictionary(values), encode_keys if self.numbering is None else self.numbering.encode
        )


@dataclass
class OrderCodes:
    """Codes of one attribute's values that also give their order and can be decoded. Nulls become zero."""

    type: pa.DataType
    numbering: ValueNumbering | None = None

    @classmethod
    def for_type(cls, kind: pa.DataType) -> OrderCodes:
        """Return an encoder for values of this type."""
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        return cls(plain, None if pa.types.is_null(plain) or is_orderable(plain) else ValueNumbering(plain))

    def encode(self, values: pa.Array[Any]) -> Int64s:
        """Return the code of each value."""
        return _encode_present(
            decode_dictionary(values), encode_ordered if self.numbering is None else self.numbering.encode
        )

    def rank(self, codes: Int64s) -> Int64s:
        """Return numbers that compare as the values known so far do."""
        return codes if self.numbering is None or not codes.size else self.numbering.ranks[codes]

    def decode(self, codes: Int64s, missing: NDArray[np.bool_]) -> pa.Array[Any]:
        """Return the values of codes, null where they are missing."""
        if pa.types.is_null(self.type):
            return pa.nulls(codes.size)
        if self.numbering is not None:
            return self.numbering.values.take(pa.array(np.where(missing, 0, codes), pa.int64(), mask=missing))
        return _decode_codes(self.type, codes, missing)


def combine_row_codes(columns: Sequence[pa.Array[Any]], rows: int) -> Int64s:
    """Return one code per row, computed from its values and nulls.

    Rows with equal values have equal codes in every process and every batch.

    >>> one, other, again = combine_row_codes([pa.array([1, None, 1]), pa.array(["x", "x", "x"])], 3).tolist()
    >>> one == again, one == other
    (True, False)
    """
    found = np.zeros(rows, np.int64)
    for column in map(decode_dictionary, columns):
        if not pa.types.is_null(column.type):
            found = combine_codes(found, _encode_present(column, encode_keys))
            found = combine_codes(found, np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.int64))
    return found


def decode_dictionary(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return dictionary-encoded values as plain values."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _encode_present(values: pa.Array[Any], codes: Any) -> Int64s:
    if not values.null_count:
        return np.asarray(codes(values), np.int64) if len(values) else np.empty(0, np.int64)
    spread = np.zeros(len(values), np.int64)
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if valid.any():
        spread[valid] = codes(values.drop_null())
    return spread


def _decode_codes(kind: pa.DataType, codes: Int64s, missing: NDArray[np.bool_]) -> pa.Array[Any]:
    if pa.types.is_floating(kind):
        bits = np.where(codes < 0, codes ^ np.int64(2**63 - 1), codes)
        return pa.array(bits.view(np.float64), mask=missing).cast(kind)
    if pa.types.is_uint64(kind):
        return pa.array((codes ^ np.int64(-(2**63))).view(np.uint64), mask=missing)
    if pa.types.is_temporal(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(codes.astype(storage.to_pandas_dtype()), mask=missing).cast(kind)
    return pa.array(codes, mask=missing).cast(kind)


@dataclass
class ValueColumns:
    """Values by number, one growing column per attribute."""

    types: tuple[pa.DataType, ...]
    _parts: list[list[pa.Array[Any]]] = field(init=False)

    def __post_init__(self) -> None:
        self._parts = [[] for _ in self.types]

    def append(self, columns: list[pa.Array[Any]]) -> None:
        """Append one array per attribute."""
        for parts, column in zip(self._parts, columns, strict=True):
            parts.append(column)

    def column(self, place: int) -> pa.Array[Any]:
        """Return all values of one attribute as one array."""
        parts = self._parts[place]
        if len(parts) != 1:
            self._parts[place] = parts = [pa.concat_arrays(parts) if parts else null_array(0, self.types[place])]
        return parts[0]

    def take(self, place: int, numbers: Int64s) -> pa.Array[Any]:
        """Return the values of one attribute at these numbers."""
        return self.column(place).take(numbers)


class Attributes:
    """Carried attributes of one input: numbers of value combinations, and the values of each number."""

    def __init__(self, carried: CarriedAttributes):
        types = tuple(kind.value_type if pa.types.is_dictionary(kind) else kind for kind in carried.types)
        self.carried = carried
        self.coders = [ValueCodes.for_type(kind) for kind in types]
        self.values = ValueColumns(types)
        self._numbers = Interner(len(types) + 1)
        self._groups = Interner(carried.group_keys + 1)
        self._group_of: Int64s = np.empty(0, np.int64)
        self._example_of: Int64s = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._numbers.used

    @property
    def words(self) -> Int64s:
        """Code words of the combinations, by number."""
        return self._numbers.words

    def restore(self, words: Int64s, columns: list[pa.Array[Any]]) -> None:
        """Restore the combinations from their words and values, in the order of their numbers."""
        if words.shape[0]:
            self._add_combinations(columns, words, self._numbers.intern(words), 0)

    def number_rows(self, columns: list[pa.Array[Any]], rows: int) -> Int64s:
        """Return the number of each row's combination of values."""
        columns = [decode_dictionary(column) for column in columns]
        words = np.zeros((rows, len(columns) + 1), np.int64)
        for place, (coder, column) in enumerate(zip(self.coders, columns, strict=True)):
            words[:, place] = coder.encode(column)
            if column.null_count:
                words[:, -1] |= np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.int64) << place
        before = len(self)
        numbers = self._numbers.intern(words)
        if len(self) > before:
            self._add_combinations(columns, words, numbers, before)
        return numbers

    def groups(self, numbers: Int64s) -> Int64s:
        """Return the number of the group keys in each combination."""
        return self._group_of[numbers]

    def examples(self, groups: Int64s) -> Int64s:
        """Return one combination with each of these group keys."""
        return self._example_of[groups]

    def group_values(self, place: int, groups: Int64s) -> pa.Array[Any]:
        """Return the values of one group key, by group number."""
        return self.values.take(place, self._example_of[groups])

    def _add_combinations(self, columns: list[pa.Array[Any]], words: Int64s, found: Int64s, before: int) -> None:
        """Store the values of new combinations, each from the first row that has it."""
        fresh = np.flatnonzero(found >= before)
        _, at = np.unique(found[fresh], return_index=True)
        first = fresh[at]
        self.values.append([column.take(first) for column in columns])
        keys = self.carried.group_keys
        mask = words[first, -1:] & ((1 << keys) - 1)
        known = self._groups.used
        groups = self._groups.intern(np.concatenate([words[first, :keys], mask], axis=1))
        self._group_of = np.concatenate([self._group_of, groups])
        examples = np.full(self._groups.used - known, -1, np.int64)
        new = groups >= known
        examples[groups[new][::-1] - known] = (before + np.flatnonzero(new))[::-1]
        self._example_of = np.concatenate([self._example_of, examples])
