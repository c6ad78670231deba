"""Configuration of a window join, as a frozen value: inputs, windows, bounds, keys, and the probe order per origin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from watersmeet.algebra.arrow_types import null_array
from watersmeet.algebra.expressions import (
    Column,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
    single_source_operands,
    sources_of,
)
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Output
from watersmeet.algebra.time_bounds import DifferenceBounds
from watersmeet.algebra.windows import FOREVER_US, RowLimit, Window
from watersmeet.errors import InternalError, PlanError, listing
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.expressions.conjunctions import may_raise
from watersmeet.operators.keys import has_exact_codes
from watersmeet.operators.window_join.join_predicates import (
    EqualityClasses,
    Theta,
    build_equality_classes,
    is_orderable,
    is_range,
    split_betweens,
    split_comparison,
)


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input: which columns and keys of its rows are stored, and how long."""

    number: int
    alias: str
    name: str
    fields: pa.Schema
    time: str | None
    unit: str | None  # of integer times
    window: Window | None
    selection: Expr | None  # the conjuncts in the order of the query
    keys: tuple[tuple[int, Expr], ...]  # (equality class, key expression)
    ranges: tuple[tuple[int, Expr], ...]  # (value column, expression) of theta conditions a kernel checks
    operands: tuple[Expr, ...]  # other expressions whose errors count on every row that passes `selection`, in any plan
    columns: tuple[str, ...]  # read after admission by any plan, so that state does not depend on the plan
    retention_us: int
    filter_order: tuple[int, ...] = ()  # numbers of the conjuncts, from 1; empty: as written

    @property
    def is_stream(self) -> bool:
        return self.time is not None

    @property
    def own_predicates(self) -> tuple[Expr, ...]:
        """The conjuncts of `selection`, in the order of their tests.

        No other expression is evaluated on rows that fail one of them.
        """
        written = conjuncts(self.selection)
        return tuple(written[number - 1] for number in self.filter_order) if written and self.filter_order else written

    @property
    def has_ends(self) -> bool:
        """Whether rows carry the last instant of their validity, because bounds between times cannot express it."""
        return self.window is not None and self.window.stores_ends

    @property
    def row_limit(self) -> RowLimit | None:
        """Most rows in the window, if later rows push out earlier ones."""
        return None if self.window is None else self.window.row_limit


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of a probe order: it binds one more input.

    `key_classes` connect the target to the bound inputs in `providers`. `checks` are the predicates that can be tested
    once the target is bound.
    """

    target: int
    key_classes: tuple[int, ...]
    providers: tuple[int, ...]
    checks: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class JoinConfig:
    """Everything `join_batch` needs that is not data."""

    inputs: tuple[JoinInput, ...]
    bounds: DifferenceBounds
    exact_classes: frozenset[int]
    classes: EqualityClasses
    thetas: tuple[Theta, ...]
    residuals: tuple[Expr, ...]  # predicates that no kernel checks
    orders: tuple[tuple[ProbeStep, ...], ...]  # by origin; relations are never origins
    outputs: tuple[Output, ...]
    result: pa.Schema
    waits_for_watermark: bool
    plan: Plan
    emits_every_batch: bool = False  # an operator above needs all results of a batch: no row waits for evaluation
    aliases: dict[str, int] = field(init=False, compare=False, repr=False)  # input numbers by alias
    stream_inputs: tuple[int, ...] = field(init=False, compare=False, repr=False)  # numbers of the inputs with a time

    def __post_init__(self) -> None:
        object.__setattr__(self, "aliases", {each.alias: each.number for each in self.inputs})
        object.__setattr__(self, "stream_inputs", tuple(each.number for each in self.inputs if each.is_stream))

    @property
    def evaluation_us(self) -> int:
        """Interval between the instants at which a lazy plan joins rows; 0 if every batch joins its rows."""
        return 0 if self.emits_every_batch else self.plan.evaluate_us

    @property
    def holds_rows_back(self) -> bool:
        """Whether rows wait, for the watermark or for the next evaluation instant."""
        return self.waits_for_watermark or self.evaluation_us > 0

    def release_before_us(self, future_us: int) -> int:
        """Return the instant before which rows are joined now, if all rows before `future_us` have arrived.

        It is the last evaluation instant of a lazy plan. So batches do not decide when rows are joined.
        """
        return find_last_instant_us(future_us, self.evaluation_us)

    def evict_before_us(self, release_us: int) -> int:
        """Return the instant as of which rows leave the state, if all rows before `release_us` are joined.

        With an expiration interval, rows leave at its instants only.

        References: Golab, Özsu, section 3.3.
        """
        if not self.plan.expire_us or abs(release_us) >= FOREVER_US:
            return release_us
        return expire_before_us(self.plan.evaluate_us, self.plan.expire_us, release_us - 1)


def find_last_instant_us(time_us: int, interval_us: int) -> int:
    """Return the last multiple of an interval that is not after a time; the time itself without an interval.

    >>> find_last_instant_us(17, 5), find_last_instant_us(-1, 5), find_last_instant_us(17, 0)
    (15, -5, 17)
    """
    return time_us // interval_us * interval_us if interval_us and abs(time_us) < FOREVER_US else time_us


def expire_before_us(evaluate_us: int, expire_us: int, arrived_us: int) -> int:
    """Return the instant as of which rows have expired once a row of `arrived_us` has arrived.

    Rows that wait for evaluation came after the last evaluation instant, and their possible matches must stay.

    >>> expire_before_us(0, 5, 17), expire_before_us(4, 5, 17), expire_before_us(0, 0, 17)
    (15, 12, 17)
    """
    return find_last_instant_us(find_last_instant_us(arrived_us, expire_us), evaluate_us)


def build_join_config(
    bound: BoundQuery, plan: Plan | None = None, *, kernel_thetas: bool = False, also_evaluated: tuple[Expr, ...] = ()
) -> JoinConfig:
    """Return the window join that answers a select-project-join query.

    With `kernel_thetas`, the kernel checks comparisons between two inputs as conditions on codes. Otherwise they are
    checked on its candidates. `also_evaluated` are expressions over one source each that are evaluated on every row of
    that source.
    """
    plan = plan or Plan()
    if bound.is_aggregation:
        raise PlanError(
            "a join alone cannot run an aggregation query", hint="run it in this process, with wm.collect or wm.run"
        )
    _check_filtered_sources(bound, plan)
    local, shared = _split_by_source(bound)
    number = {source.alias: i for i, source in enumerate(bound.sources)}
    classes = build_equality_classes(shared, number)
    thetas, ranges, residuals = _split_thetas(bound, classes, number) if kernel_thetas else ((), {}, classes.residuals)
    bounds = bound.bounds
    inputs = tuple(
        replace(
            _build_input(
                bound,
                bounds,
                i,
                local[i],
                classes,
                ranges.get(i, ()),
                _list_operands(bound, source.alias, classes.residuals, also_evaluated),
                _list_columns_read(bound, source.alias, classes.residuals),
            ),
            filter_order=_resolve_filter_order(plan, source.alias, local[i]),
        )
        for i, source in enumerate(bound.sources)
    )
    early = frozenset(number[alias] for alias in plan.early if alias in number)
    exact = frozenset(c for c, kind in _infer_class_types(bound, inputs).items() if has_exact_codes(kind))
    return JoinConfig(
        inputs=inputs,
        bounds=bounds,
        exact_classes=exact,
        classes=classes,
        thetas=thetas,
        residuals=residuals,
        orders=tuple(
            _build_steps(
                inputs,
                classes,
                residuals,
                i,
                _resolve_order(bound, plan, i, choose_probe_order(classes, number, bounds, i, early)),
            )
            if inputs[i].is_stream
            else ()
            for i in range(len(inputs))
        ),
        outputs=bound.outputs,
        result=_build_result_schema(bound),
        waits_for_watermark=bound.waits_for_watermark,
        plan=plan,
    )


def _resolve_order(bound: BoundQuery, plan: Plan, origin: int, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of the other inputs that the plan gives for an origin, or `otherwise`."""
    order = plan.order(bound.sources[origin].alias)
    if order is None:
        return otherwise
    number = {source.alias: i for i, source in enumerate(bound.sources)}
    for name in order:
        if name not in number:
            raise PlanError(
                f'the plan names "{name}", which is not a source of the query', hint=f"sources: {listing(list(number))}"
            )
    return tuple(number[name] for name in order if number[name] != origin)


