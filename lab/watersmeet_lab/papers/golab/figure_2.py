"""Figure 2: how Eager Multi-Way NLJ and the naive order scale with the number of windows."""

from __future__ import annotations

import watersmeet as wm
from watersmeet_lab.papers.claims import shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Line, LinePanel, Plot, lines_table, model_lines
from watersmeet_lab.papers.golab.models import figure_2 as modelled
from watersmeet_lab.papers.golab.multi_join_runs import count_comparisons, stream_names_in_order
from watersmeet_lab.workloads.golab_streams import StreamSpec

ALGORITHMS = {"MULTI-WAY": "eager-nlj", "NAIVE": "naive-nlj"}
_UNITS = 400


def figure_2(effort: Effort) -> Exhibit:
    """Compare both algorithms over 2 to 7 equal windows: the model's costs and the counts of our loops."""
    effort.report("golab, Figure 2: comparisons of the loops as windows are added")
    model = model_lines(modelled(range(2, 8)))
    windows = (2, 3) if effort.quick else (2, 3, 4, 5)
    lines = (*model, *(_count_by_windows(name, windows, effort) for name in ALGORITHMS))
    multi, naive = lines[2], lines[3]
    gains = [ours / theirs for ours, theirs in zip(naive.y, multi.y, strict=True)]
    errors = [
        abs(there - here) / there for at in (0, 1) for there, here in zip(lines[at].y, lines[at + 2].y, strict=False)
    ]
    claims = (
        shape_claim(
            "golab.figure2.scales",
            "MULTI-WAY needs fewer comparisons than NAIVE, and the gap widens with every window",
            "scales considerably better",
            "NAIVE needs " + ", ".join(f"{gain:.1f} times at n = {n}" for gain, n in zip(gains, windows, strict=True)),
            holds=all(gain > 1 for gain in gains[1:]) and gains == sorted(gains),
        ),
        shape_claim(
            "golab.figure2.model",
            "comparisons that the loops count agree with the cost model",
            "cost model",
            f"largest difference {max(errors):.1%}",
            holds=max(errors) < 0.1,
        ),
    )
    plot = Plot(
        "figure-2",
        "Figure 2: comparisons as windows are added",
        (LinePanel("T = 100, λ = 1, v = 50", "windows", "comparisons per unit of time", lines, log_y=True),),
    )
    return Exhibit(
        "Figure 2: MULTI-WAY against NAIVE",
        f"Model for 2 to 7 windows; counts of our operators over {_units(effort)} units of time with full windows. "
        "With two windows, both algorithms are the same loops.",
        claims,
        (lines_table("figure-2", "Comparisons per unit of time", lines, "windows"),),
        (plot,),
    )


def _count_by_windows(name: str, windows: tuple[int, ...], effort: Effort) -> Line:
    counts = []
    for count in windows:
        streams = (StreamSpec(1, 100, 50),) * count
        counts.append(
            count_comparisons(
                streams, wm.plan(ALGORITHMS[name], order=stream_names_in_order(streams, range(count))), _units(effort)
            )
        )
    return Line(name, tuple(map(float, windows)), tuple(counts))


def _units(effort: Effort) -> int:
    return effort.scale_rows(_UNITS, least=100)
