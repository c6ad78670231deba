"""Mutants of HAVING and of TUMBLE with EVERY."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.properties.mutants.mutant import Original, single_patch_mutant
from watersmeet.algebra.windows import TumbleWindow
from watersmeet.operators.aggregate import config, encoding, extremes, result_set, serialization, step
from watersmeet.operators.aggregate.window_rows import OUTSIDE
from watersmeet.operators.expressions import is_true
from watersmeet.operators.shed import aggregation as shed

#: Chooses the groups that count as shown now and before. Arguments: shown by HAVING now and before, empty now and
#: before, and HAVING of the rows now.
Rule = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]


def _shown_by(rule: Rule) -> Callable[[Original], Original]:
    """Decide by another rule which groups are shown, and which were at the previous evaluation."""

    def make(emit: Original) -> Original:
        def emit_by_rule(self: Any, as_of_us: Any, groups: Any, now: Any, then: Any) -> Any:
            differs = result_set._find_differing_groups(now, then)
            groups_left, now_left, then_left = groups[differs], now.take(differs), then.take(differs)
            shown, was_shown = self._find_shown(groups_left, now_left), self._find_shown(groups_left, then_left)
            having = self.config.group_outputs.having
            holds = np.ones(groups_left.size, np.bool_)
            if having is not None and groups_left.size:
                holds = is_true(having, self._group_columns(groups_left, now_left), groups_left.size)
            answers = iter(rule(shown, was_shown, now_left.is_empty, then_left.is_empty, holds))
            self._find_shown = lambda *_: next(answers)
            try:
                return emit(self, as_of_us, groups, now, then)
            finally:
                del self._find_shown

        return emit_by_rule

    return make


def _restored_without(names: tuple[str, ...]) -> Callable[[Original], Original]:
    """Restore nothing of these columns at a restart."""

    def make(restore: Original) -> Original:
        def skip_restored_columns(self: Any, words: Any, dirty: Any, sums: Any, spanning: Any) -> None:
            restore(
                self,
                words,
                dirty,
                {name: np.zeros_like(each) if name in names else each for name, each in sums.items()},
                spanning,
            )

        return skip_restored_columns

    return make


def _forget_shown_extreme(restore: Original) -> Original:
    return lambda self, words, counts, shown: restore(self, words, counts, np.full_like(shown, -1))


def _as_without_every(original: Original) -> Original:
    return lambda window, times, every_us: original(window, times, None)


def _as_with_every(original: Original) -> Original:
    return lambda window, times, every_us: original(window, times, 1)


def _tiles_later_by(more_us: int) -> Callable[[Original], Original]:
    def make(original: Original) -> Original:
        def shift_tiles(window: Any, times: Any, every_us: int | None) -> Any:
            moved = more_us if isinstance(window, TumbleWindow) and every_us is not None else 0
            return original(window, times, every_us) + moved

        return shift_tiles

    return make


def _tiles_rounded_towards_zero(original: Original) -> Original:
    def round_tiles_towards_zero(window: Any, times: Any, every_us: int | None) -> Any:
        if not isinstance(window, TumbleWindow) or every_us is None:
            return original(window, times, every_us)
        return (np.fix(times / window.length_us).astype(np.int64) + 1) * window.length_us

    return round_tiles_towards_zero


def _slide(original: Original) -> Original:
    def end_after_each_row(window: Any, times: Any, every_us: int | None) -> Any:
        tile = isinstance(window, TumbleWindow) and every_us is not None
        return times + window.length_us if tile else original(window, times, every_us)

    return end_after_each_row


def _end_at_the_largest_time(_: Original) -> Original:
    return lambda windows, largest_us: largest_us


def _end_with_the_first_tile(original: Original) -> Original:
    return lambda windows, largest_us: min((original([each], largest_us) for each in windows), default=largest_us)


def _inside_from_their_times_on(_: Original) -> Original:
    def count_from_row_times(settings: Any, number: int, rows: Any, evaluated_us: int) -> Any:
        here = rows.take(rows.ends >= evaluated_us)
        inside = here.times <= evaluated_us if settings.inputs[number].is_stream else np.ones(len(here), np.bool_)
        return here.with_entries(np.where(inside, 0, OUTSIDE))

    return count_from_row_times


def _first_instants_for_times(encode: Original) -> Original:
    def encode_first_instants(settings: Any, layout: Any, number: int, *rest: Any) -> Any:
        found = encode(settings, layout, number, *rest)
        return replace(found, times=settings.row_starts_us(number, found.times))

    return encode_first_instants


def _at_times(original: Original) -> Original:
    """Search instants as if rows entered at their times; a row at a tile's start is then searched too early."""
    return lambda starts_us, ends_us, *rest: original([each - 1 for each in starts_us], ends_us, *rest)


