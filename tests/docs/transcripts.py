"""The transcript of the demo in docs/transcripts. `python -m tests.docs.transcripts` writes it again.

Figures that depend on the machine are masked before two transcripts are compared.
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
#: The value in the last column of the table of predicted and measured figures.
_MEASURED = re.compile(r"^(  (?:CPU|state|rows out)\b.*\S)  +\S.*$", re.MULTILINE)
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
    """Return the words of each section without durations and measured figures.

    >>> mask_machine("1. The run ──\\n  batch 1: 5 rows\\n  CPU   3.1 %    4.2 %\\nIt took 2.5 s.\\n")
    ['1. The run ──', 'CPU 3.1 % MEASURED It took DURATION.']
    """
    text = _MEASURED.sub(r"\1 MEASURED", _OPTIONAL_LINE.sub("", transcript))
    sections = re.split(r"^(\d\. .*)$", text, flags=re.MULTILINE)
    words = (" ".join(section.split()) for section in sections)
    return [_PACE.sub("", _DURATION.sub("DURATION", section)) for section in words if section]


if __name__ == "__main__":
    DEMO.parent.mkdir(exist_ok=True)
    DEMO.write_text(record_demo(), encoding="utf-8")
