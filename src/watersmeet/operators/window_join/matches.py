"""The production tactic: combinations grow one input at a time, by row numbers, in bounded pieces.

From an origin's new rows, each step probes the next input's grouped runs for rows with the same key inside the time
bounds that every row bound so far sets. Candidates whose codes are hashes are compared by value; predicates are checked
at the first step that binds all they read. Nothing of this outlives the call: partial combinations are never state.

A predicate that raises on a partial combination does not stop the query there: the combination goes on, and if it
becomes whole the predicate is evaluated again, with the rule for errors (`expressions.conjunctions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.kernels.gather import gather_int32, gather_int64
from watersmeet.operators.expressions import all_true
from watersmeet.operators.keys import compare_keys
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import Int32s, Int64s, Panes

#: Partial combinations in one piece. Memory is bounded by this times the number of inputs, whatever the number of
#: matches.
PIECE_ROWS = 1 << 18


@dataclass(frozen=True)
class PartialMatches:
    """Row numbers of the inputs bound so far, one array per input, all of one length.

    `latest` is the largest time of the rows so far and `end` the last instant at which all of them are valid; both only
    where some input carries ends. `keys` are the codes of the key classes they were probed with last: rows that met
    agree on them. `retest` are predicates that raised on some of them and have to be tested on whole combinations.
    """

    rows: dict[int, Int32s]
    times: dict[int, Int64s]
    latest: Int64s | None
    end: Int64s | None
    keys: tuple[tuple[int, ...], Int64s] | None = None
    retest: tuple[Expr, ...] = ()

    def __len__(self) -> int:
        return next(iter(self.rows.values())).size

    def filter(self, keep: NDArray[np.bool_]) -> PartialMatches:
        return self if keep.all() else self.take(keep)

    def take(self, chosen: NDArray[np.bool_] | slice) -> PartialMatches:
        return PartialMatches(
            {i: rows[chosen] for i, rows in self.rows.items()},
            {i: times[chosen] for i, times in self.times.items()},
            None if self.latest is None else self.latest[chosen],
            None if self.end is None else self.end[chosen],
            None if self.keys is None else (self.keys[0], self.keys[1][chosen]),
            self.retest,
        )

    def repeat(self, parents: Int32s) -> PartialMatches:
        """The combinations with these numbers, which may come several times."""
        return PartialMatches(
            {i: gather_int32(rows, parents) for i, rows in self.rows.items()},
            {i: gather_int64(times, parents) for i, times in self.times.items()},
            None if self.latest is None else gather_int64(self.latest, parents),
            None if self.end is None else gather_int64(self.end, parents),
            None if self.keys is None else (self.keys[0], gather_int64(self.keys[1], parents)),
            self.retest,
        )


Recheck = Callable[[PartialMatches], NDArray[np.bool_]]


def gather_column(config: JoinConfig, reach: dict[int, Panes], found: PartialMatches, column: Column) -> pa.Array:
    """The values of one column for each combination."""
    if column.source is None:
        raise InternalError(f'column "{column.name}" was never bound')
    number = config.aliases[column.source]
    return reach[number].column(column.name, found.rows[number])


def recheck_matches(
    config: JoinConfig,
    reach: dict[int, Panes],
    found: PartialMatches,
    compared: frozenset[int],
    predicates: tuple[Expr, ...],
    tested: Int64s,
) -> PartialMatches:
    """Drop whole combinations that only values can rule out: keys behind equal hashes, and predicates that no kernel
    checks.

    `compared` are the equality classes whose codes the kernel compared. The number of combinations that predicates are
    evaluated on is added to `tested`.
    """
    doubts: list[Recheck] = []
    for key_class, members in enumerate(config.classes.keys):
        exact = key_class in config.exact_classes
        if not (exact and key_class in compared):
            first, *others = members
            same = have_equal_codes if exact else have_equal_keys
            doubts.extend(partial(same, reach, key_class, first, other) for other in others)
    found = apply_rechecks(doubts, found)
    if predicates and len(found):
        tested += len(found)
        found = found.filter(predicates_hold(config, reach, predicates, found))
    return found


def drop_out_of_bounds(config: JoinConfig, reach: dict[int, Panes], found: PartialMatches) -> PartialMatches:
    """Whole combinations of streams, without those that break a bound between two times."""
    times = {i: reach[i].times(rows) for i, rows in found.rows.items()}
    keep = np.ones(len(found), np.bool_)
    for i, its in times.items():
        for j, others in times.items():
            if i != j and config.bounds.later_by_us[i][j] < FOREVER_US:
                keep &= others - its <= config.bounds.later_by_us[i][j]
    return found if np.all(keep) else found.take(keep)


def apply_rechecks(doubts: list[Recheck], found: PartialMatches) -> PartialMatches:
    for doubt in doubts:
        if not len(found):
            break
        keep = doubt(found)
        if not np.all(keep):
            found = found.take(keep)
    return found


def have_equal_keys(
    reach: dict[int, Panes], key_class: int, here: int, there: int, found: PartialMatches
) -> NDArray[np.bool_]:
    return compare_keys(reach[here].keys(key_class, found.rows[here]), reach[there].keys(key_class, found.rows[there]))


def have_equal_codes(
    reach: dict[int, Panes], key_class: int, here: int, there: int, found: PartialMatches
) -> NDArray[np.bool_]:
    return np.equal(reach[here].codes(key_class, found.rows[here]), reach[there].codes(key_class, found.rows[there]))


def predicates_hold(
    config: JoinConfig, reach: dict[int, Panes], predicates: tuple[Expr, ...], found: PartialMatches
) -> NDArray[np.bool_]:
    return all_true(predicates, lambda column: gather_column(config, reach, found, column), len(found))
