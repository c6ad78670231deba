"""Plans and costs in a few words."""

from __future__ import annotations

from watersmeet.algebra.plan import Plan, Tree


def plan_words(plan: Plan) -> str:
    """The algorithm and the knobs that are not at their defaults.

    >>> from watersmeet.api import plan
    >>> plan_words(plan("window-join", indexes={"a": "hash(5)", "b": "list"}, evaluate="5 s", drop={"a": 0.25}))
    'window-join (a hash(5), b list; every 5 s; drops 25% of a)'
    """
    details = [
        ", ".join(f"{alias} {index}" for alias, index in plan.indexes),
        f"every {plan.evaluate_us / 1e6:g} s" if plan.evaluate_us else "",
        f"tree {tree_words(plan.tree)}" if plan.tree is not None else "",
        f"aggregates {', '.join(plan.early)} early" if plan.early else "",
        ", ".join(f"drops {share * 100:.3g}% of {name}" for name, share in plan.drop if share),
    ]
    said = "; ".join(detail for detail in details if detail)
    return f"{plan.algorithm} ({said})" if said else plan.algorithm


def tree_words(tree: Tree) -> str:
    """
    >>> tree_words((("a", "b"), "c"))
    '((a ⋈ b) ⋈ c)'
    """
    return tree if isinstance(tree, str) else f"({tree_words(tree[0])} ⋈ {tree_words(tree[1])})"
