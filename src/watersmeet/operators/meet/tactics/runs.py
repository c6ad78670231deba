"""The production tactic: grouped runs per pane, grown one input at a time, a batch at once. See `operators.meet.expand`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from watersmeet.algebra.plan import Plan
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.operators.meet.expand import Combinations, combinations
from watersmeet.operators.meet.pane import Pane, Panes
from watersmeet.operators.meet.tactics.base import Reach, Search, Tactic, Tally, refuse_knobs
from watersmeet.operators.meet.watch import PROBE


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "indexes", "evaluate_us", "expire_us", "cleanup_rows")
    return search


def search(config: MeetConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane], tally: Tally) -> Iterator[tuple[Reach, Combinations]]:
    """One origin after the other, by the batch rule: new rows meet old and new rows of inputs before theirs, old rows of those after."""
    for origin in config.streams:
        if not len(new[origin]):
            continue
        reach = {i: _reach(i, origin, panes, new) for i, panes in enumerate(old)}
        if all(len(panes) for panes in reach.values()):
            for found in tally.watch.each(PROBE, combinations(config, origin, reach, partial(_count, tally, origin)), origin):
                yield reach, found


def _count(tally: Tally, origin: int, target: int, probes: int, met: int) -> None:
    tally.probes[origin, target] += probes
    tally.touched[origin, target] += met


def _reach(number: int, origin: int, old: tuple[Pane, ...], new: dict[int, Pane]) -> Panes:
    if number == origin:
        return Panes((new[number],))
    if number < origin and number in new and len(new[number]):
        return Panes((*old, new[number]))
    return Panes(old)


RUNS = Tactic("runs", "grouped runs, ours", settle, kernel_thetas=False)
