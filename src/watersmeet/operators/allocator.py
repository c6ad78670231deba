"""Settings of the memory allocator, so that the CPU time of a batch does not depend on the batches before it."""

from __future__ import annotations

from functools import cache

import numpy as np

_LARGE_BATCH_BYTES = 31 << 20  # the GNU allocator adapts to blocks of up to 32 MiB


@cache
def keep_freed_memory() -> None:
    """Make the allocator keep freed memory, as after a large batch; otherwise small batches pay for fresh pages."""
    np.empty(_LARGE_BATCH_BYTES, np.uint8)
