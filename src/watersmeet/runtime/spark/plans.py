"""Plans of a streaming query by batch: a log beside its checkpoint, so that a batch that runs again decides the same.

State is the windows, whatever the plan, so a plan may change between any two batches with nothing to migrate. A plan is written for
a batch that has not begun, and what is written once is never changed; a batch runs by the newest plan written for it or for one before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from watersmeet.algebra.plan import Plan
from watersmeet.errors import InputError, PlanError


@dataclass(frozen=True, slots=True)
class PlanLog:
    """A directory with a file per change of plan, named by the first batch that runs by it. All workers have to see it."""

    folder: Path

    def write(self, batch: int, plan: Plan) -> None:
        """From this batch on, the query runs by this plan. The batch must not have begun."""
        if batch < 0:
            raise InputError(f"there is no batch {batch}")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with self._file(batch).open("x", encoding="utf-8") as opened:
                json.dump(plan.to_dict(), opened)
        except FileExistsError as error:
            raise PlanError(f"batch {batch} has its plan already", hint="a plan once written is not changed; take a later batch") from error

    def has(self, batch: int) -> bool:
        """Whether a plan was written for this very batch."""
        return self._file(batch).exists()

    def plan_at(self, batch: int) -> Plan | None:
        """The plan a batch runs by; None where the query's own is still to be used."""
        written = [file for file in self.folder.glob("*.json") if int(file.stem) <= batch] if self.folder.is_dir() else []
        return Plan.from_dict(json.loads(max(written).read_text(encoding="utf-8"))) if written else None

    def _file(self, batch: int) -> Path:
        return self.folder / f"{batch:019d}.json"
