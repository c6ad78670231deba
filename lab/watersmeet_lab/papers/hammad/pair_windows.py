"""Windows per pair of streams: GCA joins with the largest for all streams, LCA with the largest of each stream.

In a path join, the windows have a direction, and the path is found in both directions by two queries.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Plan
from watersmeet_lab.papers.hammad.arrival_streams import Int64s
from watersmeet_lab.papers.hammad.service_time import NLW, StreamingJoin, compile_streams, list_aliases

GCA, LCA = "GCA", "LCA"
_PLANS = {GCA: "gca", LCA: "lca", NLW: "nlw-join"}


def join_within_pairs(name: str, pairs_us: Int64s) -> StreamingJoin:
    """Return the join of streams whose pairs have these windows."""
    aliases = list_aliases(len(pairs_us))
    windows = " AND ".join(
        f"WINDOW ({aliases[one]}, {aliases[other]}) = {int(pairs_us[one, other])} MICROSECONDS"
        for other in range(len(aliases))
        for one in range(other)
    )
    return StreamingJoin((compile_streams(len(aliases), windows, Plan(_PLANS[name])),))


def join_along_path(name: str, steps_us: Int64s) -> StreamingJoin:
    """Return both directions of a path: each stream follows its neighbour within the step's window.

    NLW-join goes along the path, with a period on one side of each row. LCA joins with derived windows and refines.
    """
    aliases = list_aliases(len(steps_us) + 1)
    directions = [
        " AND ".join(
            f"DWINDOW ({aliases[at + back]}, {aliases[at + 1 - back]}) = {int(step)} MICROSECONDS"
            for at, step in enumerate(steps_us)
        )
        for back in (0, 1)
    ]
    plan = Plan(_PLANS[name])
    return StreamingJoin(tuple(compile_streams(len(aliases), each, plan) for each in directions))
