"""The production tactic: grouped runs per pane, grown one input at a time, a batch at once. See
`operators.meet.expand`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from watersmeet.algebra.plan import Plan
from watersmeet.operators import parallel as cores
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.matches import Combinations, combinations, origin_pieces
from watersmeet.operators.window_join.pane import Pane, Panes
from watersmeet.operators.window_join.tactics.tactic import Reach, Search, Tactic, refuse_knobs
from watersmeet.operators.window_join.work_counters import PROBE, Tally


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "indexes", "evaluate_us", "expire_us", "cleanup_rows")
    return search


def prepare(config: MeetConfig, new: dict[int, Pane]) -> None:
    """Builds the runs of new panes that will be looked up, in this stretch or later ones."""
    last = _by_new_rows(config, new)[-1]
    looked_up = {
        i: pane
        for i, pane in new.items()
        if len(pane) and (i != last or pane.outlasts_batch(config.inputs[i].retention_us))
    }
    _build_runs(
        (looked_up[step.target], step.key_classes)
        for steps in config.orders
        for step in steps
        if step.target in looked_up
    )


def search(
    config: MeetConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane], tally: Tally
) -> Iterator[tuple[Reach, Combinations]]:
    """One origin after the other, by the batch rule: new rows meet old and new rows of inputs before theirs, old rows
    of those after.

    Any order of the inputs finds the same. Here the input with the most new rows is the last one: its rows look others
    up and nobody looks them up, so there is no run to build of them until the next batch, if they are kept till then.
    """
    before = [Panes(panes) for panes in old]
    with_new = [Panes((*panes, new[i])) if i in new and len(new[i]) else before[i] for i, panes in enumerate(old)]
    ranks = {i: rank for rank, i in enumerate(_by_new_rows(config, new))}
    reaches = {}
    for origin in config.streams:
        reach = _reach(origin, ranks, before, with_new) | {origin: Panes((new[origin],))}
        if all(len(panes) for panes in reach.values()):
            reaches[origin] = reach
    _build_runs(wanted for origin, reach in reaches.items() for wanted in _looked_at(config, origin, reach))
    for origin, reach in reaches.items():
        with tally.watch.on(PROBE, origin):
            pieces = [(piece, Tally(tally.inputs)) for piece in origin_pieces(config, origin, reach[origin])]
        for found in cores.parallel_flat_map(partial(_grown, config, origin, reach), pieces, len(reach[origin])):
            yield reach, found
        for _, its in pieces:
            tally.add(its)


def _grown(config: MeetConfig, origin: int, reach: Reach, piece: tuple[Combinations, Tally]) -> Iterator[Combinations]:
    """A piece has its own tally: several may grow at the same time."""
    rows, tally = piece
    return tally.watch.each(PROBE, combinations(config, origin, reach, rows, partial(_count, tally, origin)), origin)


def _by_new_rows(config: MeetConfig, new: dict[int, Pane]) -> list[int]:
    return sorted(config.streams, key=lambda i: (len(new[i]), i))


def _reach(origin: int, ranks: dict[int, int], before: list[Panes], with_new: list[Panes]) -> Reach:
    """The same panes for every origin, so that what is put together over them is put together once. Relations have no
    rank.
    """
    return {i: with_new[i] if ranks.get(i, ranks[origin]) < ranks[origin] else before[i] for i in range(len(before))}


def _build_runs(wanted: Iterable[tuple[Pane, tuple[int, ...]]]) -> None:
    """Access paths of large panes, side by side; the others are built when they are first probed."""
    missing = {
        (id(pane), classes): pane
        for pane, classes in wanted
        if classes and len(pane) >= cores.MIN_PARALLEL_ROWS and not pane.has_run(classes)
    }
    cores.parallel_map(lambda each: each[1].run(each[0][1]), list(missing.items()), cores.MIN_PARALLEL_ROWS)


def _looked_at(config: MeetConfig, origin: int, reach: Reach) -> Iterator[tuple[Pane, tuple[int, ...]]]:
    """Panes that are probed, and that of the origin itself where it will be: its rows probe in the order of their run."""
    steps = config.orders[origin]
    for step in steps:
        yield from ((pane, step.key_classes) for pane in reach[step.target].panes)
    (own,) = reach[origin].panes
    if steps and own.outlasts_batch(config.inputs[origin].retention_us):
        yield own, steps[0].key_classes


def _count(tally: Tally, origin: int, target: int, probes: int, met: int, tested: int) -> None:
    tally.probes[origin, target] += probes
    tally.touched[origin, target] += met
    tally.tested[origin] += tested


RUNS = Tactic("runs", "grouped runs, ours", settle, kernel_thetas=False, prepare=prepare)
