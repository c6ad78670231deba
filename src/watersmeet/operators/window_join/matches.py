"""Partial matches by row number, and the rechecks that kernels leave to values.

Every tactic returns its results as matches. A kernel compares int64 codes and times. Keys behind equal hashes and
predicates that no kernel evaluates are checked afterwards on the candidates, vectorized.

A predicate that raises on a partial match does not stop the query there. The match stays. If it becomes complete, the
predicate is evaluated again, with the rule for errors (`expressions.conjunctions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

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

#: Partial matches in one piece. Memory is bounded by this times the number of inputs, whatever the number of matches.
PIECE_ROWS = 1 << 18


@dataclass(frozen=True)
class PartialMatches:
    """Row numbers of the inputs bound so far, one array per input, all of the same length.

    `latest` is the largest time of the bound rows. `end` is the last instant at which all of them are valid. Both are
    set only if some input carries ends. `keys` are the codes of the key classes of the last probe; matching rows agree
    on them. `retest` are predicates that raised on some match and must be tested on complete matches.
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
        """Keep the matches where the mask is true."""
        return self if keep.all() else self.take(keep)

    def take(self, chosen: NDArray[np.bool_] | slice) -> PartialMatches:
        """Return some of the matches, by mask or by slice."""
        return PartialMatches(
            {i: rows[chosen] for i, rows in self.rows.items()},
            {i: times[chosen] for i, times in self.times.items()},
            None if self.latest is None else self.latest[chosen],
            None if self.end is None else self.end[chosen],
            None if self.keys is None else (self.keys[0], self.keys[1][chosen]),
            self.retest,
        )

    def repeat(self, parents: Int32s) -> PartialMatches:
        """Return the matches with these numbers; a number may occur several times."""
        return PartialMatches(
            {i: gather_int32(rows, parents) for i, rows in self.rows.items()},
            {i: gather_int64(times, parents) for i, times in self.times.items()},
            None if self.latest is None else gather_int64(self.latest, parents),
            None if self.end is None else gather_int64(self.end, parents),
            None if self.keys is None else (self.keys[0], gather_int64(self.keys[1], parents)),
            self.retest,
        )


#: Returns for each match whether it passes.
Recheck = Callable[[PartialMatches], NDArray[np.bool_]]


def gather_column(
    config: JoinConfig, reach: dict[int, Panes], matches: PartialMatches, column: Column
) -> pa.Array[Any]:
    """Return the values of one column for each match."""
    if column.source is None:
        raise InternalError(f'column "{column.name}" was never bound')
    number = config.aliases[column.source]
    return reach[number].column(column.name, matches.rows[number])


def recheck_matches(
    config: JoinConfig,
    reach: dict[int, Panes],
    matches: PartialMatches,
    compared: frozenset[int],
    predicates: tuple[Expr, ...],
    tested: Int64s,
) -> PartialMatches:
    """Drop complete matches with unequal keys behind equal hashes, or that fail a predicate that no kernel checks.

    `compared` are the equality classes whose codes the kernel compared. The function adds to `tested` the number of
    matches on which it evaluates predicates.
    """
    rechecks: list[Recheck] = []
    for key_class, members in enumerate(config.classes.keys):
        exact = key_class in config.exact_classes
        if not (exact and key_class in compared):
            first, *others = members
            same = have_equal_codes if exact else have_equal_keys
            rechecks.extend(partial(same, reach, key_class, first, other) for other in others)
    matches = apply_rechecks(rechecks, matches)
    if predicates and len(matches):
        tested += len(matches)
        matches = matches.filter(predicates_hold(config, reach, predicates, matches))
    return matches


def drop_out_of_bounds(config: JoinConfig, reach: dict[int, Panes], matches: PartialMatches) -> PartialMatches:
    """Drop complete matches of streams that violate a bound between two times."""
    times = {i: reach[i].times(rows) for i, rows in matches.rows.items()}
    keep = np.ones(len(matches), np.bool_)
    for i, own in times.items():
        for j, others in times.items():
            if i != j and config.bounds.later_by_us[i][j] < FOREVER_US:
                keep &= others - own <= config.bounds.later_by_us[i][j]
    return matches if np.all(keep) else matches.take(keep)


def apply_rechecks(rechecks: list[Recheck], matches: PartialMatches) -> PartialMatches:
    """Keep the matches that pass every recheck."""
    for recheck in rechecks:
        if not len(matches):
            break
        keep = recheck(matches)
        if not np.all(keep):
            matches = matches.take(keep)
    return matches


def have_equal_keys(
    reach: dict[int, Panes], key_class: int, here: int, there: int, matches: PartialMatches
) -> NDArray[np.bool_]:
    """Return for each match whether the key values of two inputs are equal."""
    return compare_keys(
        reach[here].keys(key_class, matches.rows[here]), reach[there].keys(key_class, matches.rows[there])
    )


def have_equal_codes(
    reach: dict[int, Panes], key_class: int, here: int, there: int, matches: PartialMatches
) -> NDArray[np.bool_]:
    """Return for each match whether the key codes of two inputs are equal."""
    return np.equal(
        reach[here].codes(key_class, matches.rows[here]), reach[there].codes(key_class, matches.rows[there])
    )


def predicates_hold(
    config: JoinConfig, reach: dict[int, Panes], predicates: tuple[Expr, ...], matches: PartialMatches
) -> NDArray[np.bool_]:
    """Return for each match whether all predicates are true."""
    return all_true(predicates, lambda column: gather_column(config, reach, matches, column), len(matches))