def _check_filtered_sources(bound: BoundQuery, plan: Plan) -> None:
    known = [source.alias for source in bound.sources]
    for alias, _ in plan.filters:
        if alias not in known:
            raise PlanError(
                f'the plan orders the filters of "{alias}", which is not a source of the query',
                hint=f"sources: {listing(known)}",
            )


def _resolve_filter_order(plan: Plan, alias: str, local: tuple[Expr, ...]) -> tuple[int, ...]:
    order = plan.filter_order(alias)
    if order and len(order) != len(local):
        raise PlanError(f'the plan orders {len(order)} filters of "{alias}", which has {len(local)}')
    return order


def _split_thetas(
    bound: BoundQuery, classes: EqualityClasses, number: dict[str, int]
) -> tuple[tuple[Theta, ...], dict[int, tuple[tuple[int, Expr], ...]], tuple[Expr, ...]]:
    """Return the comparisons that a kernel can check, their value columns by input, and the other residuals."""
    thetas: list[Theta] = []
    columns: dict[tuple[int, Expr], int] = {}
    residuals: list[Expr] = []
    for predicate in classes.residuals:
        sides = split_comparison(predicate)
        if sides is None or not all(is_orderable(_infer_type(bound, side)) for side in sides[1:]):
            residuals.append(predicate)
            continue
        op, *exprs = sides
        places = [(number[next(iter(sources_of(expr)))], expr) for expr in exprs]
        left, right = (columns.setdefault(place, len(classes.keys) + len(columns)) for place in places)
        thetas.append(Theta(op, places[0][0], left, places[1][0], right))
    ranges: dict[int, tuple[tuple[int, Expr], ...]] = {}
    for (i, expr), column in columns.items():
        ranges[i] = (*ranges.get(i, ()), (column, expr))
    return tuple(thetas), ranges, tuple(residuals)


