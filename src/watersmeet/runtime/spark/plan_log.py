"""Plans of a streaming query by batch: a log beside its checkpoint, so that a batch that runs again decides the same.

State is the windows, whatever the plan, so a plan may change between any two batches with nothing to migrate. Every
batch has an entry, and whoever makes it first decides: the driver, with another plan, or, once the batch runs, any of
its tasks, with the plan of the batch before. An entry appears whole and is never changed, so all tasks of a batch, and
of its replay, run by the same plan, however close the race.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from watersmeet.algebra.plan import Plan
from watersmeet.checkpoint.framing import DamagedFileError, encode_frame, read_frame
from watersmeet.errors import InputError, PlanError

_KIND = "plan"

#: Entries so many batches old are deleted: only the last batch is ever run again.
KEPT = 100


@dataclass(frozen=True, slots=True)
class PlanLog:
    """A directory with a file per batch. All workers have to see it."""

    folder: Path

    def write(self, batch: int, plan: Plan) -> None:
        """From this batch on, the query runs by this plan, unless the batch has begun: then it is refused."""
        if batch < 0:
            raise InputError(f"there is no batch {batch}")
        if not self._put(batch, plan):
            raise PlanError(
                f"batch {batch} has its plan already", hint="a plan once written is not changed; take a later batch"
            )

    def plan_at(self, batch: int) -> Plan | None:
        """The plan a batch would run by if nothing more was written; None where it is the query's own."""
        written = [number for number in self._numbers() if number <= batch]
        return self._read(max(written)) if written else None

    def settle_plan(self, batch: int) -> Plan | None:
        """The same for a task of the batch: from now on nothing else can be written for it."""
        if not self._file(batch).exists():
            self._put(batch, self.plan_at(batch))
            for number in self._numbers():
                if number < batch - KEPT:
                    self._file(number).unlink(missing_ok=True)
        return self._read(batch)

    def _put(self, batch: int, plan: Plan | None) -> bool:
        """Create the entry, whole, if there is none; return whether it did."""
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self.folder / f"{uuid.uuid4().hex}.new"
        beside.write_bytes(encode_frame(_KIND, {"batch": batch, "plan": None if plan is None else plan.to_dict()})[0])
        try:
            os.link(beside, self._file(batch))
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        return True

    def _read(self, batch: int) -> Plan | None:
        """Read an entry; a damaged one, or one of another batch, is refused by its name: another plan would drop other
        rows.
        """
        place = self._file(batch)
        try:
            saved = read_frame(place, _KIND).header
            if saved["batch"] != batch:
                raise DamagedFileError(place, f"is damaged: it is the plan of batch {saved['batch']}")
        except DamagedFileError as error:
            # Tasks raise it, and only errors of `watersmeet.errors` are recognised in Spark's words.
            hint = "restore that file from a backup, or start again with a new checkpoint, plan log and output"
            raise InputError(f"plan log: {error.message}", hint=hint) from error
        return None if saved["plan"] is None else Plan.from_dict(saved["plan"])

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.json")]

    def _file(self, batch: int) -> Path:
        return self.folder / f"{batch:019d}.json"
