"""Cost of nested loops: the papers' multi-way joins and indexed window joins, which share one kernel.

A loop costs the rows it touches for every combination that reaches it: a whole window, a bucket, or a path down a tree
and the matches. Rows and indexes are kept between batches. So a batch lays out its new rows only, and each row enters
and leaves the index of its window once. A lazy join runs once per evaluation if batches are shorter than τ.

Comparisons between two inputs run inside the loops. Any other predicate is evaluated on the partial matches of the loop
that binds its inputs, between two stages of the nest, and each evaluation costs.

References: Kang, Naughton, Viglas, section 3; Golab, Özsu, sections 3 and 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.arrow_types import null_array
from watersmeet.algebra.expressions import Column, Expr
from watersmeet.algebra.plan import Index, Plan
from watersmeet.errors import InternalError
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.join_predicates import is_orderable, is_range, split_comparison
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.planner.models.kang import btree_path_rows, ttree_path_rows
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import JoinPrediction, OperatorCost
from watersmeet.planner.probe_orders import FavouredInputs, find_pinned_order, predict_in_orders
from watersmeet.planner.workload import ResidualPredicate, Workload, length_to_seconds

PATH_ROWS = {"btree": btree_path_rows, "ttree": ttree_path_rows}

#: Ages of stored rows, as shares of the time that their window holds: points that averages are taken over.
_AGES = (np.arange(24.0) + 0.5) / 24

#: Below this number of expected rows, an evaluation has one row.
_FEW_ROWS = 1e-9


def predict_loops(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> JoinPrediction:
    """Predict the cost of nested loops, with the indexes and intervals of the plan."""
    model = LoopsModel(config, workload, profile, plan)
    found = predict_in_orders(config, workload, model, plan)
    orders = {i: find_pinned_order(config, found.plan, i) or () for i in config.stream_inputs}
    return replace(found, comparisons_per_s=sum(model.comparisons_per_s(i, order) for i, order in orders.items()))


@dataclass(frozen=True)
class LoopsModel:
    """Seconds of a loop and of upkeep, for one query, one profile and one plan's indexes and intervals.

    The loops outside that of the new rows run once per evaluation, over whole windows, expired rows included. Inside
    it, only rows of the window match. So the combinations that leave the loop of the new rows are those that a join
    with the new rows outermost would find.
    """

    config: JoinConfig
    workload: Workload
    profile: Profile
    plan: Plan
    _in_kernel: dict[Expr, bool] = field(default_factory=dict, repr=False)
    _scanned: dict[tuple[frozenset[int], int], float] = field(default_factory=dict, repr=False)
    _stored: dict[tuple[frozenset[int], int], float] = field(default_factory=dict, repr=False)
    _together: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)
    _loop_s: dict[tuple[frozenset[int], int], float] = field(default_factory=dict, repr=False)

    def new_rows(self, origin: int) -> float:
        """Estimate the new rows of an evaluation that has any: one if eager, else those of an interval τ."""
        expected = self.workload.inputs[origin].kept_per_s.value * self.plan.evaluate_us / 1e6
        return expected / -math.expm1(-expected) if expected > _FEW_ROWS else 1.0

    def favoured_inputs(self) -> FavouredInputs:
        """Return the inputs that heuristics put near the top."""
        outside = [each.inputs for each in self.workload.residuals if not self._is_in_kernel(each)]
        return FavouredInputs(
            unindexed=frozenset(i for i in range(len(self.config.inputs)) if self._index(i).kind == "list"),
            expensive=frozenset[int]().union(*outside),
            fluctuating=self.workload.samples.fluctuating_inputs,
        )

    def fanout(self, origin: int, known: frozenset[int], target: int) -> float:
        return self._matches(origin, known, target) * self.workload.residual_share(known, target)

    def loop_s(self, origin: int, known: frozenset[int], target: int) -> float:
        if target == origin and not known:
            return 0.0  # the new rows need no search
        if origin not in known:
            return self._estimate_loop_s(origin, known, target)
        # Inside the loop of the new rows, it does not matter which of the bound inputs they belong to.
        found = self._loop_s.get((known, target))
        if found is None:
            found = self._loop_s[known, target] = self._estimate_loop_s(origin, known, target)
        return found

    def _estimate_loop_s(self, origin: int, known: frozenset[int], target: int) -> float:
        kind = "list" if target == origin else self._access(known, target)
        weights = self.profile.structure(kind)
        touched = self._touched_rows(origin, kind, known, target) * weights.compare_s
        # Without a key that narrows the scan, the times of all its rows are tested.
        if not self.config.classes.find_connections(target, sorted(known)):
            times = self.new_rows(origin) if target == origin else self._held_rows(target)
            touched += times * self._indexed_share(kind, known, target) * self.profile.scan_s
        matches = self._matches(origin, known, target)
        passed_on = matches * self.workload.residual_share(known, target) * self.profile.loop_match_s
        return weights.lookup_s + touched + passed_on + self.outside_kernel_s(known, target, matches)

    def comparisons_per_s(self, origin: int, order: tuple[int, ...]) -> float:
        """Estimate the comparisons per second for the new rows of an origin. The outermost loop compares nothing.

        References: Golab, Özsu, appendix A: C and L with the new rows outermost, G and H with them anywhere.
        """
        found, rows, known = 0.0, 1.0, frozenset[int]()
        for target in order if origin in order else (origin, *order):
            if known:
                kind = "list" if target == origin else self._access(known, target)
                found += rows * self._compared_rows(origin, kind, known, target)
            rows *= self.fanout(origin, known, target)
            known |= {target}
        return found * self.workload.inputs[origin].kept_per_s.value / self.new_rows(origin)

    def _matches(self, origin: int, known: frozenset[int], target: int) -> float:
        """Estimate the rows that match a combination of the known inputs by keys and times."""
        if origin in known:
            return self.workload.matches(self.config, known, target)
        if target != origin:
            return self._stored_matches(known, target)
        if not known:
            return self.new_rows(origin)
        share, before = 1.0, frozenset[int]()
        for i in sorted(known):
            inside = self.workload.matches(self.config, before | {origin}, i)
            inside *= self.workload.residual_share(before | {origin}, i)
            stored = self._stored_matches(before, i) * self.workload.residual_share(before, i)
            share, before = share * inside / stored if stored else 0.0, before | {i}
        residual = self.workload.residual_share(known, origin)
        return self.new_rows(origin) * share / residual if residual else 0.0

    def _stored_matches(self, known: frozenset[int], target: int) -> float:
        """Estimate the stored rows of a window, expired ones included, that match a combination of stored rows."""
        found = self._stored.get((known, target))
        if found is None:
            shares = [self._time_share(i, target) for i in known if self.config.inputs[i].is_stream]
            found = self._held_rows(target) * min(shares, default=1.0)
            found *= self.workload.key_share(self.config, known, target) if known else 1.0
            self._stored[known, target] = found
        return found

    def _time_share(self, i: int, target: int) -> float:
        """Estimate the share of pairs of stored rows whose times are within the bounds between the two inputs."""
        pair = min(i, target), max(i, target)
        if pair not in self._together:
            first, second = (
                _AGES * self._held_rows(each) / max(self.workload.inputs[each].kept_per_s.value, 1e-9) for each in pair
            )
            later_s = first[:, None] - second[None, :]  # how much later the second row is
            gaps = self.workload.gaps_us
            most_s = [length_to_seconds(gaps[a][b]) for a, b in (pair, pair[::-1])]
            within = (later_s <= most_s[0]) & (-later_s <= most_s[1])
            self._together[pair] = float(within.mean())
        return self._together[pair] if self.config.inputs[target].is_stream else 1.0

    def outside_kernel_s(self, known: frozenset[int], target: int, matches: float) -> float:
        """Estimate the seconds for predicates outside the kernel, on this many matches by keys and times.

        Each is evaluated on the partial matches that the predicates before it leave.
        """
        ready = self._ready(known, target)
        outside = [each for each in ready if not self._is_in_kernel(each)]
        if not outside:
            return 0.0
        inside_share = math.prod(each.share.value for each in ready if self._is_in_kernel(each))
        matches *= inside_share
        # Partial matches leave the kernel and enter the next stage.
        seconds = matches * (self.profile.loop_match_s + self.profile.match_s)
        for each in outside:
            seconds += matches * each.check_s(self.profile)
            matches *= each.share.value
        return seconds

    def _is_in_kernel(self, check: ResidualPredicate) -> bool:
        """Return whether the loops compare codes for it; comparisons of text, for example, have none."""
        if check.predicate not in self._in_kernel:
            sides = split_comparison(check.predicate)
            orderable = sides is not None and all(
                is_orderable(evaluate(side, self._no_rows, 0).type) for side in sides[1:]
            )
            self._in_kernel[check.predicate] = orderable
        return self._in_kernel[check.predicate]

    def _no_rows(self, column: Column) -> pa.Array[Any]:
        if column.source is None:
            raise InternalError(f'column "{column.name}" was not bound')
        return null_array(0, self.config.inputs[self.config.aliases[column.source]].fields.field(column.name).type)

    def upkeep_costs(self) -> list[OperatorCost]:
        # A lazy join joins the rows of several short batches together, at its next instant.
        between_s = max(self.workload.arrivals.batch_s, self.plan.evaluate_us / 1e6)
        parts, batches = [], 1 / between_s
        for each in self.config.inputs:
            estimate, index = self.workload.inputs[each.number], self._index(each.number)
            held, kept = self._held_rows(each.number), estimate.kept_per_s.value
            path = PATH_ROWS[index.kind](max(held, 1.0), index.size) if index.kind in PATH_ROWS else 1.0
            updates = 2 * kept * path * self.profile.structure(index.kind).update_s
            parts.append(OperatorCost(f"store {each.alias} as {index.kind}", updates, kept))
            copies = 2 if index.kind == "hash" else 1
            parts.append(OperatorCost(f"lay out {each.alias}", copies * kept * self.profile.layout_s, kept))
        parts.append(OperatorCost("batches of loops", self.profile.loops_batch_s * batches * self._stages, batches))
        return parts

    @property
    def _stages(self) -> int:
        """Maximum number of stages of the loop nest.

        The nest is cut where a predicate is evaluated, and each stage has its own windows and indexes.
        """
        cuts = {
            len(each.inputs)
            for each in self.workload.residuals
            if len(each.inputs) < len(self.config.inputs) and not self._is_in_kernel(each)
        }
        return 1 + len(cuts)

    def _index(self, target: int) -> Index:
        source = self.config.inputs[target]
        return self.plan.index(source.alias) or find_tactic(self.plan).parts.default_index(keyed=bool(source.keys))

    def _held_rows(self, target: int) -> float:
        """Estimate the rows in a window. A lazy join stores rows for an interval longer, and probes all of them.

        References: Golab, Özsu, section 4.2: every T becomes T + τ.
        """
        late = (self.plan.evaluate_us + self.plan.expire_us) / 2e6
        return self.workload.filled_rows(self.config, target) + self.workload.inputs[target].kept_per_s.value * late

    def _access(self, known: frozenset[int], target: int) -> str:
        """Return the index kind if a condition leads to it, else "list": the whole window is scanned."""
        kind = self._index(target).kind
        connected = bool(self.config.classes.find_connections(target, sorted(known)))
        ranged = kind in PATH_ROWS and any(is_range(each.predicate) for each in self._ready(known, target))
        return kind if connected or ranged else "list"

    def _touched_rows(self, origin: int, kind: str, known: frozenset[int], target: int) -> float:
        """Estimate the rows that one probe compares: of the origin, only the new rows."""
        if target == origin:
            return self.new_rows(origin)
        found = self._scanned.get((known, target))
        if found is None:
            held = self._held_rows(target)
            equal = held * self._indexed_share(kind, known, target)
            found = touched_rows(self._index(target), kind, held, equal, spread=self._spreads_keys(known, target))
            self._scanned[known, target] = found
        return found

    def _compared_rows(self, origin: int, kind: str, known: frozenset[int], target: int) -> float:
        """Estimate the comparisons of one probe, which in a tree are the way down and the entries in the range."""
        if kind not in PATH_ROWS or target == origin:
            return self._touched_rows(origin, kind, known, target)
        held = self._held_rows(target)
        equal = held * self._indexed_share(kind, known, target)
        present = self._present_share(known, target)
        return compared_in_tree(kind, max(held, 1.0), self._index(target).size, equal, present)

    def _present_share(self, known: frozenset[int], target: int) -> float:
        """Estimate how often the probed key is among the values of the target. Value sets contain each other."""
        connected = self.config.classes.find_connections(target, sorted(known))
        if not connected:
            return 1.0
        key_class = connected[0][0]
        members = self.config.classes.keys[key_class]
        fewest = min(self.workload.inputs[i].distinct[key_class].value for i in known if i in members)
        return min(1.0, self.workload.inputs[target].distinct[key_class].value / max(fewest, 1.0))

    def _spreads_keys(self, known: frozenset[int], target: int) -> bool:
        """Return whether the codes of the probed key are its values: buckets then share them out evenly."""
        connected = self.config.classes.find_connections(target, sorted(known))
        return bool(connected) and connected[0][0] in self.config.exact_classes

    def _indexed_share(self, kind: str, known: frozenset[int], target: int) -> float:
        """Estimate the share of a window with the probed key, or in the probed range; times do not narrow it.

        An index is on one key. Other keys are compared on the rows that it returns.
        """
        connected = self.config.classes.find_connections(target, sorted(known))
        if connected:
            key_class = connected[0][0]
            providers = frozenset(i for i in known if i in self.config.classes.keys[key_class])
            return self.workload.class_share(self.config, key_class, providers, target)
        return (
            next((each.share.value for each in self._ready(known, target) if is_range(each.predicate)), 1.0)
            if kind in PATH_ROWS
            else 1.0
        )

    def _ready(self, known: frozenset[int], target: int) -> list[ResidualPredicate]:
        return [each for each in self.workload.residuals if target in each.inputs and each.inputs <= known | {target}]


#: Average fill of a tree's nodes while rows come and go.
_NODE_FILL = 0.75


def compared_in_tree(
    kind: str, held_rows: float, node_rows: int, equal_rows: float, present_share: float = 1.0
) -> float:
    """Estimate the comparisons of one probe of a tree: binary searches on the way down, then the range entry by entry.

    A node that lies inside the range costs one comparison, and so does the end of the window. A T-tree searches no node
    for a key beyond all its values. Nodes are not full, other than in the formulas of the paper.

    >>> round(compared_in_tree("btree", held_rows=5000, node_rows=100, equal_rows=0), 1)
    14.3
    >>> round(compared_in_tree("ttree", held_rows=5000, node_rows=100, equal_rows=10), 1)
    26.8
    """
    in_node = max(1.0, min(held_rows, _NODE_FILL * node_rows))
    nodes, inside = held_rows / in_node, math.log2(in_node + 1)
    if kind == "btree":
        down = inside + math.log2(nodes + 1) if nodes > 1 else inside
    else:
        down = 1.5 * math.log2(nodes + 1) + present_share * inside
    crossed = equal_rows / in_node
    at_the_end = equal_rows * (1 - crossed / 2) if crossed < 1 else in_node / 2
    last_share = min(1.0, equal_rows / held_rows)
    return down + crossed + at_the_end * (1 - last_share) + 2 * present_share


def touched_rows(index: Index, kind: str, held_rows: float, equal_rows: float, *, spread: bool = False) -> float:
    """Estimate the rows that one probe compares: the whole window, a bucket, or a path down a tree.

    A bucket holds the equal rows and its part of the others. If keys are their own codes, buckets share out the keys
    evenly (`spread`), so that with as many buckets as keys, a bucket has one key.

    >>> touched_rows(Index("hash", 5), "hash", held_rows=1000, equal_rows=0)
    200.0
    >>> touched_rows(Index("hash", 50), "hash", held_rows=1000.0, equal_rows=20.0, spread=True)
    20.0

    """
    if kind == "list":
        return held_rows
    if kind == "hash" and spread:
        return max(equal_rows, held_rows / index.size)
    if kind == "hash":
        return equal_rows + (held_rows - equal_rows) / index.size
    return PATH_ROWS[kind](max(held_rows, 1.0), index.size)
