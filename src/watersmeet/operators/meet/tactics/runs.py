"""The production tactic: grouped runs per pane, grown one input at a time, a batch at once. See `operators.meet.expand`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from watersmeet.algebra.plan import Plan
from watersmeet.operators import cores
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
    before = [Panes(panes) for panes in old]
    with_new = [Panes((*panes, new[i])) if i in new and len(new[i]) else before[i] for i, panes in enumerate(old)]
    _build_runs(config, with_new)
    for origin in config.streams:
        if not len(new[origin]):
            continue
        reach = {i: _reach(i, origin, before, with_new) for i in range(len(old))} | {origin: Panes((new[origin],))}
        if all(len(panes) for panes in reach.values()):
            for found in tally.watch.each(PROBE, combinations(config, origin, reach, partial(_count, tally, origin)), origin):
                yield reach, found


def _build_runs(config: MeetConfig, reach: list[Panes]) -> None:
    """Access paths of large panes, side by side; the others are built when they are first probed."""
    wanted = {(step.target, step.key_classes) for steps in config.orders for step in steps if step.key_classes}
    large = [(pane, classes) for target, classes in wanted for pane in reach[target].panes if len(pane) >= cores.FEWEST_ROWS]
    cores.each(lambda each: each[0].run(each[1]), large, cores.FEWEST_ROWS)


def _reach(number: int, origin: int, before: list[Panes], with_new: list[Panes]) -> Panes:
    """The same panes for every origin, so that what is put together over them is put together once."""
    return with_new[number] if number < origin else before[number]


def _count(tally: Tally, origin: int, target: int, probes: int, met: int) -> None:
    tally.probes[origin, target] += probes
    tally.touched[origin, target] += met


RUNS = Tactic("runs", "grouped runs, ours", settle, kernel_thetas=False)
