"""Places where a paper's text disagrees with its own formulas, tables or definitions, and what we do there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Erratum:
    """An error in a paper: the printed text, the correct one, and the evidence."""

    paper: str
    place: str
    printed: str
    correct: str
    shown_by: str


ERRATA = (
    Erratum(
        "hammad",
        "section 3.2, Mode 1 of MW-join",
        "A row that Mode 1 fetches is verified against the starting N-tuple only.",
        "It must join the whole buffers, which still hold rows of the previous period.",
        "w = 10, A = {3, 6}, B = {1, 12}: the paper's text loses (6, 12).",
    ),
    Erratum(
        "hammad",
        "section 3.2, Mode 2 of MW-join",
        "Each new and each admitted tuple joins all tuples in the other buffers.",
        "A row joins only rows that were admitted before it.",
        "Two new rows in different buffers would find each other twice.",
    ),
    Erratum(
        "hammad",
        "section 3.2, end of Mode 2",
        "Mode 2 ends when the next tuple of each stream is to the right of the period.",
        "It ends when no available row is inside the period.",
        "By the paper's text, a silent stream blocks the others, which section 3 forbids.",
    ),
    Erratum(
        "kang",
        "eq. 6",
        "The T-tree update is 2 · 1.5 · (…) + ⌈log2 N⌉.",
        "The whole bracket is doubled: an insertion and an invalidation each search a node.",
        "Only then do the costs of Table 3 come out.",
    ),
    Erratum(
        "kang",
        "section 5.1, after Figure 2",
        "With a larger window A and a smaller window B, all four crossings move right.",
        "The outer two move right. The inner two move left or stay.",
        "Eqs. 8 to 11 with A, B = 5,000, 5,000 and then 7,000, 3,000: λa/λb crosses at 0.0009, 0.276, 3.62, 1,099 and "
        "then at 0.0015, 0.189, 2.58, 1,540.",
    ),
    Erratum(
        "tran",
        "Figure 5, step 3",
        "A row looks into AS_j or W_j, depending on whether an early aggregation is placed on S_k.",
        "It depends on whether an early aggregation is placed on S_j.",
        "AS_j exists only if S_j aggregates early.",
    ),
    Erratum(
        "tran",
        "eq. 6",
        "The terms are α1/Bg and α/B2.",
        "They are α1/B1 and α/Bg.",
        "Eq. 10 has them, and AS_1 is hashed on the join attribute.",
    ),
    Erratum(
        "ayad",
        "eq. 8",
        "Rows that arrive on the left pay to enter and leave the right window.",
        "They pay to enter and leave the left window.",
        "Eq. 2 of Kang, Naughton and Viglas, its source, has it so.",
    ),
    Erratum(
        "ayad",
        "Example 1",
        "Plan (c) uses 50 % of the processor.",
        "It uses 45 %.",
        "It handles 900 tuples per second at 0.5 ms each.",
    ),
)


def list_errata(paper: str) -> tuple[Erratum, ...]:
    """Return the errata of one paper.

    >>> [erratum.place for erratum in list_errata("tran")]
    ['Figure 5, step 3', 'eq. 6']
    """
    return tuple(erratum for erratum in ERRATA if erratum.paper == paper)
