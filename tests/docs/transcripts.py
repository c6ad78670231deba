"""The transcript of the demo in docs/transcripts. `python -m tests.docs.transcripts` writes it again.

Figures that depend on the machine, or on the costs of plans, are masked before two transcripts are compared.
"""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console

from watersmeet.cli.demo import steps
from watersmeet.cli.demo.engines import SPARK

DEMO = Path(__file__).parents[2] / "docs" / "transcripts" / "demo.txt"

_WIDTH = 100

#: Lines that another run may lack, or have more often.
_OPTIONAL_LINE = re.compile(r"^  batch \d+: .*\n|^The kernels of these queries were compiled .*\n", re.MULTILINE)
#: Values in the table of predicted and measured figures.
_MEASURED = re.compile(r"^  (CPU of the join|CPU of Spark itself|CPU in all|state|rows out)  +\S.*$", re.MULTILINE)
#: Table of plans, with the name of the algorithm first in each line.
_PLANS = re.compile(r"^  plan  +CPU of the join\n((?:  \S.*\n)+)", re.MULTILINE)
#: Figures and choices that follow from predicted costs. Words are separated by one space.
_COSTED = (
    (re.compile(r"the cost of \d+ plans"), "the cost of COUNT plans"),
    (re.compile(r"[\d.,]+ % of a core|[\d.,]+ cores?\b"), "CORES"),
    (re.compile(r"CORES, \S+ \w+ of state \(\S+ rows\), and emits \S+ rows/s"), "CORES, STATE, and emits RATE"),
    (re.compile(r"It (?:keeps|cannot keep) up on one core"), "VERDICT"),
    (re.compile(r"[\d.,]+ times as much"), "RATIO times as much"),
    (re.compile(r"Replayed \d+ times faster, \S+ flights"), "Replayed FACTOR times faster, RATE flights"),
    (re.compile(r"(?<=Any of these would help: ).*(?= The run on Spark sheds)"), "REMEDIES"),
    (re.compile(r"= [\d,]+ kept \+ [\d,]+ shed"), "= KEPT kept + SHED shed"),
    (re.compile(r"It finds [\d,]+ of ([\d,]+) results: \S+ %, predicted \S+ %"), r"It finds some of \1 results"),
)
_DURATION = re.compile(r"\d[\d.,]*\s(?:ms|s|minutes)\b")
#: Words about the pace of the replay. A test does not wait for it.
_PACE = re.compile(
    r", one batch every DURATION|, as fast as it can"
    r"|The run (?:kept up|fell behind): a batch took DURATION on average and DURATION at most\. "
)


def record_demo(*, paced: bool = True) -> str:
    """Run the demo on Spark, and return the command with everything it prints on a terminal of 100 columns."""
    screen = Console(record=True, width=_WIDTH, highlight=False)
    if not steps.run_demo(screen, SPARK, paced=paced):
        raise AssertionError(screen.export_text())
    lines = [line.rstrip() for line in screen.export_text().splitlines()]
    return "\n".join(["$ watersmeet demo", *lines, ""])


def mask_machine(transcript: str) -> list[str]:
    """Return the words of each section without durations, measured figures, and figures that depend on costs.

    >>> mask_machine("1. The run ──\\n  batch 1: 5 rows\\n  CPU in all   3.1 %    4.2 %\\nIt took 2.5 s.\\n")
    ['1. The run ──', 'CPU in all FIGURES It took DURATION.']
    >>> mask_machine("  plan   CPU of the join\\n  tree   1 core   chosen\\n  runs   2 cores   2 times\\nDone.\\n")
    ['PLANS runs tree Done.']
    """
    text = _PLANS.sub(_name_plans, _MEASURED.sub(r"\1 FIGURES", _OPTIONAL_LINE.sub("", transcript)))
    sections = re.split(r"^(\d\. .*)$", text, flags=re.MULTILINE)
    words = (" ".join(section.split()) for section in sections)
    return [_mask_costs(_PACE.sub("", _DURATION.sub("DURATION", section))) for section in words if section]


def _name_plans(table: re.Match[str]) -> str:
    """Return the algorithms of a table of plans, which is in the order of their costs."""
    return f"PLANS {' '.join(sorted(line.split()[0] for line in table[1].splitlines()))}\n"


def _mask_costs(words: str) -> str:
    for costed, replacement in _COSTED:
        words = costed.sub(replacement, words)
    return words


if __name__ == "__main__":
    DEMO.parent.mkdir(exist_ok=True)
    DEMO.write_text(record_demo(), encoding="utf-8")
