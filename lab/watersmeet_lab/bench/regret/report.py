"""The regret suite as a table, a summary and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.regret.measure import Regret

#: What the suite is to show.
MAX_MEDIAN_REGRET, MAX_WORST_REGRET, MIN_MEDIAN_CORRELATION = 1.10, 1.5, 0.9


def format_regret(found: Regret) -> str:
    left_out = f", {found.left_out} left out as hopeless" if found.left_out else ""
    return (
        f"{found.workload:<26} regret {found.regret:5.2f}  correlation {found.correlation:5.2f}  chosen {found.chosen.plan.algorithm:<11}"
        f" {found.chosen.measured_s * 1e3:7.1f} ms  best {found.best.plan.algorithm:<11} {found.best.measured_s * 1e3:7.1f} ms"
        f"  {len(found.timed)} plans{left_out}"
    )


def summarize_regrets(found: Sequence[Regret]) -> dict[str, float]:
    return {
        "median_regret": statistics.median(each.regret for each in found),
        "worst_regret": max(each.regret for each in found),
        "median_correlation": statistics.median(each.correlation for each in found),
    }


def format_verdict(found: Sequence[Regret]) -> str:
    values = summarize_regrets(found)
    return (
        f"{len(found)} workloads: regret median {values['median_regret']:.2f} (bar {MAX_MEDIAN_REGRET:.2f}), worst {values['worst_regret']:.2f}"
        f" (bar {MAX_WORST_REGRET:.2f}), rank correlation median {values['median_correlation']:.2f} (bar {MIN_MEDIAN_CORRELATION:.2f})"
    )


def regret_values(found: Regret) -> dict[str, object]:
    return {
        "workload": found.workload,
        "streams": found.streams,
        "plans": len(found.timed),
        "left_out": found.left_out,
        "regret": found.regret,
        "correlation": found.correlation,
        "chosen": found.chosen.plan.to_dict(),
        "chosen_s": found.chosen.measured_s,
        "best": found.best.plan.to_dict(),
        "best_s": found.best.measured_s,
    }


def plot_regrets(found: Sequence[Regret], path: Path) -> Path:
    """Measured against predicted time of every plan, a panel for each workload; the chosen plan is marked."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise WatersmeetError("the plot needs matplotlib", hint="install what requirements-dev.txt names") from error
    columns = min(6, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(3 * columns, 2.6 * rows), layout="constrained")
    for number, each in enumerate(found):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.loglog(
            [t.predicted_s for t in each.timed], [t.measured_s for t in each.timed], ".", color="#4878a8", markersize=3
        )
        axes.loglog(
            [each.chosen.predicted_s], [each.chosen.measured_s], "o", color="#c44e52", markersize=6, fillstyle="none"
        )
        ends = [min(t.predicted_s for t in each.timed), max(t.predicted_s for t in each.timed)]
        axes.loglog(ends, ends, "-", color="#999999", linewidth=0.7)
        axes.set_title(f"{each.workload}\nregret {each.regret:.2f}, ρ {each.correlation:.2f}", fontsize=8)
        axes.tick_params(labelsize=6)
    figure.supxlabel("predicted, s of CPU")
    figure.supylabel("measured, s of CPU")
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasSVG(figure)
    figure.savefig(path, format="svg")
    return path
