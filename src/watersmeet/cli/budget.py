"""What the machine gives, as options say it."""

from __future__ import annotations

import re

import watersmeet as wm
from watersmeet.errors import InputError

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(kB|MB|GB|TB|B)?", re.IGNORECASE)
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def declared_budget(processors: float | None, headroom: float, memory: str | None) -> wm.Budget | None:
    """What the machine gives; None where nothing is said of it.

    >>> declared_budget(2.0, 0.25, "500 MB")
    Budget(processors=2.0, headroom=0.25, memory_bytes=500000000.0, objective='cpu')
    """
    if processors is None and not headroom and memory is None:
        return None
    return wm.Budget(
        1.0 if processors is None else processors, headroom, None if memory is None else _size_bytes(memory)
    )


def _size_bytes(text: str) -> float:
    size = _SIZE.fullmatch(text.strip())
    if size is None:
        raise InputError(f'--memory "{text[:40]}" is not a size', hint="write 500MB, 2GB or a number of bytes")
    return float(size[1]) * _BYTES[(size[2] or "").upper()]
