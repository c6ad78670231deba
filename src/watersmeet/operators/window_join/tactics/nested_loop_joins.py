"""Nested-loop and hash joins of several windows: eight configurations of one loop engine.

Each algorithm checks a plan and builds the `LoopPlan` that `nested_loops` runs. They differ in three choices: the loop
that holds the new rows, the indexes of the windows, and whether they evaluate at every arrival or every τ.

| algorithm | loop of the new rows | indexes | evaluation |
| --- | --- | --- | --- |
| naive-nlj | fixed by one global order | lists | eager or lazy |
| eager-nlj | outermost | lists | eager |
| lazy-nlj | outermost | lists | lazy |
| general-lazy-nlj | any | lists | lazy |
| eager-hash | outermost | hash | eager |
| lazy-hash | any | hash | lazy |
| hybrid-nlj-hash | outermost if eager, any if lazy | hash or list per window | eager or lazy |
| window-join | outermost | list, hash, B+tree or T-tree per window | eager |

References: Golab, Özsu, "Processing sliding window multi-joins in continuous queries over data streams", section 3.
Kang, Naughton, Viglas, "Evaluating window joins over unbounded streams", sections 2 and 3.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.nested_loops import (
    LoopPlan,
    build_search,
    choose_indexes,
    order_origin_anywhere,
    order_origin_first,
)
from watersmeet.operators.window_join.tactics.tactic import (
    ANY,
    GLOBAL,
    HASH,
    HASH_WHERE_KEYED,
    PER_ORIGIN,
    OpenParts,
    Search,
    Tactic,
    refuse,
    refuse_options,
    resolve_aliases,
)


def compile_naive_nlj(config: JoinConfig, plan: Plan) -> Search:
    """Compile Naive Multi-Way NLJ: one order of the windows for all origins.

    At the loop of the origin's window, only the new rows are scanned. Outer loops run before the new row is known, so
    they also work for rows that turn out not to match it.

    References: Golab, Özsu, section 3.1.
    """
    refuse_options(plan, "indexes", "cleanup_rows")
    if plan.orders:
        raise refuse(plan, "it has one order for all origins", hint="give it as the global order")
    if plan.evaluate_us:
        _check_lazy(plan)
    order = resolve_aliases(config, plan, plan.global_order)
    if sorted(order) != list(range(len(config.inputs))):
        raise refuse(plan, "the global order must name each source once")
    orders = tuple(order if each.is_stream else () for each in config.inputs)
    return build_search(LoopPlan(orders, _lists(config), plan.evaluate_us, plan.expire_us))


def compile_eager_nlj(config: JoinConfig, plan: Plan) -> Search:
    """Compile Eager Multi-Way NLJ: join each new row on arrival, in the outermost loop.

    The other inputs follow in the order of the row's origin.

    References: Golab, Özsu, section 3.2, algorithms Eager Multi-Way NLJ and ComputeJoin; count windows: section 3.6.
    """
    refuse_options(plan, "indexes", "cleanup_rows")
    _check_eager(plan)
    return build_search(LoopPlan(order_origin_first(config, plan), _lists(config), 0, plan.expire_us))


def compile_lazy_nlj(config: JoinConfig, plan: Plan) -> Search:
    """Compile Lazy Multi-Way NLJ: every τ, join all rows that arrived since, each in the outermost loop.

    References: Golab, Özsu, section 3.3, algorithm Lazy Multi-Way NLJ.
    """
    refuse_options(plan, "indexes", "cleanup_rows")
    _check_lazy(plan)
    return build_search(LoopPlan(order_origin_first(config, plan), _lists(config), plan.evaluate_us, plan.expire_us))


def compile_general_lazy_nlj(config: JoinConfig, plan: Plan) -> Search:
    """Compile General Lazy Multi-Way NLJ: every τ, with the new rows at any loop of their origin's order.

    Above the loop of the new rows, no time can be checked against them. At that loop, the join checks everything bound
    so far. This wins when a fast stream brings many new rows per interval: scanning them innermost keeps the outer
    loops short.

    References: Golab, Özsu, section 3.3, algorithms General Lazy Multi-Way NLJ and GeneralComputeJoin.
    """
    refuse_options(plan, "indexes", "cleanup_rows")
    _check_lazy(plan)
    return build_search(LoopPlan(order_origin_anywhere(config, plan), _lists(config), plan.evaluate_us, plan.expire_us))


def compile_eager_hash(config: JoinConfig, plan: Plan) -> Search:
    """Compile the eager Multi-Way Hash Join: each loop scans one bucket; the new row is outermost.

    With one bucket per window it is the NLJ.

    References: Golab, Özsu, section 3.4, algorithms Multi-Way Hash Join and ComputeHashJoin.
    """
    _check_eager(plan)
    loops = LoopPlan(order_origin_first(config, plan), _hash_indexes(config, plan), 0, plan.expire_us)
    _check_hash_probes(config, plan, loops)
    return build_search(loops)


def compile_lazy_hash(config: JoinConfig, plan: Plan) -> Search:
    """Compile the lazy Multi-Way Hash Join in its general form: every τ, with the new rows at any loop.

    References: Golab, Özsu, section 3.4, algorithms Multi-Way Hash Join and ComputeHashJoin.
    """
    _check_lazy(plan)
    loops = LoopPlan(order_origin_anywhere(config, plan), _hash_indexes(config, plan), plan.evaluate_us, plan.expire_us)
    _check_hash_probes(config, plan, loops)
    return build_search(loops)


def compile_hybrid_nlj_hash(config: JoinConfig, plan: Plan) -> Search:
    """Compile Hybrid NLJ-Hash Join: scan buckets where a hash index and an equality exist, whole windows elsewhere.

    One operator therefore serves queries that join some windows by equality and others by any comparison. Eager or
    lazy.

    References: Golab, Özsu, section 3.5.
    """
    refuse_options(plan, "cleanup_rows")
    indexes = choose_indexes(config, plan, Index())
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind not in ("list", "hash"):
            raise refuse(
                plan,
                f'it mixes lists and hash indexes, but the plan gives "{each.alias}" a {index.kind}',
                hint='pin "window-join"',
            )
        if index.kind == "hash" and not each.keys:
            raise refuse(
                plan, f'"{each.alias}" has no equality with another source, so its hash index would answer nothing'
            )
    if plan.evaluate_us:
        _check_lazy(plan)
        return build_search(LoopPlan(order_origin_anywhere(config, plan), indexes, plan.evaluate_us, plan.expire_us))
    return build_search(LoopPlan(order_origin_first(config, plan), indexes, 0, plan.expire_us))


def compile_window_join(config: JoinConfig, plan: Plan) -> Search:
    """Compile the window join: each window has the index that suits the rates at which it is filled and probed.

    List, hash, B+tree and T-tree in any combination, for two streams or more. The trees also answer <, <=, BETWEEN and
    band predicates.

    References: Kang, Naughton, Viglas, sections 2 and 3.
    """
    refuse_options(plan, "cleanup_rows")
    _check_eager(plan)
    loops = LoopPlan(order_origin_first(config, plan), choose_indexes(config, plan, Index()), 0, plan.expire_us)
    for each in config.inputs:
        _refuse_unused_index(config, plan, loops, each.number)
    return build_search(loops)


def _check_eager(plan: Plan) -> None:
    """Refuse an evaluation interval: an eager join evaluates at every arrival.

    It may expire rows eagerly or lazily, because every loop checks times anyway.
    """
    if plan.evaluate_us:
        raise refuse(
            plan, "it evaluates at every arrival", hint="remove the evaluation interval, or pin the lazy algorithm"
        )


def _check_lazy(plan: Plan) -> None:
    """Refuse a lazy join that does not expire lazily, at most as often as it evaluates.

    A row may have expired by now and yet have been valid when a row that is not joined yet arrived.

    References: Golab, Özsu, section 3.3.
    """
    if not plan.evaluate_us:
        raise refuse(plan, "a lazy join needs an evaluation interval", hint='for example evaluate="5 seconds"')
    if not plan.expire_us:
        raise refuse(
            plan,
            "eager expiration would drop rows that were still valid when a row waiting for evaluation arrived",
            hint="give it an expiration interval of at least the evaluation interval",
        )
    if plan.expire_us < plan.evaluate_us:
        raise refuse(
            plan,
            f"it expires every {plan.expire_us} µs but evaluates only every {plan.evaluate_us} µs; "
            "expiration may come at most as often",
            hint="make the expiration interval at least as long as the evaluation interval",
        )


def _lists(config: JoinConfig) -> tuple[Index, ...]:
    return (Index(),) * len(config.inputs)


def _hash_indexes(config: JoinConfig, plan: Plan) -> tuple[Index, ...]:
    refuse_options(plan, "cleanup_rows")
    indexes = choose_indexes(config, plan, Index())
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind != "hash":
            raise refuse(
                plan,
                f'it hashes every window, but the plan gives "{each.alias}" a {index.kind}',
                hint='pin "hybrid-nlj-hash" to mix indexes',
            )
    return indexes


def _check_hash_probes(config: JoinConfig, plan: Plan, loops: LoopPlan) -> None:
    """Refuse orders that reach a window by no equality: such a loop has no bucket to probe."""
    for origin, order in enumerate(loops.orders):
        for level, target in enumerate(order[1:], start=1):
            if target != origin and loops.probed_column(config, origin, level) is None:
                reached, start = config.inputs[target].alias, config.inputs[origin].alias
                raise refuse(
                    plan,
                    f'no equality leads to "{reached}" in the order of origin "{start}", '
                    "and a hash index answers nothing but equality",
                    hint='pin "hybrid-nlj-hash", which scans such windows, or "window-join" with a tree',
                )


def _refuse_unused_index(config: JoinConfig, plan: Plan, loops: LoopPlan, window: int) -> None:
    """Refuse an index that no loop can probe: it is a mistake in the plan and must not be built silently."""
    index, alias = loops.indexes[window], config.inputs[window].alias
    is_probed = any(
        loops.probed_column(config, origin, level) is not None
        for origin, order in enumerate(loops.orders)
        for level, target in enumerate(order)
        if target == window
    )
    if index.kind != "list" and not is_probed and len(config.inputs) > 1:
        predicate = "equality" if index.kind == "hash" else "comparison"
        raise refuse(
            plan,
            f'no {predicate} leads to "{alias}", so its {index.kind} index would answer nothing',
            hint="make it a list",
        )


TACTICS = (
    Tactic("naive-nlj", "Golab, Özsu: Naive Multi-Way NLJ", compile_naive_nlj, OpenParts(GLOBAL)),
    Tactic("eager-nlj", "Golab, Özsu: Eager Multi-Way NLJ", compile_eager_nlj, OpenParts(PER_ORIGIN)),
    Tactic("lazy-nlj", "Golab, Özsu: Lazy Multi-Way NLJ", compile_lazy_nlj, OpenParts(PER_ORIGIN, is_lazy=True)),
    Tactic(
        "general-lazy-nlj",
        "Golab, Özsu: General Lazy Multi-Way NLJ",
        compile_general_lazy_nlj,
        OpenParts(PER_ORIGIN, is_lazy=True, new_rows_anywhere=True),
    ),
    Tactic("eager-hash", "Golab, Özsu: Multi-Way Hash Join, eager", compile_eager_hash, OpenParts(PER_ORIGIN, HASH)),
    Tactic(
        "lazy-hash",
        "Golab, Özsu: Multi-Way Hash Join, lazy",
        compile_lazy_hash,
        OpenParts(PER_ORIGIN, HASH, is_lazy=True, new_rows_anywhere=True),
    ),
    Tactic(
        "hybrid-nlj-hash",
        "Golab, Özsu: Hybrid NLJ-Hash Join",
        compile_hybrid_nlj_hash,
        OpenParts(PER_ORIGIN, HASH_WHERE_KEYED, new_rows_anywhere=True),
    ),
    Tactic(
        "window-join",
        "Kang, Naughton, Viglas: window join with an index per window",
        compile_window_join,
        OpenParts(PER_ORIGIN, ANY),
    ),
)
