"""Depth of nested JSON, checked before Arrow reads it: Arrow's reader recurses, and deep nesting ends the process by a
stack overflow.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from watersmeet.errors import InputError

MAX_NESTING = 64

_BLOCK_BYTES = 1 << 24
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
#: `[` and `{` differ in this bit only, and so do `]` and `}`.
_CASE_BIT = 0x20
_NEWLINE = ord("\n")


def refuse_deep_nesting(opened: BinaryIO) -> None:
    """Refuse lines of JSON nested more than `MAX_NESTING` deep, in time linear in the file."""
    rest = b""
    while block := opened.read(_BLOCK_BYTES):
        lines, newline, rest = (rest + block).rpartition(b"\n")
        _check_lines(lines + newline)
    _check_lines(rest)


def nesting_depth(line: bytes) -> int:
    """Return how deep the brackets of one line nest, strings left out.

    >>> nesting_depth(b'{"a": [1, [2]], "b": "[[["}')
    3
    """
    return int(np.cumsum(_steps(np.frombuffer(_STRING.sub(b"", line), np.uint8))).max(initial=0))


def _check_lines(lines: bytes) -> None:
    # Brackets inside strings count here too: that is quick, and can only make a line look too deep. Only such lines are
    # looked at again.
    signs = np.frombuffer(lines, np.uint8)
    brackets = np.flatnonzero(
        ((signs | _CASE_BIT) == ord("{")) | ((signs | _CASE_BIT) == ord("}")) | (signs == _NEWLINE)
    )
    found = signs[brackets]
    ends = np.flatnonzero(found == _NEWLINE)
    totals = np.cumsum(_steps(found))
    line_of = np.searchsorted(ends, np.arange(found.size), side="left")
    before = np.concatenate([[0], totals[ends]])[line_of]
    for number in np.unique(line_of[totals - before > MAX_NESTING]):
        start = 0 if number == 0 else brackets[ends[number - 1]] + 1
        end = brackets[ends[number]] if number < ends.size else len(lines)
        if nesting_depth(lines[start:end]) > MAX_NESTING:
            raise InputError(f"a row nests objects and lists more than {MAX_NESTING} deep")


def _steps(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return +1 for each opening bracket, -1 for each closing one, 0 for the rest."""
    folded = signs | _CASE_BIT
    steps: npt.NDArray[np.int64] = (folded == ord("{")).astype(np.int64) - (folded == ord("}"))
    return steps
