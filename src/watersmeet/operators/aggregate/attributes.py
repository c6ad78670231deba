"""Carried attributes of an input: numbers for distinct combinations of values, and for combinations of group keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.operators.aggregate.codes import Interner, ValueCodes, decode_dictionary
from watersmeet.operators.aggregate.config import CarriedAttributes
from watersmeet.operators.arrow_arrays import null_array

Int64s = NDArray[np.int64]


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