def _split_by_source(bound: BoundQuery) -> tuple[list[tuple[Expr, ...]], tuple[Expr, ...]]:
    """Return the predicates over one source, by source, and the rest. Those over no source go to the first stream."""
    number = {source.alias: i for i, source in enumerate(bound.sources)}
    local: list[tuple[Expr, ...]] = [() for _ in bound.sources]
    shared: tuple[Expr, ...] = ()
    for part in split_betweens(conjuncts(bound.where)):
        read = sources_of(part)
        if len(read) > 1:
            shared += (part,)
        else:
            local[number[next(iter(read))] if read else bound.stream_inputs[0]] += (part,)
    return local, shared


def _list_operands(
    bound: BoundQuery, alias: str, residuals: tuple[Expr, ...], also_evaluated: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """Return expressions over one input, except keys, that can raise: errors count even on rows without a match."""
    parts = (*(operand for predicate in residuals for operand in single_source_operands(predicate)), *also_evaluated)
    own = dict.fromkeys(part for part in parts if sources_of(part) == {alias})
    return tuple(part for part in own if may_raise(part, _empty_columns(bound)))


def _list_columns_read(bound: BoundQuery, alias: str, residuals: tuple[Expr, ...]) -> tuple[str, ...]:
    read = [column for expr in (*(o.expr for o in bound.outputs), *residuals) for column in columns_of(expr)]
    return tuple(dict.fromkeys(column.name for column in read if column.source == alias))


def _build_input(
    bound: BoundQuery,
    bounds: DifferenceBounds,
    number: int,
    local: tuple[Expr, ...],
    classes: EqualityClasses,
    ranges: tuple[tuple[int, Expr], ...],
    operands: tuple[Expr, ...],
    columns: tuple[str, ...],
) -> JoinInput:
    source = bound.sources[number]
    return JoinInput(
        number=number,
        alias=source.alias,
        name=source.schema.name,
        fields=source.fields,
        time=source.time if source.is_stream else None,
        unit=source.unit,
        window=source.window,
        selection=conjunction(local),
        keys=classes.keys_of(number),
        ranges=ranges,
        operands=operands,
        columns=columns,
        retention_us=bounds.retention_us(number, bound.stream_inputs) if source.is_stream else FOREVER_US,
    )


def _infer_class_types(bound: BoundQuery, inputs: tuple[JoinInput, ...]) -> dict[int, pa.DataType]:
    return {key_class: _infer_type(bound, key) for each in inputs for key_class, key in each.keys}


def _infer_type(bound: BoundQuery, expr: Expr) -> pa.DataType:
    """Return the type of a bound expression by evaluating it on no rows."""
    kind: pa.DataType = evaluate(expr, _empty_columns(bound), 0).type
    return kind


def _empty_columns(bound: BoundQuery) -> Callable[[Column], pa.Array[Any]]:
    """Return a function that gives each column of the sources without rows."""
    fields = {source.alias: source.fields for source in bound.sources}

    def empty_column(column: Column) -> pa.Array[Any]:
        if column.source is None:
            raise InternalError(f'column "{column.name}" was never bound')
        return null_array(0, fields[column.source].field(column.name).type)

    return empty_column


def _build_result_schema(bound: BoundQuery) -> pa.Schema:
    return pa.schema([(output.name, _infer_type(bound, output.expr)) for output in bound.outputs])


def _build_steps(
    inputs: tuple[JoinInput, ...],
    classes: EqualityClasses,
    residuals: tuple[Expr, ...],
    origin: int,
    order: tuple[int, ...],
) -> tuple[ProbeStep, ...]:
    others = [each.number for each in inputs if each.number != origin]
    if sorted(order) != others:
        names = ", ".join(inputs[i].alias for i in others)
        raise PlanError(
            f'the order for origin "{inputs[origin].alias}" must name each of the other sources once: {names}'
        )
    steps: list[ProbeStep] = []
    known = [origin]
    open_checks = list(residuals)
    for target in order:
        connected = tuple((c, p) for c, p in classes.find_connections(target, known))
        known.append(target)
        aliases = {inputs[i].alias for i in known}
        ready = tuple(check for check in open_checks if sources_of(check) <= aliases)
        open_checks = [check for check in open_checks if check not in ready]
        steps.append(ProbeStep(target, tuple(c for c, _ in connected), tuple(p for _, p in connected), ready))
    return tuple(steps)


def choose_probe_order(
    classes: EqualityClasses,
    aliases: Mapping[str, int],
    bounds: DifferenceBounds,
    origin: int,
    early: Collection[int] = (),
) -> tuple[int, ...]:
    """Return the default probe order of an origin, for a plan without an order and streams without statistics.

    The choice is greedy. Next comes the input with the most equalities with the inputs bound so far. Ties go to the
    input with the most ranges (a band has two), then to the one with the most other predicates that can be tested once
    it is bound. So no cross product comes before a predicate that could reduce it. Among equals, an input that is
    aggregated early comes first, because a row matches a group of it instead of rows. Then comes the input that keeps
    rows for the shortest time.
    """
    predicates = [
        (frozenset(aliases[alias] for alias in sources_of(each)), is_range(each)) for each in classes.residuals
    ]

    def rank(target: int) -> tuple[int, int, int, bool, int, int]:
        ready = [ranged for read, ranged in predicates if target in read and read <= {*known, target}]
        return (
            -len(classes.find_connections(target, known)),
            -sum(ready),
            -len(ready),
            target not in early,
            gaps_us[target][origin],
            target,
        )

    gaps_us = bounds.later_by_us
    order: list[int] = []
    known, remaining = [origin], [each for each in range(len(gaps_us)) if each != origin]
    while remaining:
        best = min(remaining, key=rank)
        order.append(best)
        known.append(best)
        remaining.remove(best)
    return tuple(order)