def _keep_tiles(with_hidden: Original) -> Original:
    return lambda source, every_us: with_hidden(source, None)


def _keep_ranges(begins: Original) -> Original:
    """Count whatever the range finds in the tile it began in."""
    return lambda window, times, every_us: (
        begins(window, times, every_us) - (10**9 if isinstance(window, TumbleWindow) else 0)
    )


#: Caught by the comparison of generated queries with the oracle.
HAVING_MUTANTS = (
    single_patch_mutant(
        "HAVING compares only displayed values",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s, ~we)),
    ),
    single_patch_mutant(
        "no group was shown before",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s, w & False)),
    ),
    single_patch_mutant(
        "everybody was shown before",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s, w | True)),
    ),
    single_patch_mutant(
        "HAVING decides about an emptied group",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s, w & (~e | h))),
    ),
    single_patch_mutant(
        "a hidden group is emitted when it empties",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s, w | (e & ~we))),
    ),
    single_patch_mutant(
        "a group stays shown once HAVING held",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s | (w & ~e), w)),
    ),
    single_patch_mutant(
        "HAVING reads the previous evaluation",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (w & ~e, w)),
    ),
    single_patch_mutant(
        "an empty group is shown where HAVING is true of it",
        result_set.ResultSet,
        "_emit_changes",
        _shown_by(lambda s, w, e, we, h: (s | (e & h), w)),
    ),
    single_patch_mutant(
        "a restart forgets who was shown",
        result_set.ResultSet,
        "restore",
        _restored_without(("emitted_ints", "emitted_approx", "emitted_pairs")),
    ),
    single_patch_mutant(
        "a restart forgets the MIN and MAX shown last", extremes.Extremes, "restore", _forget_shown_extreme
    ),
    single_patch_mutant("a tile has expired at its right end", encoding, "row_ends_us", _as_without_every),
    single_patch_mutant("a tile stays one microsecond too long", encoding, "row_ends_us", _tiles_later_by(1)),
    single_patch_mutant("a tile is as long after each row", encoding, "row_ends_us", _slide),
    single_patch_mutant(
        "tiles before the epoch end towards zero", encoding, "row_ends_us", _tiles_rounded_towards_zero
    ),
    single_patch_mutant("a row at the tile's start counts at once", config, "row_starts_us", _as_without_every),
    single_patch_mutant("every row of a tile counts a microsecond late", config, "row_starts_us", _tiles_later_by(1)),
    single_patch_mutant("tiles end as with EVERY where there is none", encoding, "row_ends_us", _as_with_every),
    single_patch_mutant("tiles start as with EVERY where there is none", config, "row_starts_us", _as_with_every),
    single_patch_mutant("the last tile is never shown", config, "last_instant_us", _end_at_the_largest_time),
    single_patch_mutant(
        "the end of the input shows the shortest tile only", config, "last_instant_us", _end_with_the_first_tile
    ),
    single_patch_mutant("pair constraints compare first instants", step, "encode_rows", _first_instants_for_times),
    single_patch_mutant("instants are looked for at times", step, "find_evaluation_instants", _at_times),
)

#: Caught by the hand-written timelines, which also run through the shedding aggregation without shedding.
SHEDDING_TILE_MUTANTS = (
    single_patch_mutant(
        "a shedding run joins tiles that end before their instant", shed, "_declare_hidden_columns", _keep_tiles
    ),
    single_patch_mutant(
        "a shedding run counts whatever a range as long as the tile finds", shed, "row_starts_us", _keep_ranges
    ),
    single_patch_mutant("a shedding run never shows the last tile", shed, "last_instant_us", _end_at_the_largest_time),
    single_patch_mutant("a shedding run starts tiles at once", shed, "row_starts_us", _as_without_every),
)

#: Caught by the timeline that restarts between all batches: a restart must fall exactly on the end of a tile.
TILE_RESTART_MUTANTS = (
    single_patch_mutant(
        "a restart counts a row at the tile's start as inside",
        serialization,
        "_drop_expired_rows",
        _inside_from_their_times_on,
    ),
)
