"""What a tactic is: a name, its reference, a check of the plan that pins it, and the search for combinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, listing
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PartialMatches
from watersmeet.operators.window_join.pane import Pane, Panes
from watersmeet.operators.window_join.work_counters import WorkCounters

Reach = dict[int, Panes]


#: Old panes by input, new pane by stream, and where to count: yields combinations with the panes their row numbers
#: refer to.
Search = Callable[
    [JoinConfig, list[tuple[Pane, ...]], dict[int, Pane], WorkCounters], Iterator[tuple[Reach, PartialMatches]]
]


@dataclass
class DerivedState:
    """What a tactic derived from the base windows in earlier batches; None when it has to be derived again."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Tactic:
    """An algorithm of a paper. `settle` checks a plan against a query and returns the search it stands for; `recall`,
    of a tactic that keeps derived data between batches, the search that goes on from it. `prepare` does what can be
    done with new rows before their turn.
    """

    name: str
    reference: str
    compile_plan: Callable[[JoinConfig, Plan], Search]
    kernel_thetas: bool = True
    resume_plan: Callable[[JoinConfig, Plan, DerivedState], Search] | None = None
    prepare: Callable[[JoinConfig, dict[int, Pane]], None] | None = None

    def search(self, config: JoinConfig, derived: DerivedState) -> Search:
        return (
            self.compile_plan(config, config.plan)
            if self.resume_plan is None
            else self.resume_plan(config, config.plan, derived)
        )


def refuse(plan: Plan, reason: str, hint: str | None = None) -> PlanError:
    return PlanError(f'"{plan.algorithm}" cannot run this: {reason}', hint=hint)


def refuse_options(plan: Plan, *names: str) -> None:
    """Refuses knobs that the algorithm does not have, instead of ignoring them."""
    default = Plan()
    for name in names:
        if getattr(plan, name) != getattr(default, name):
            raise refuse(plan, f"it has no {name.replace('_us', ' interval').replace('_', ' ')}")


def resolve_aliases(config: JoinConfig, plan: Plan, names: tuple[str, ...]) -> tuple[int, ...]:
    """Source numbers of the aliases in a plan."""
    known = config.aliases
    for name in names:
        if name not in known:
            raise refuse(plan, f'"{name}" is not a source of the query', hint=f"sources: {listing(list(known))}")
    return tuple(known[name] for name in names)
