"""Write a report: a page per paper with plots, tables and verdicts, an index, and the claims as JSON."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from watersmeet_lab.papers.claims import Claim, Value
from watersmeet_lab.papers.errata import Erratum, list_errata
from watersmeet_lab.papers.exhibit import Cell, Exhibit, Table
from watersmeet_lab.papers.plots import draw_plot

VERDICTS = ("holds", "holds with a difference", "does not hold")


@dataclass(frozen=True, slots=True)
class ReproducedPaper:
    """A paper with its reproduced tables and figures."""

    name: str
    citation: str
    exhibits: tuple[Exhibit, ...]

    @property
    def claims(self) -> list[Claim]:
        return [claim for exhibit in self.exhibits for claim in exhibit.claims]


def write_report(papers: Sequence[ReproducedPaper], made: str, out: Path) -> Path:
    """Write the report into the folder and return the index; `made` describes the machine and the run."""
    out.mkdir(parents=True, exist_ok=True)
    for paper in papers:
        _write_paper(paper, out / paper.name)
    claims = [claim.to_dict() for paper in papers for claim in paper.claims]
    (out / "claims.json").write_text(json.dumps(claims, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    index = out / "README.md"
    index.write_text(_index_page(papers, made), encoding="utf-8")
    return index


def format_value(value: Value | Cell) -> str:
    """Format a value for a reader.

    >>> format_value(16000), format_value((0.123456, 7.0)), format_value("TN"), format_value(2.5e-7)
    ('16,000', '0.1235, 7', 'TN', '2.5e-07')
    """
    if isinstance(value, tuple):
        return ", ".join(format_value(each) for each in value)
    if isinstance(value, str):
        return value
    if value and abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.4f}".rstrip("0").rstrip(".") if abs(value) < 1000 else f"{value:,.1f}".removesuffix(".0")


def _write_paper(paper: ReproducedPaper, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"# {paper.citation}", "", "[All papers](../README.md)", ""]
    for exhibit in paper.exhibits:
        lines += [f"## {exhibit.title}", "", exhibit.setting, ""]
        for plot in exhibit.plots:
            svg, png = draw_plot(plot, folder)
            lines += [f"![{plot.title}]({svg.name})", "", f"[PNG]({png.name})", ""]
        for table in exhibit.tables:
            lines += [f"**{table.title}** ([CSV]({_write_csv(table, folder).name}))", "", *_markdown_table(table), ""]
            (folder / f"{table.name}.md").write_text(
                "\n".join([f"# {table.title}", "", *_markdown_table(table), ""]), encoding="utf-8"
            )
        lines += [*_verdict_table(exhibit.claims), ""]
    if errata := list_errata(paper.name):
        lines += ["## Errata", "", *_errata_table(errata), ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _verdict_table(claims: Iterable[Claim]) -> list[str]:
    rows = tuple(
        (
            claim.id,
            claim.kind,
            claim.statement,
            format_value(claim.paper),
            format_value(claim.ours),
            f"**{claim.verdict}**" + _difference_suffix(claim),
        )
        for claim in claims
    )
    return (
        _markdown_table(Table("claims", "", ("claim", "kind", "statement", "paper", "ours", "verdict"), rows))
        if rows
        else []
    )


def _errata_table(errata: Sequence[Erratum]) -> list[str]:
    rows = tuple((each.place, each.printed, each.correct, each.shown_by) for each in errata)
    return _markdown_table(Table("errata", "", ("place", "printed", "correct", "shown by"), rows))


def _difference_suffix(claim: Claim) -> str:
    return f": {claim.difference}" if claim.difference else ""


def _index_page(papers: Sequence[ReproducedPaper], made: str) -> str:
    counted = tuple((f"[{paper.citation}]({paper.name}/README.md)", *_verdict_counts(paper.claims)) for paper in papers)
    lines = ["# The papers, reproduced", "", *_PREFACE, "", made, ""]
    lines += [*_markdown_table(Table("papers", "", ("paper", "exact claims that hold", *VERDICTS), counted)), ""]
    lines += ["## Differences", ""]
    different = [claim for paper in papers for claim in paper.claims if claim.difference]
    rows = tuple(
        (claim.id, claim.statement, f"**{claim.verdict}**", format_value(claim.ours), claim.difference)
        for claim in different
    )
    lines += (
        _markdown_table(Table("different", "", ("claim", "statement", "verdict", "ours", "why"), rows))
        if rows
        else ["None."]
    )
    for paper in papers:
        lines += ["", f"## {paper.citation}", ""]
        if list_errata(paper.name):
            lines.append(f"- [Errata]({paper.name}/README.md#errata): places where the paper contradicts itself")
        lines += [
            f"- [{exhibit.title}]({paper.name}/README.md#{_heading_anchor(exhibit.title)})"
            for exhibit in paper.exhibits
        ]
    return "\n".join(lines) + "\n"


_PREFACE = (
    "Every table and figure of the five papers Watersmeet is built on. Computed figures come from our cost model; "
    "measured ones come",
    "from runs of our operators on the paper's workload. An *exact* claim is a number that agrees to the digits the "
    "paper prints; a",
    "*shape* claim is an order, a ratio or a crossing. `watersmeet paper all --out docs/papers` rewrites these pages.",
)


def _verdict_counts(claims: list[Claim]) -> tuple[Cell, ...]:
    verdicts = Counter(claim.verdict for claim in claims)
    precise = [claim for claim in claims if claim.kind == "exact"]
    return (f"{sum(claim.holds for claim in precise)} of {len(precise)}", *(verdicts[name] for name in VERDICTS))


def _heading_anchor(title: str) -> str:
    """Return the anchor of a heading in a Markdown page.

    >>> _heading_anchor("Figures 5, 6: limited")
    'figures-5-6-limited'
    """
    return "".join(sign for sign in title.lower().replace(" ", "-") if sign.isalnum() or sign in "-_")


def _write_csv(table: Table, folder: Path) -> Path:
    path = folder / f"{table.name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
    return path


def _markdown_table(table: Table) -> list[str]:
    rule = ["---" if _is_text(table, at) else "---:" for at in range(len(table.columns))]
    return [
        _markdown_row(table.columns),
        _markdown_row(rule),
        *(_markdown_row([format_value(cell) for cell in row]) for row in table.rows),
    ]


def _is_text(table: Table, column: int) -> bool:
    return any(isinstance(row[column], str) and row[column] for row in table.rows)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
