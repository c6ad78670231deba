"""Report on a running query: its verdict, and figures as predicted before the start, as measured, as predicted now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from watersmeet.units import format_bytes, format_count, format_duration, format_percent, format_rate


class Verdict(StrEnum):
    """Whether a running query keeps up with its streams."""

    UNKNOWN = "not known yet"
    KEEPS_UP = "keeps up"
    MAY_NOT = "may not keep up"
    DOES_NOT = "does not keep up"


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure: as predicted before the start, as measured, and as predicted now. `kind` names its unit."""

    name: str
    kind: str
    first: float | None
    measured: float
    current: float | None
    high: float | None = None

    def cells(self) -> list[str]:
        """Return the name, the three figures and the upper end of the last one, as text."""
        figures = [_format(self.kind, each) for each in (self.first, self.measured, self.current)]
        return [self.name, *figures, "" if self.high is None else f"up to {_format(self.kind, self.high)}"]

    def describe(self) -> str:
        """Describe the figure in one line of a table."""
        name, first, measured, current, high = self.cells()
        return f"  {name:<24}{first:>18}{measured:>18}{current:>18}  {high}".rstrip()


@dataclass(frozen=True, slots=True)
class FailedAssumption:
    """An assumption of the first forecast that the batches contradict."""

    name: str
    assumed: str
    measured: str
    factor: float

    def __str__(self) -> str:
        direction = f"{self.factor:,.1f} times as many" if self.factor >= 1 else f"only {format_percent(self.factor)}"
        return f"{self.name}: {self.assumed}, measured {self.measured} ({direction})"


@dataclass(frozen=True, slots=True)
class LiveReport:
    """First forecast, measurement and current forecast of a running query, and its verdict."""

    batch: int
    verdict: Verdict
    reason: str
    comparisons: tuple[ComparedFigure, ...] = ()
    failed: tuple[FailedAssumption, ...] = ()
    safe_rows_per_s: float | None = None

    def __str__(self) -> str:
        return "\n".join(self.describe())

    @property
    def sentence(self) -> str:
        """The verdict with its reason."""
        return f"it {self.verdict}: {self.reason}" if self.verdict is not Verdict.UNKNOWN else self.reason

    def describe(self) -> Iterator[str]:
        """Describe the report in lines of text, the verdict first."""
        yield f"after batch {self.batch}: {self.sentence}"
        if self.comparisons:
            yield f"  {'':<24}{'first forecast':>18}{'measured':>18}{'next batch':>18}"
        yield from (each.describe() for each in self.comparisons)
        for each in self.failed:
            yield f"  assumption that failed: {each}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON; `from_dict` reads it back."""
        return {
            "batch": self.batch,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "comparisons": [asdict(each) for each in self.comparisons],
            "failed": [asdict(each) for each in self.failed],
            "safe_rows_per_s": self.safe_rows_per_s,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> LiveReport:
        """Return a report from its JSON values."""
        return cls(
            saved["batch"],
            Verdict(saved["verdict"]),
            saved["reason"],
            tuple(ComparedFigure(**each) for each in saved["comparisons"]),
            tuple(FailedAssumption(**each) for each in saved["failed"]),
            saved["safe_rows_per_s"],
        )


def _format(kind: str, value: float | None) -> str:
    if value is None:
        return ""
    match kind:
        case "rows/s":
            return format_rate(value)
        case "s":
            return format_duration(value)
        case "bytes":
            return format_bytes(value)
        case _:
            return f"{format_count(value)} rows"
