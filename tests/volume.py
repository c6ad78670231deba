"""Volume of generated tests: how many seeds and examples a run checks.

`make test` checks a volume that takes minutes. `make test-long` sets WATERSMEET_VOLUME to multiply it, and
WATERSMEET_SEED moves a run to other seeds.
"""

from __future__ import annotations

import os

VOLUME = float(os.environ.get("WATERSMEET_VOLUME", "1"))


def scale_volume(count: int) -> int:
    """Return how many cases to check where `make test` checks `count`."""
    return max(1, round(count * VOLUME))
