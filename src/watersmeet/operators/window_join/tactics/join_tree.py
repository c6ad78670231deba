"""A tree of two-input joins: each node joins the rows of its two subtrees and stores its results for the node above.

A node joins the new rows of its left side with old and new rows of its right side. It then joins the old rows of its
left side with the new rows of its right side. This gives every match with a new row exactly once. The results of a node
are derived data, like an access path. They are kept between batches next to the base windows, which stay the only
state. After a restart or a plan change, the tree computes them again from the windows and emits none of them.

References: Ayad, Naughton, "Static optimization of conjunctive queries with sliding windows over infinite streams",
section 3: join trees, bushy ones included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from watersmeet.algebra.expressions import sources_of
from watersmeet.algebra.plan import Plan, Tree, tree_leaves
from watersmeet.errors import InternalError, listing
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PartialMatches
from watersmeet.operators.window_join.pane import Pane, Panes, concat_panes
from watersmeet.operators.window_join.tactics.joined_rows import (
    JoinedRows,
    SubtreeLink,
    concat_joined,
    join_subtrees,
    sort_by_latest,
)
from watersmeet.operators.window_join.tactics.tactic import (
    DerivedState,
    OpenParts,
    Reach,
    Search,
    Tactic,
    refuse,
    refuse_options,
)
from watersmeet.operators.window_join.work_counters import WorkCounters

Node = tuple[Tree, Tree]


@dataclass(frozen=True)
class NodeResults:
    """Results of the inner nodes of a tree, in chunks, oldest first."""

    tree: Tree
    nodes: Mapping[Tree, tuple[JoinedRows, ...]]


def compile_plan(config: JoinConfig, plan: Plan) -> Search:
    """Check the tree of a plan, and return the search."""
    refuse_options(plan, "global_order", "orders", "indexes", "evaluate_us", "expire_us", "cleanup_rows")
    tree = plan.tree
    if tree is None:
        raise refuse(plan, "it needs the tree of its joins", hint='write tree=(("a", "b"), "c")')
    if sorted(tree_leaves(tree)) != sorted(config.aliases):
        raise refuse(plan, f"its tree must have each source as a leaf once: {listing(list(config.aliases))}")
    return partial(_search, tree)


def _search(
    tree: Tree,
    config: JoinConfig,
    old: list[tuple[Pane, ...]],
    new: dict[int, Pane],
    tally: WorkCounters,
    derived: DerivedState,
) -> Iterator[tuple[Reach, PartialMatches]]:
    known = derived.take()
    stored = known if isinstance(known, NodeResults) and known.tree == tree else None
    batch = _TreeBatch(config, old, new, tally, {} if stored is None else _evict_expired(config, old, stored))
    for found in batch.new_rows(tree):
        if len(found):
            numbers = np.arange(len(found), dtype=np.int32)
            yield (
                {i: Panes((part,)) for i, part in found.parts.items()},
                PartialMatches(dict.fromkeys(found.parts, numbers), {}, None, None),
            )
    derived.value = NodeResults(tree, batch.grown)


@dataclass
class _TreeBatch:
    """One batch on its way up a tree: `known` has the node results before the batch, `grown` those after it."""

    config: JoinConfig
    old: list[tuple[Pane, ...]]
    new: dict[int, Pane]
    tally: WorkCounters
    known: dict[Tree, tuple[JoinedRows, ...]]
    grown: dict[Tree, tuple[JoinedRows, ...]] = field(default_factory=dict)

    def new_rows(self, node: Tree) -> Iterator[JoinedRows]:
        """Yield the matches of a subtree with at least one new row, each once."""
        if isinstance(node, str):
            number = self.config.aliases[node]
            if number in self.new and len(self.new[number]):
                yield JoinedRows(self.config, {number: self.new[number]})
            return
        link = _link_subtrees(self.config, node)
        before = [self.old_rows(side) for side in node]  # before the new rows are stored
        left, right = (list(self._store_new_rows(side)) for side in node)
        for chunk in left:
            for other in (*before[1], *right):
                yield from self._join_chunks(chunk, other, link)
        for chunk in right:
            for other in before[0]:
                yield from self._join_chunks(chunk, other, link.flip())

    def old_rows(self, node: Tree) -> tuple[JoinedRows, ...]:
        """Return the rows from before this batch: base windows at a leaf, stored results at a node.

        A node without stored results computes them again; these are not emitted.
        """
        if isinstance(node, str):
            number = self.config.aliases[node]
            return tuple(JoinedRows(self.config, {number: pane}) for pane in self.old[number])
        if node not in self.known:
            link = _link_subtrees(self.config, node)
            sides, uncounted = [self.old_rows(side) for side in node], np.zeros(1, np.int64)
            found = [
                each
                for left in sides[0]
                for right in sides[1]
                for _, each in join_subtrees(left, right, link, uncounted)
                if len(each)
            ]
            self.known[node] = (concat_joined([sort_by_latest(each) for each in found]),) if found else ()
        return self.known[node]

    def _store_new_rows(self, side: Tree) -> Iterator[JoinedRows]:
        """Yield all new rows of a side as one chunk, and store them for later batches."""
        found = list(self.new_rows(side))
        merged = (
            [] if not sum(map(len, found)) else [concat_joined([sort_by_latest(each) for each in found if len(each)])]
        )
        if not isinstance(side, str):
            for each in merged:
                self.tally.inserts[min(each.parts)] += len(each)
            self.grown[side] = _compact_chunks([*self.old_rows(side), *merged])
        yield from merged

    def _join_chunks(self, probing: JoinedRows, probed: JoinedRows, link: SubtreeLink) -> Iterator[JoinedRows]:
        origin, target = min(probing.parts), min(probed.parts)
        self.tally.probes[origin, target] += len(probing)
        for candidates, found in join_subtrees(probing, probed, link, self.tally.tested[origin : origin + 1]):
            self.tally.comparisons[origin, target] += candidates
            self.tally.touched[origin, target] += len(found)
            yield found


def _link_subtrees(config: JoinConfig, node: Node) -> SubtreeLink:
    here, there = ([config.aliases[alias] for alias in tree_leaves(side)] for side in node)
    classes = []
    for key_class, members in enumerate(config.classes.keys):
        left, right = (next((i for i in side if i in members), None) for side in (here, there))
        if left is not None and right is not None:
            classes.append((key_class, left, right))
    sides = [{config.inputs[i].alias for i in side} for side in (here, there)]
    both = sides[0] | sides[1]
    ready = (
        check
        for check in config.residuals
        if sources_of(check) <= both and not any(sources_of(check) <= side for side in sides)
    )
    return SubtreeLink(tuple(classes), tuple(ready))


def _compact_chunks(chunks: list[JoinedRows]) -> tuple[JoinedRows, ...]:
    """Merge neighbours while the newer one is at least half as large, like panes."""
    while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
        chunks = [*chunks[:-2], concat_joined(chunks[-2:])]
    return tuple(chunks)


def _evict_expired(
    config: JoinConfig, old: list[tuple[Pane, ...]], stored: NodeResults
) -> dict[Tree, tuple[JoinedRows, ...]]:
    """Evict stored matches of which a row has left its base window.

    Rows that were pushed out of a ROWS window since get their true ends.
    """
    live: dict[Tree, tuple[JoinedRows, ...]] = {}
    for node, chunks in stored.nodes.items():
        live_chunks = [_drop_expired(config, old, chunk) for chunk in chunks]
        live[node] = tuple(chunk for chunk in live_chunks if len(chunk))
    return live


def _drop_expired(config: JoinConfig, old: list[tuple[Pane, ...]], chunk: JoinedRows) -> JoinedRows:
    alive = np.ones(len(chunk), np.bool_)
    parts = dict(chunk.parts)
    for i, part in chunk.parts.items():
        if not config.inputs[i].is_stream:
            continue
        alive &= part.times >= min((int(pane.times[0]) for pane in old[i]), default=np.iinfo(np.int64).max)
        if config.inputs[i].row_limit is not None and old[i]:
            parts[i], there = _update_ends(part, concat_panes(list(old[i])))
            alive &= there
    if np.all(alive) and all(parts[i] is part for i, part in chunk.parts.items()):
        return chunk
    return JoinedRows(config, parts, chunk.retest).take(alive)


def _update_ends(part: Pane, window: Pane) -> tuple[Pane, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return counted rows with their current ends, and which of them are still in the window."""
    if part.seqs is None or window.seqs is None or window.ends is None:
        raise InternalError("a pane of counted rows has no sequence numbers")
    order = np.argsort(window.seqs, kind="stable")
    at = np.minimum(np.searchsorted(window.seqs[order], part.seqs), order.size - 1)
    there = window.seqs[order][at] == part.seqs
    return replace(part, ends=window.ends[order][at], _runs={}), there


TREE = Tactic(
    "tree",
    "Ayad, Naughton: tree of two-input joins",
    compile_plan,
    OpenParts(has_tree=True),
    kernel_thetas=False,
)
TACTICS = (TREE,)
