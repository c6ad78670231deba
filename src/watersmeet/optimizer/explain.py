"""What will run, and why, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.render import query_text
from watersmeet.algebra.windows import FOREVER_US, duration_text
from watersmeet.operators.meet.config import MeetConfig, MeetInput


@dataclass(frozen=True, slots=True)
class Explanation:
    """A query's plan as a value; prints as text."""

    bound: BoundQuery
    config: MeetConfig

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for programs."""
        return {
            "query": query_text(self.bound.query),
            "inputs": [self._input(each) for each in self.config.inputs],
            "pairs": [{"first": a, "second": b, "within_us": within} for a, b, within in self._pairs()],
            "orders": {
                self.config.inputs[origin].alias: [self.config.inputs[step.target].alias for step in steps]
                for origin, steps in enumerate(self.config.orders)
                if self.config.inputs[origin].is_stream
            },
            "waits_for_watermark": self.config.waits_for_watermark,
        }

    def __str__(self) -> str:
        about = self.to_dict()
        lines = [about["query"], "", "rows kept"]
        lines += [f"  {each['alias']}: {each['keeps']}" for each in about["inputs"]]
        if about["pairs"]:
            lines += ["times in a result, given and derived"]
            lines += [f"  {a} and {b} at most {_length(within)} apart" for a, b, within in self._pairs()]
        if len(self.config.inputs) > 1:
            lines += ["order of probing, by the stream a new row comes from"]
            lines += [f"  {origin}: {' → '.join([origin, *others])}" for origin, others in about["orders"].items()]
        if self.config.waits_for_watermark:
            lines += ["results wait for the watermark: a ROWS window is decided in time order"]
        return "\n".join(lines)

    def _input(self, source: MeetInput) -> dict[str, Any]:
        return {
            "alias": source.alias,
            "source": source.name,
            "window": None if source.window is None else str(source.window),
            "retention_us": source.retention_us if source.retention_us < FOREVER_US else None,
            "keeps": self._keeps(source),
        }

    def _keeps(self, source: MeetInput) -> str:
        if not source.is_stream:
            return "the whole relation"
        if len(self.config.streams) == 1 and not source.has_ends:
            return "nothing, its rows meet no other stream"
        kept = "everything" if source.retention_us >= FOREVER_US else f"{_length(source.retention_us)} behind the watermark"
        return f"[{source.window}]" if source.has_ends else kept

    def _pairs(self) -> list[tuple[str, str, int]]:
        streams, bounds = self.config.streams, self.config.bounds
        return [
            (self.config.inputs[i].alias, self.config.inputs[j].alias, bounds.symmetric_us(i, j))
            for place, i in enumerate(streams)
            for j in streams[place + 1 :]
            if bounds.symmetric_us(i, j) < FOREVER_US
        ]


def _length(length_us: int) -> str:
    return duration_text(length_us).lower() if length_us else "0 seconds"
