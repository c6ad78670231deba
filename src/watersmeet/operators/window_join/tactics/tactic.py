"""The interface of a tactic: a name, a reference, a check of the plan that pins it, and a search for matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, listing
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.matches import PartialMatches
from watersmeet.operators.window_join.pane import Pane, Panes
from watersmeet.operators.window_join.work_counters import WorkCounters

#: The panes that a search may match, by input.
Reach = dict[int, Panes]

#: Takes the old panes by input, the new pane by stream, and the counters. Yields matches with the panes that their row
#: numbers refer to.
Search = Callable[
    [JoinConfig, list[tuple[Pane, ...]], dict[int, Pane], WorkCounters], Iterator[tuple[Reach, PartialMatches]]
]


@dataclass
class DerivedState:
    """Data that a tactic derived from the base windows in earlier batches; None if it must derive it again."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Tactic:
    """An algorithm of a paper.

    `compile_plan` checks a plan against a query and returns its search. A tactic that keeps derived data between
    batches also has `resume_plan`, whose search continues from that data. `prepare` does the work on new rows that
    needs no old rows, so it can run ahead.
    """

    name: str
    reference: str
    compile_plan: Callable[[JoinConfig, Plan], Search]
    kernel_thetas: bool = True
    resume_plan: Callable[[JoinConfig, Plan, DerivedState], Search] | None = None
    prepare: Callable[[JoinConfig, dict[int, Pane]], None] | None = None

    def search(self, config: JoinConfig, derived: DerivedState) -> Search:
        """Return the search of the config's plan."""
        return (
            self.compile_plan(config, config.plan)
            if self.resume_plan is None
            else self.resume_plan(config, config.plan, derived)
        )


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
