"""Progress lines of the command: their number depends on the speed of the machine."""

from __future__ import annotations

import re

_PROGRESS_LINE = re.compile(r"^\d\d:\d\d:\d\d  .*\n", re.MULTILINE)


def remove_progress_lines(stderr: str) -> str:
    """Return the rest of what the command printed on stderr."""
    return _PROGRESS_LINE.sub("", stderr)
