"""Cost of a tree of two-input joins: each node probes the rows of one subtree from the new rows of the other.

Rates and windows of a subtree follow from those of its sides: `λo = f (W_R λ_L + W_L λ_R)`, `Wo = f W_L W_R`. Inner
nodes store their results in addition to the base windows, and this memory counts.

References: Ayad, Naughton, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from watersmeet.algebra.plan import Plan, Tree, tree_leaves
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import JoinPrediction, OperatorCost
from watersmeet.planner.workload import ResidualPredicate, Workload

#: Maximum number of inputs for which every tree is considered, bushy ones included: 3ⁿ splits. With more, a tree adds
#: one input at a time.
MAX_BUSHY_INPUTS = 6


def predict_tree(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> JoinPrediction:
    """Predict the cost of the plan's tree, or of the cheapest tree if the plan leaves it open."""
    model = TreeModel(config, workload, profile)
    tree = model.best_tree() if plan.tree is None else plan.tree
    return JoinPrediction(replace(plan, tree=tree), tuple(model.operator_costs(tree)), *model.kept_rows(tree))


@dataclass(frozen=True, slots=True)
class SubtreeFlow:
    """New rows of a subtree per second, and its stored rows."""

    rows_per_s: float
    held_rows: float


@dataclass(frozen=True)
class TreeModel:
    """Costs of the nodes of any tree over a query's inputs, by the sets of inputs they join."""

    config: JoinConfig
    workload: Workload
    profile: Profile
    _shares: dict[frozenset[int], float] = field(default_factory=dict, repr=False)
    _flows: dict[frozenset[int], SubtreeFlow] = field(default_factory=dict, repr=False)

    def flow(self, inputs: frozenset[int]) -> SubtreeFlow:
        """Estimate the flow of a set of inputs. It is the same for every tree over them, so any split serves."""
        if inputs not in self._flows:
            if len(inputs) == 1:
                (i,) = inputs
                found = SubtreeFlow(self.workload.inputs[i].kept_per_s.value, self.workload.filled_rows(self.config, i))
            else:
                first = frozenset({min(inputs)})
                left, right, share = (
                    self.flow(first),
                    self.flow(inputs - first),
                    self.match_share(first, inputs - first),
                )
                rate = share * (right.held_rows * left.rows_per_s + left.held_rows * right.rows_per_s)
                found = SubtreeFlow(rate, share * left.held_rows * right.held_rows)
            self._flows[inputs] = found
        return self._flows[inputs]

    def match_share(self, left: frozenset[int], right: frozenset[int]) -> float:
        """Estimate the share of pairs of combinations from the two sides that match."""
        apart = self._joint_share(left) * self._joint_share(right)
        return self._joint_share(left | right) / apart if apart else 0.0

    def node_cpu_per_s(self, left: frozenset[int], right: frozenset[int]) -> float:
        """Estimate CPU seconds per second of the node that joins two sets, including the cost of storing its rows."""
        here, there, out = self.flow(left), self.flow(right), self.flow(left | right)
        candidates = self._candidate_share(left, right) * (
            here.rows_per_s * there.held_rows + there.rows_per_s * here.held_rows
        )
        checks_s = sum(each.check_s(self.profile) for each in self._new_predicates(left, right))
        probes = (here.rows_per_s + there.rows_per_s) * self.profile.runs.lookup_s * self._panes_per_probe()
        met = candidates * (self.profile.runs.compare_s + 2 * self.profile.match_s + checks_s)
        rows = out.rows_per_s * len(left | right) * (self.profile.row_out_s + self.profile.runs.update_s)
        # At a node, the ends of rows in ROWS windows are looked up again.
        counted = sum(1 for i in left | right if self.config.inputs[i].row_limit is not None)
        probes_in_batch = 2 * self._panes_per_probe() * self.profile.probe_batch_s
        batches = (probes_in_batch + (1 + counted / 2) * self.profile.node_batch_s) / self.workload.arrivals.batch_s
        return probes + met + rows + batches

    def operator_costs(self, tree: Tree) -> list[OperatorCost]:
        """Return the cost of each node, from the leaves up."""
        if isinstance(tree, str):
            kept = self.workload.inputs[self.config.aliases[tree]].kept_per_s.value
            return [
                OperatorCost(f"store {tree} as runs", kept * self._panes_per_probe() * self.profile.runs.update_s, kept)
            ]
        left, right = (self.leaf_numbers(side) for side in tree)
        name = f"join {' '.join(tree_leaves(tree[0]))} with {' '.join(tree_leaves(tree[1]))}"
        node = OperatorCost(
            name, self.node_cpu_per_s(left, right), self.flow(left).rows_per_s + self.flow(right).rows_per_s
        )
        return [*self.operator_costs(tree[0]), *self.operator_costs(tree[1]), node]

    def kept_rows(self, tree: Tree, *, is_root: bool = True) -> tuple[float, float]:
        """Estimate rows and bytes that inner nodes store in addition to the base windows."""
        if isinstance(tree, str):
            return 0.0, 0.0
        below = [self.kept_rows(side, is_root=False) for side in tree]
        inputs = self.leaf_numbers(tree)
        rows = 0.0 if is_root else self.flow(inputs).held_rows
        width = sum(self.workload.inputs[i].row_bytes.value for i in inputs)
        return rows + sum(each[0] for each in below), rows * width + sum(each[1] for each in below)

    def leaf_numbers(self, tree: Tree) -> frozenset[int]:
        """Return the input numbers of a tree's leaves."""
        return frozenset(self.config.aliases[alias] for alias in tree_leaves(tree))

    def best_tree(self) -> Tree:
        """Return the tree that takes the least CPU time.

        With few inputs search all subsets and their splits, with many add one input at a time.
        """
        count = len(self.config.inputs)
        return self._bushy(self.node_cpu_per_s) if count <= MAX_BUSHY_INPUTS else self._one_at_a_time()

    def smallest_tree(self) -> Tree:
        """Return the tree that stores the fewest bytes: with few inputs of all trees, with many one at a time."""
        count = len(self.config.inputs)
        return self._bushy(self._node_bytes) if count <= MAX_BUSHY_INPUTS else self._one_at_a_time()

    def _node_bytes(self, left: frozenset[int], right: frozenset[int]) -> float:
        """Estimate the bytes that a node stores; the root stores none."""
        inputs = left | right
        width = sum(self.workload.inputs[i].row_bytes.value for i in inputs)
        return 0.0 if len(inputs) == len(self.config.inputs) else self.flow(inputs).held_rows * width

    def _bushy(self, cost: Callable[[frozenset[int], frozenset[int]], float]) -> Tree:
        count = len(self.config.inputs)
        best: dict[frozenset[int], tuple[float, Tree]] = {
            frozenset({i}): (0.0, self.config.inputs[i].alias) for i in range(count)
        }
        for bits in sorted(range(1, 1 << count), key=int.bit_count):
            inputs = frozenset(i for i in range(count) if bits >> i & 1)
            if len(inputs) > 1:
                ways = (
                    (
                        best[left][0] + best[inputs - left][0] + cost(left, inputs - left),
                        (best[left][1], best[inputs - left][1]),
                    )
                    for left in _list_splits(inputs)
                )
                best[inputs] = min(ways, key=lambda way: way[0])  # by cost only: trees cannot be compared
        return best[frozenset(range(count))][1]

    def _one_at_a_time(self) -> Tree:
        """Join the pair that leaves the fewest rows first, then add the input that leaves the fewest."""
        left = set(range(len(self.config.inputs)))
        pairs = [(i, j) for i in left for j in left if i < j]
        first = min(pairs, key=lambda pair: (self.flow(frozenset(pair)).held_rows, pair))
        tree: Tree = (self.config.inputs[first[0]].alias, self.config.inputs[first[1]].alias)
        joined = frozenset(first)
        for _ in range(len(left) - 2):
            following = min(left - joined, key=lambda i: (self.flow(joined | {i}).held_rows, i))
            tree, joined = (tree, self.config.inputs[following].alias), joined | {following}
        return tree

    def _joint_share(self, inputs: frozenset[int]) -> float:
        """Estimate the share of combinations of one row each that satisfy all predicates between these inputs."""
        if len(inputs) <= 1:
            return 1.0
        if inputs not in self._shares:
            target = max(inputs)
            known = inputs - {target}
            step = self.workload.key_share(self.config, known, target) * self.workload.residual_share(known, target)
            self._shares[inputs] = self._joint_share(known) * step
        return self._shares[inputs]

    def _candidate_share(self, left: frozenset[int], right: frozenset[int]) -> float:
        """Estimate the share of pairs that are candidates, before predicates are evaluated on them."""
        passed = math.prod(each.share.value for each in self._new_predicates(left, right))
        return min(1.0, self.match_share(left, right) / passed) if passed else 1.0

    def _new_predicates(self, left: frozenset[int], right: frozenset[int]) -> list[ResidualPredicate]:
        """Return the predicates that can be evaluated once both sides are bound, and not before."""
        both = [each for each in self.workload.residuals if each.inputs <= left | right]
        return [each for each in both if not (each.inputs <= left or each.inputs <= right)]

    def _panes_per_probe(self) -> float:
        batches = max((self.workload.filled_rows(self.config, i) for i in self.config.stream_inputs), default=1.0)
        rate = max(each.kept_per_s.value for each in self.workload.inputs)
        return 1.0 + math.log2(1.0 + batches / (rate * self.workload.arrivals.batch_s)) if rate else 1.0


def _list_splits(inputs: frozenset[int]) -> list[frozenset[int]]:
    """List one side of every split into two: the side with the smallest input, so that each split occurs once."""
    first, *others = sorted(inputs)
    return [
        frozenset({first, *(i for place, i in enumerate(others) if bits >> place & 1)})
        for bits in range((1 << len(others)) - 1)
    ]
