"""The papers and their tables and figures, in the order of reproduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watersmeet.errors import InputError, listing
from watersmeet_lab.papers import ayad, golab, hammad, kang, tran
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit
from watersmeet_lab.papers.report import ReproducedPaper

Reproduction = Callable[[Effort], Exhibit]


@dataclass(frozen=True, slots=True)
class PaperEntry:
    """A paper by its short name, and a function for each of its tables and figures."""

    name: str
    citation: str
    reproductions: tuple[Reproduction, ...]


PAPERS = (
    PaperEntry(
        "golab",
        "Golab, Özsu: Processing sliding window multi-joins in continuous queries over data streams",
        golab.EXHIBITS,
    ),
    PaperEntry(
        "hammad", "Hammad, Aref, Elmagarmid: Joining multiple data streams with window constraints", hammad.EXHIBITS
    ),
    PaperEntry("kang", "Kang, Naughton, Viglas: Evaluating window joins over unbounded streams", kang.EXHIBITS),
    PaperEntry(
        "tran", "Tran, Lee: Transformation of continuous aggregation join queries over data streams", tran.EXHIBITS
    ),
    PaperEntry(
        "ayad",
        "Ayad, Naughton: Static optimization of conjunctive queries with sliding windows over infinite streams",
        ayad.EXHIBITS,
    ),
)


def find_papers(name: str) -> tuple[PaperEntry, ...]:
    """Return the paper of this name, or all papers.

    >>> [paper.name for paper in find_papers("kang")]
    ['kang']
    """
    found = tuple(paper for paper in PAPERS if name in (paper.name, "all"))
    if not found:
        raise InputError(
            f'there is no paper "{name}"', hint=f"papers: {listing([*(paper.name for paper in PAPERS), 'all'])}"
        )
    return found


def reproduce_papers(papers: tuple[PaperEntry, ...], effort: Effort) -> Iterator[ReproducedPaper]:
    """Reproduce the tables and figures of each paper in turn."""
    for paper in papers:
        yield ReproducedPaper(paper.name, paper.citation, tuple(reproduce(effort) for reproduce in paper.reproductions))
