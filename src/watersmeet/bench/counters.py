"""What counting costs: the nested-loops kernel beside the same kernel with every counting statement taken out of its source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from watersmeet.bench import golab
from watersmeet.kernels import loop_windows, nested_loops
from watersmeet.operators.meet.tactics import loops

_COUNTERS = ("by_pair", "by_window")
_KERNEL = "join_arrivals"


class _WithoutCounting(ast.NodeTransformer):
    """Statements that add to a counter become `pass`."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:  # the name ast looks for
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        counts = isinstance(target, ast.Name) and target.id in _COUNTERS
        return ast.copy_location(ast.Pass(), node) if counts else node


def share_of_counting(rows: int = 300_000, repeats: int = 5) -> float:
    """The part of the eager hash join's run time on Table 5's query that goes into counters; both kernels in turns, the best of each."""
    plan = golab.table_8_plans(golab.BEST_ORDER)["eager hash"]
    counting = nested_loops.join_arrivals
    silent = _without_counting()
    best = {True: 0.0, False: 0.0}
    try:
        for _ in range(repeats + 1):
            for counts, kernel in ((True, counting), (False, silent)):
                setattr(loops, _KERNEL, kernel)
                best[counts] = max(best[counts], golab.run(golab.TABLE_5, plan, rows, only_count=True).rows_per_s)
    finally:
        setattr(loops, _KERNEL, counting)
    return 1 - best[True] / best[False]


def _without_counting() -> Callable[..., Any]:
    windows = _rebuilt(loop_windows, {})
    names = {name: windows[name] for name in ("insert", "expire", "tree_candidates")}
    kernel: Callable[..., Any] = _rebuilt(nested_loops, names)[_KERNEL]
    return kernel


def _rebuilt(module: ModuleType, names: dict[str, Any]) -> dict[str, Any]:
    """The module's definitions without counting, compiled anew and not cached; `names` replaces what it imports."""
    tree = _WithoutCounting().visit(ast.parse(inspect.getsource(module)))
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    scope = {**vars(module), **names, "kernel": _uncached_kernel, "piece": _uncached_piece}
    for definition in definitions:
        if definition.name in names:
            continue
        code = ast.fix_missing_locations(ast.Module([definition], []))
        exec(compile(code, f"<{module.__name__} without counting>", "exec"), scope)
    return scope


def _uncached_kernel(*argument_types: Any, allocates: bool = True) -> Callable[[Callable[..., Any]], Any]:
    import numba

    def decorate(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {} if allocates else {"_nrt": False}
        return numba.njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


def _uncached_piece(function: Callable[..., Any]) -> Any:
    import numba

    return numba.njit(nogil=True, error_model="numpy")(function)
