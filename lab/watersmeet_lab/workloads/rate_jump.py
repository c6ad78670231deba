"""A stream whose rate jumps in the middle of a run: a triangle join in which the best probe order depends on that rate.

Rows of `a` match about two rows in `c`. In `b` they match one row while `b` is slow, and fifty once it is fast. So they
should probe b first before the jump and c first after it. The wrong order makes about fifty partial matches per row for
a fraction of a result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import watersmeet as wm

WINDOW_S = 10
JUMP_QUERY = f"""
    SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id
    FROM a [RANGE {WINDOW_S} SECONDS], b [RANGE {WINDOW_S} SECONDS], c [RANGE {WINDOW_S} SECONDS]
    WHERE a.k = b.k AND a.j = c.j AND b.m = c.m
"""


@dataclass(frozen=True, slots=True)
class RateJump:
    """Batches of one second; the rate of b is `times` as high from batch `at` on.

    If `at` is beyond the last batch, the rate never changes.
    """

    rows_per_s: int = 1_000
    times: int = 50
    batches: int = 60
    at: int = 30
    seed: int = 0

    def streams(self) -> dict[str, wm.Stream | wm.Relation]:
        return {name: wm.stream(self.tables(name), time="ts", unit="us") for name in "abc"}

    def tables(self, name: str) -> list[pa.Table]:
        return [self._batch(name, number) for number in range(self.batches)]

    def _batch(self, name: str, number: int) -> pa.Table:
        rows = self.rows_per_s // self.times if name == "b" and number < self.at else self.rows_per_s
        rng = np.random.default_rng([self.seed, number, ord(name)])
        held = self.rows_per_s * WINDOW_S
        columns = {"k": held // 50, "j": held // 2, "m": held // 2}
        return pa.table(
            {
                "ts": pa.array(number * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))),
                "id": pa.array(np.arange(rows) + number * self.rows_per_s),
                **{column: pa.array(rng.integers(0, distinct, rows)) for column, distinct in columns.items()},
            }
        )
