"""What entries have to satisfy beside equal keys: comparisons between codes, and bounds between times."""

from __future__ import annotations

from watersmeet.kernels.aggregation.arguments import NONE, Int64s
from watersmeet.kernels.compile import inlined
from watersmeet.kernels.loop_state import AT_LEAST, AT_MOST, EQUAL, LESS, MORE


@inlined
def holds(  # noqa: PLR0912 # a function per comparison would be called for every candidate
    ranges: Int64s,
    times: Int64s,
    op: Int64s,
    left: Int64s,
    left_column: Int64s,
    right: Int64s,
    right_column: Int64s,
    later_by: Int64s,
    target: int,
    chosen: Int64s,
) -> bool:
    """Whether the target's entry fits the entries chosen so far: comparisons between codes, and bounds between times."""
    fits = True
    for each in range(op.size):
        one, two = left[each], right[each]
        if (one == target or two == target) and chosen[one] != NONE and chosen[two] != NONE:  # noqa: PLR1714 # as above
            a, b = ranges[chosen[one], left_column[each]], ranges[chosen[two], right_column[each]]
            kind = op[each]
            if kind == EQUAL:
                fits = a == b
            elif kind == LESS:
                fits = a < b
            elif kind == AT_MOST:
                fits = a <= b
            elif kind == MORE:
                fits = a > b
            elif kind == AT_LEAST:
                fits = a >= b
            else:
                fits = a != b
            if not fits:
                break
    if fits:
        for other in range(later_by.shape[0]):
            if other != target and chosen[other] != NONE:
                later = times[chosen[target]] - times[chosen[other]]
                if later > later_by[other, target] or -later > later_by[target, other]:
                    fits = False
                    break
    return fits
