"""One problem of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASIDE = ".damaged"


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem of one file, and what a fix does about it.

    `aside` are the files to move out of the way. If there are none, the problem cannot be fixed.
    """

    place: Path
    wrong: str
    meaning: str
    aside: tuple[Path, ...] = ()

    @property
    def can_be_mended(self) -> bool:
        return bool(self.aside)

    def mend(self) -> None:
        """Move the files aside, under a name that no reader looks at. Another finding may have moved one before."""
        for file in self.aside:
            if file.exists():
                file.rename(file.with_name(f".{file.name}{ASIDE}"))

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": str(self.place),
            "wrong": self.wrong,
            "meaning": self.meaning,
            "can_be_mended": self.can_be_mended,
        }
