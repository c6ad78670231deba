"""Ledger of a run: the fate of every row of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from watersmeet.algebra.render import html_table
from watersmeet.units import format_count


@dataclass
class Ledger:
    """Fate of every row of a stream: `arrived = kept + shed + late`. A late row never counts as shed."""

    arrived: int = 0
    kept: int = 0
    shed: int = 0
    late: int = 0

    def add(self, other: Ledger) -> None:
        self.arrived += other.arrived
        self.kept += other.kept
        self.shed += other.shed
        self.late += other.late


def render_ledger_html(ledger: Mapping[str, Ledger]) -> str:
    """Render the ledger of each stream as a table for a notebook."""
    rows = [(name, *(format_count(count) for count in asdict(entry).values())) for name, entry in ledger.items()]
    return html_table(("stream", "arrived", "kept", "shed", "late"), rows, "ledger")
