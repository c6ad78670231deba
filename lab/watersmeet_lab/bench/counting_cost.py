"""Cost of the counters: the nested-loops kernel against the same kernel compiled without its counting statements."""

from __future__ import annotations

import ast
import inspect
import statistics
from collections.abc import Callable
from types import ModuleType
from typing import Any

from watersmeet.kernels import loop_state, nested_loops
from watersmeet.operators.window_join.tactics import nested_loops as loop_engine
from watersmeet_lab.workloads import golab_streams

_COUNTERS = ("comparisons", "passed")
_KERNEL = "join_arrivals"


class _CounterRemover(ast.NodeTransformer):
    """Transformer that replaces statements that add to a counter by `pass`."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:  # the name ast looks for
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        counts = isinstance(target, ast.Name) and target.id in _COUNTERS
        return ast.copy_location(ast.Pass(), node) if counts else node


def measure_counting_share(rows: int = 200_000, repeats: int = 21) -> float:
    """Return the share of the eager hash join's CPU time on Table 5's query that the counters take.

    Both kernels run in turns, and the result is the median over the turns: noise slows both kernels of a turn alike.
    """
    plan = golab_streams.table_8_plans(golab_streams.BEST_ORDER)["eager hash"]
    counting = nested_loops.join_arrivals
    silent = _kernel_without_counting()
    parts = []
    try:
        for turn in range(repeats):
            spent = {}
            for kernel in (counting, silent) if turn % 2 else (silent, counting):
                setattr(loop_engine, _KERNEL, kernel)
                spent[kernel] = golab_streams.run_join(golab_streams.TABLE_5, plan, rows, only_count=True).cpu_s_per_row
            parts.append(1 - spent[silent] / spent[counting])
    finally:
        setattr(loop_engine, _KERNEL, counting)
    return statistics.median(parts)


def _kernel_without_counting() -> Callable[..., Any]:
    windows = _recompile(loop_state, {})
    names = {name: windows[name] for name in ("insert_row", "expire_rows", "probe_tree")}
    kernel: Callable[..., Any] = _recompile(nested_loops, names)[_KERNEL]
    return kernel


def _recompile(module: ModuleType, names: dict[str, Any]) -> dict[str, Any]:
    """Compile the module's definitions without counting and without a cache.

    `names` replaces what the module imports.
    """
    tree = _CounterRemover().visit(ast.parse(inspect.getsource(module)))
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    scope = {**vars(module), **names, "kernel": _uncached_kernel, "subroutine": _uncached_subroutine}
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


def _uncached_subroutine(function: Callable[..., Any]) -> Any:
    import numba

    return numba.njit(nogil=True, error_model="numpy")(function)
