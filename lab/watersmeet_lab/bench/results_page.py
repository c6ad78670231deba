"""Page about a folder of saved results: a table of all workloads, and a section with a plot for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.results import (
    PEER_SYSTEMS,
    PeerComparison,
    SystemResult,
    current_commit,
    describe_machine,
    list_versions,
    load_comparison,
)

_COLOURS = {"watersmeet": "#c44e52", "spark": "#4878a8", "flink": "#55a868", "duckdb": "#999999"}
_PAGE, _GROWTH = "README.md", "growth.json"


def list_saved_workloads(folder: Path) -> set[str]:
    """Return the names of the workloads whose complete results are in the folder."""
    return {
        path.stem
        for path in folder.glob("*.json")
        if path.name != _GROWTH or json.loads(path.read_text()).get("complete", True)
    }


def write_page(folder: Path) -> Path:
    """Write the page and the plots from the results in the folder."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != _GROWTH]
    found = [load_comparison(path) for path in paths]
    for each in found:
        plot_comparison(each, folder / f"{each.workload}.svg")
    page = folder / _PAGE
    page.write_text(_page_text(found, [json.loads(path.read_text()) for path in paths]) + _growth_section(folder))
    return page


def save_growth(points: Sequence[Mapping[str, Any]], folder: Path, *, is_complete: bool) -> Path:
    """Save how our time per row grows, with the machine it was measured on, and plot it.

    `is_complete` is false while points are still to be measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _GROWTH
    record = {
        "points": list(points),
        "complete": is_complete,
        "machine": describe_machine(),
        "versions": list_versions(),
        "commit": current_commit(),
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for point in points:
        curve = curves.setdefault(_growth_dimension(point), {}).setdefault(point["engine"], [])
        curve.append((point["size"], point["seconds_per_row"] * 1e9))
    figure = _new_figure(3.2 * max(1, len(curves)), 2.8)
    for number, (dimension, engines) in enumerate(curves.items()):
        axes = figure.add_subplot(1, len(curves), number + 1)
        for engine, curve in engines.items():
            axes.plot(*zip(*curve, strict=True), "o-", label=engine, markersize=3)
        axes.set_xlabel(dimension, fontsize=8)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7)
    figure.supylabel("ns per row", fontsize=8)
    figure.savefig(path.with_suffix(".svg"), format="svg", metadata={"Date": None})
    return path


def plot_comparison(found: PeerComparison, path: Path) -> Path:
    """Plot rows per second of every system next to the peak memory of its processes."""
    figure = _new_figure(9, 0.9 + 0.35 * len(found.systems))
    systems = found.systems[::-1]
    names, colours = [each.name for each in systems], [_COLOURS[each.name.partition("-")[0]] for each in systems]
    speed, memory = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    speed.bar_label(speed.barh(names, [each.rows_per_s for each in systems], color=colours), fmt=" {:,.0f}", fontsize=7)
    speed.set_xscale("log")
    speed.margins(x=0.2)
    speed.set_xlabel("rows per second", fontsize=8)
    memory.barh(names, [(each.peak_bytes or 0) / 1e6 for each in systems], color=colours)
    memory.set_xlabel("peak memory, MB", fontsize=8)
    for axes in (speed, memory):
        axes.tick_params(labelsize=7)
    figure.suptitle(f"{found.workload}: {found.rows_in:,} rows in, {found.rows_out:,} out", fontsize=9)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise WatersmeetError(
            "the plots need matplotlib", hint="install the packages in requirements-dev.txt"
        ) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def _growth_section(folder: Path) -> str:
    if not (folder / _GROWTH).exists():
        return ""
    points = json.loads((folder / _GROWTH).read_text())["points"]
    rows = [
        f"| {_growth_dimension(point)} | {point['engine']} | {point['size']:,} | {point['seconds_per_row'] * 1e9:,.0f} "
        f"| {point['over_first']:.2f} | {point['allowed']:.2f} |"
        for point in points
    ]
    head = ["what grows", "engine", "size", "ns per row", "relative to smallest size", "limit"]
    lines = [
        "",
        "## growth",
        "",
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *rows,
        "",
        "![growth](growth.svg)",
    ]
    return "\n".join(lines) + "\n"


def _growth_dimension(point: Mapping[str, Any]) -> str:
    # Older files have the key "grows".
    return str(point["dimension"] if "dimension" in point else point["grows"])


def _page_text(found: list[PeerComparison], saved: list[dict[str, Any]]) -> str:
    head = ["workload", "rows in", "rows out", "ours on Spark", "embedded", *(f"over {peer}" for peer in PEER_SYSTEMS)]
    lines = [
        "# Against peers",
        "",
        "Written by `watersmeet bench peers --save docs/benchmarks`. All systems of a workload read the same rows in "
        "one run",
        "on one machine and returned the same rows. Speed is input rows per second. A ratio is our speed on Spark "
        "over the",
        "best setting of the peer. Workloads that we did not run on Spark use our embedded speed instead.",
        "",
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *map(_summary_row, found),
    ]
    for each, record in zip(found, saved, strict=True):
        lines += ["", f"## {each.workload}", "", *_workload_section(each, record)]
    return "\n".join(lines) + "\n"


def _summary_row(found: PeerComparison) -> str:
    speeds = {each.name: f"{each.rows_per_s:,.0f}" for each in found.systems}
    ours = [speeds.get(name, "–") for name in ("watersmeet-spark", "watersmeet-embedded")]
    ratios = [f"{found.ratio[peer]:.2f}" if peer in found.ratio else "–" for peer in PEER_SYSTEMS]
    cells = [f"[{found.workload}](#{found.workload})", f"{found.rows_in:,}", f"{found.rows_out:,}", *ours, *ratios]
    return f"| {' | '.join(cells)} |"


def _workload_section(found: PeerComparison, record: dict[str, Any]) -> list[str]:
    note = [f"{found.note[0].upper()}{found.note[1:]}.", ""] if found.note else []
    missing = [f"Skipped: {peer} ({reason})." for peer, reason in found.skipped.items()]
    machine = record["machine"]
    setup = (
        f"{machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, commit {record['commit']}, seed "
        f"{found.seed}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return [
        *note,
        "| system | rows per s | p50 ms | p99 ms | peak MB | state MB |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_system_row, found.systems),
        "",
        *([*missing, ""] if missing else []),
        f"![{found.workload}]({found.workload}.svg)",
        "",
        f"{setup}; {versions}.",
    ]


def _system_row(each: SystemResult) -> str:
    latency = [f"{value:,.0f}" if value is not None else "–" for value in (each.p50_ms, each.p99_ms)]
    memory = [f"{value / 1e6:,.0f}" if value is not None else "–" for value in (each.peak_bytes, each.state_bytes)]
    return f"| {' | '.join([each.name, f'{each.rows_per_s:,.0f}', *latency, *memory])} |"
