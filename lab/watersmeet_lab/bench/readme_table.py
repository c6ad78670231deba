"""The table of measured figures in the README, generated from the saved results.

`make readme` writes it between two markers:

    python -m watersmeet_lab.bench.readme_table README.md docs/benchmarks
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from watersmeet.errors import InputError
from watersmeet_lab.bench.results import PEER_SYSTEMS, PeerComparison, load_comparison

START, END = "<!-- measured figures: make readme -->", "<!-- end of measured figures -->"

#: Workloads of the table, with words for a reader who does not know them.
WORKLOADS = {
    "two-way": "two streams, equal keys, 10 s windows",
    "three-way": "three streams, equal keys, 10 s windows",
    "five-way": "five streams, equal keys, 10 s windows",
    "aggregation-join": "GROUP BY over a join",
    "nexmark-8": "NEXMark query 8",
}


def render_table(folder: Path) -> str:
    """Return the table as Markdown."""
    lines = [
        "| workload | rows/s on Spark | times Spark's own join | times Flink | rows/s in one process |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *(_render_row(load_comparison(folder / f"{name}.json")) for name in WORKLOADS)]) + "\n"


def update_readme(readme: Path, folder: Path) -> None:
    """Replace the table between the markers."""
    text = readme.read_text(encoding="utf-8")
    if START not in text or END not in text:
        raise InputError(f'"{readme}" has no markers for the table', hint=f"add {START} and {END}")
    replaced = re.sub(
        f"{re.escape(START)}\n.*?{re.escape(END)}", f"{START}\n{render_table(folder)}{END}", text, flags=re.DOTALL
    )
    readme.write_text(replaced, encoding="utf-8")


def _render_row(comparison: PeerComparison) -> str:
    speeds = {system.name: system.rows_per_s for system in comparison.systems}
    ratios = [f"{comparison.ratio[peer]:.1f}" if peer in comparison.ratio else "–" for peer in PEER_SYSTEMS[:2]]
    spark, embedded = (_format_speed(speeds.get(name)) for name in ("watersmeet-spark", "watersmeet-embedded"))
    return f"| {WORKLOADS[comparison.workload]} | {spark} | {ratios[0]} | {ratios[1]} | {embedded} |"


def _format_speed(rows_per_s: float | None) -> str:
    return "–" if rows_per_s is None else f"{rows_per_s:,.0f}"


if __name__ == "__main__":
    update_readme(Path(sys.argv[1]), Path(sys.argv[2]))
