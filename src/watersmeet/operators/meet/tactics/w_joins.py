"""The W-joins and their baselines: n streams on a common attribute, every two rows inside a window of each other.

NLW-join, HW-join and MW-join take one window for all pairs (form 1). Where pairs have windows of their own (forms 2 and 3, derived ones
included, and directed ones), GCA runs MW-join with the largest of them for all and LCA with the largest per stream; both refine what comes
out. NLW-join and HW-join prune by the largest window per stream and refine as well.

References: Hammad, Aref, Elmagarmid, "Joining multiple data streams with window constraints", sections 3 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.plan import DEFAULT_BUCKETS, Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.kernels.wjoin.hw_join import hw_join
from watersmeet.kernels.wjoin.mw_join import mw_join
from watersmeet.kernels.wjoin.nlw_join import nlw_join
from watersmeet.kernels.wjoin.outputs import WindowJoin
from watersmeet.kernels.wjoin.ripple_join import ripple_join
from watersmeet.kernels.wjoin.xjoin import xjoin
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.operators.meet.expand import Combinations, refined, within_bounds
from watersmeet.operators.meet.pane import Int32s, Pane, Panes
from watersmeet.operators.meet.tactics.base import Reach, Search, Tactic, Tally, refuse, refuse_knobs
from watersmeet.operators.meet.tactics.loops import indexes_for

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of all streams as the kernels take them; `numbers` gives back the meet's own row numbers."""

    times: Int64s
    codes: Int64s
    offsets: Int64s
    old: Int64s
    numbers: list[Int32s]


Kernel = Callable[[Rows, int, Int64s], WindowJoin]


def _settle(config: MeetConfig, plan: Plan, *, kernel: Callable[[MeetConfig, Plan], Kernel], one_window: bool, local: bool) -> Search:
    refuse_knobs(plan, "global_order", "orders", "evaluate_us", "expire_us")
    windows = _pair_windows(config, plan)
    largest = windows.max(axis=1)
    window_us = int(largest.max())
    if one_window and np.any(windows[~np.eye(len(windows), dtype=np.bool_)] != window_us):
        raise refuse(plan, "it takes one window for all pairs, and here pairs differ", hint='pin "gca" or "lca"')
    reach_us = largest if local else np.full(len(windows), window_us, np.int64)
    return partial(_search, kernel(config, plan), window_us, reach_us)


def _pair_windows(config: MeetConfig, plan: Plan) -> Int64s:
    """The window of every pair, given or derived. A W-join needs one for each."""
    if len(config.inputs) < 2:
        raise refuse(plan, "a W-join joins at least two streams")
    if len(config.streams) < len(config.inputs):
        raise refuse(plan, "a W-join joins streams, and a relation is among the sources")
    later_by = np.array(config.bounds.later_by_us, np.int64)
    windows = np.maximum(later_by, later_by.T)
    if windows.max() >= FOREVER_US or any(each.has_ends for each in config.inputs):
        raise refuse(plan, "a W-join needs a window in time between every two streams", hint="ROWS, TUMBLE and LANDMARK give none")
    return windows


def _search(
    kernel: Kernel,
    window_us: int,
    reach_us: Int64s,
    config: MeetConfig,
    old: list[tuple[Pane, ...]],
    new: dict[int, Pane],
    tally: Tally,
) -> Iterator[tuple[Reach, Combinations]]:
    reach = {i: Panes((*panes, new[i]) if len(new[i]) else panes) for i, panes in enumerate(old)}
    if not all(len(panes) for panes in reach.values()):
        return
    rows = _rows(config, reach, new)
    joined = kernel(rows, window_us, reach_us)
    for name in ("comparisons", "probes", "touched", "inserts", "expirations"):
        counted = getattr(tally, name)
        counted += getattr(joined.counters, name)
    found = Combinations({i: rows.numbers[i][joined.rows[i]] for i in range(len(old))}, {}, None, None)
    common = _common_class(config)
    compared = frozenset() if common is None else frozenset({common})
    yield reach, refined(config, reach, within_bounds(config, reach, found), compared, config.residuals, tally.tested[:1])


