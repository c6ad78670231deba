"""The interface of a tactic: a name, a reference, the parts of a plan that it reads, and a search for matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watersmeet.algebra.plan import DEFAULT_BUCKETS, Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import PlanError, listing
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PartialMatches
from watersmeet.operators.window_join.pane import Pane, Panes
from watersmeet.operators.window_join.work_counters import WorkCounters

#: The panes that a search may match, by input.
Reach = dict[int, Panes]


@dataclass
class DerivedState:
    """Data that a tactic derived from the base windows in earlier batches; None if it must derive it again.

    A search takes the data of the batch before, checks that it can continue from it, and puts its own there. All rows
    of later searches are at or after `horizon_us`.
    """

    value: object = None
    horizon_us: int = -FOREVER_US

    def take(self) -> object:
        """Take the data out, so that a search that fails or is given up half-way leaves none."""
        value, self.value = self.value, None
        return value


#: Takes the old panes by input, the new pane by stream, the counters and the derived data. Yields matches with the
#: panes that their row numbers refer to.
Search = Callable[
    [JoinConfig, list[tuple[Pane, ...]], dict[int, Pane], WorkCounters, DerivedState],
    Iterator[tuple[Reach, PartialMatches]],
]


PER_ORIGIN, GLOBAL = "per origin", "global"
HASH, HASH_WHERE_KEYED, ANY = "hash", "hash where keyed", "any"


@dataclass(frozen=True, slots=True)
class OpenParts:
    """Parts of a plan that one algorithm reads and that a caller may leave open: orders, indexes, intervals, a tree.

    The planner fills them by cost where it has statistics (`planner.filling`), and `plan_defaults` elsewhere.
    """

    orders: str | None = None  # PER_ORIGIN or GLOBAL
    indexes: str | None = None  # HASH, HASH_WHERE_KEYED or ANY
    is_lazy: bool = False
    has_tree: bool = False
    new_rows_anywhere: bool = False  # if lazy, an order may have the new rows in any loop

    def places_new_rows(self, plan: Plan) -> bool:
        """Return whether the orders of a plan fix the loop of the new rows. Otherwise it is the outermost one."""
        return self.orders == GLOBAL or (self.new_rows_anywhere and plan.evaluate_us > 0)

    @property
    def probes_by_key_only(self) -> bool:
        """Whether every loop needs an equality with the inputs bound before it."""
        return self.orders == PER_ORIGIN and self.indexes == HASH

    def default_index(self, *, keyed: bool) -> Index:
        """Return the index of a window for which the plan names none; `keyed` windows have an equality.

        >>> str(OpenParts(PER_ORIGIN, HASH).default_index(keyed=False)), str(OpenParts().default_index(keyed=True))
        ('hash(1021)', 'list')
        """
        is_hashed = self.indexes == HASH or (self.indexes == HASH_WHERE_KEYED and keyed)
        return Index("hash", DEFAULT_BUCKETS) if is_hashed else Index()


@dataclass(frozen=True, slots=True)
class Tactic:
    """An algorithm of a paper.

    `compile_plan` checks a plan against a query and returns its search. `prepare` does the work on new rows that needs
    no old rows, so it can run ahead.
    """

    name: str
    reference: str
    compile_plan: Callable[[JoinConfig, Plan], Search]
    parts: OpenParts = OpenParts()
    kernel_thetas: bool = True
    prepare: Callable[[JoinConfig, dict[int, Pane]], None] | None = None


def refuse(plan: Plan, reason: str, hint: str | None = None) -> PlanError:
    """Return the error for a plan that its algorithm cannot run."""
    return PlanError(f'"{plan.algorithm}" cannot run this: {reason}', hint=hint)


def refuse_options(plan: Plan, *names: str) -> None:
    """Refuse plan options that the algorithm does not have, instead of ignoring them."""
    default = Plan()
    for name in names:
        if getattr(plan, name) != getattr(default, name):
            raise refuse(plan, f"it has no {name.replace('_us', ' interval').replace('_', ' ')}")


def resolve_aliases(config: JoinConfig, plan: Plan, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the input numbers of the aliases in a plan."""
    known = config.aliases
    for name in names:
        if name not in known:
            raise refuse(plan, f'"{name}" is not a source of the query', hint=f"sources: {listing(list(known))}")
    return tuple(known[name] for name in names)