def _rows(config: MeetConfig, reach: Reach, new: dict[int, Pane]) -> Rows:
    """Old rows by time, then new rows by time, stream after stream."""
    common = _common_class(config)
    times: list[Int64s] = []
    codes: list[Int64s] = []
    numbers: list[Int32s] = []
    for i in range(len(config.inputs)):
        its_times = np.concatenate([pane.times for pane in reach[i].panes])
        before = its_times.size - len(new[i])
        number = np.concatenate([np.argsort(its_times[:before], kind="stable"), np.arange(before, its_times.size)]).astype(np.int32)
        its_codes = np.zeros(its_times.size, np.int64)
        if common is not None:
            its_codes = np.concatenate([pane.codes[common] for pane in reach[i].panes])
        times.append(its_times[number])
        codes.append(its_codes[number])
        numbers.append(number)
    sizes = [each.size for each in times]
    return Rows(
        np.concatenate(times),
        np.concatenate(codes),
        np.cumsum([0, *sizes]).astype(np.int64),
        np.array([size - len(new[i]) for i, size in enumerate(sizes)], np.int64),
        numbers,
    )


def _common_class(config: MeetConfig) -> int | None:
    """The equality class that has a key on every input; without one, every pair within the window is a candidate."""
    return next((c for c, members in enumerate(config.classes.keys) if len(members) == len(config.inputs)), None)


def _plain(join: Callable[..., WindowJoin]) -> Callable[[MeetConfig, Plan], Kernel]:
    def make(config: MeetConfig, plan: Plan) -> Kernel:
        refuse_knobs(plan, "indexes", "cleanup_rows")
        _refuse_other_equalities(config, plan)
        return lambda rows, window_us, reach_us: join(rows.times, rows.codes, rows.offsets, rows.old, window_us, reach_us)

    return make


def _cleaned(config: MeetConfig, plan: Plan) -> Kernel:
    refuse_knobs(plan, "indexes")
    every = plan.cleanup_rows
    _refuse_other_equalities(config, plan)
    return lambda rows, window_us, reach_us: ripple_join(rows.times, rows.codes, rows.offsets, rows.old, window_us, reach_us, every)


def _hashed(config: MeetConfig, plan: Plan) -> Kernel:
    refuse_knobs(plan, "cleanup_rows")
    buckets = _buckets(config, plan)
    return lambda rows, window_us, reach_us: hw_join(rows.times, rows.codes, rows.offsets, rows.old, window_us, reach_us, buckets)


def _hashed_and_cleaned(config: MeetConfig, plan: Plan) -> Kernel:
    buckets, every = _buckets(config, plan), plan.cleanup_rows
    return lambda rows, window_us, reach_us: xjoin(rows.times, rows.codes, rows.offsets, rows.old, window_us, reach_us, buckets, every)


def _buckets(config: MeetConfig, plan: Plan) -> Int64s:
    if _common_class(config) is None:
        raise refuse(plan, "it hashes on an attribute that all streams have in common, and there is none")
    indexes = indexes_for(config, plan, Index("hash", DEFAULT_BUCKETS))
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind != "hash":
            raise refuse(plan, f'it hashes every stream, and "{each.alias}" is to be a {index.kind}')
    return np.array([index.size for index in indexes], np.int64)


def _refuse_other_equalities(config: MeetConfig, plan: Plan) -> None:
    """Equalities that no common attribute covers would turn into a product of whole windows."""
    if config.classes.keys and _common_class(config) is None:
        raise refuse(plan, "it joins on one attribute that all streams have in common, and here pairs join on different ones")


def _tactic(name: str, make: Callable[[MeetConfig, Plan], Kernel], *, one_window: bool = False, local: bool = True) -> Tactic:
    return Tactic(
        name,
        f"Hammad, Aref, Elmagarmid: {name}",
        partial(_settle, kernel=make, one_window=one_window, local=local),
        kernel_thetas=False,
    )


NLW_JOIN = _tactic("nlw-join", _plain(nlw_join))
HW_JOIN = _tactic("hw-join", _hashed)
MW_JOIN = _tactic("mw-join", _plain(mw_join), one_window=True)
GCA = _tactic("gca", _plain(mw_join), local=False)
LCA = _tactic("lca", _plain(mw_join))
RIPPLE_JOIN = _tactic("ripple-join", _cleaned, local=False)
XJOIN = _tactic("xjoin", _hashed_and_cleaned, local=False)

W_JOINS = (NLW_JOIN, HW_JOIN, MW_JOIN, GCA, LCA, RIPPLE_JOIN, XJOIN)
