"""Plan log: the plans of a streaming query by batch, so that a batch that runs again uses the same plan.

The log is a directory next to the checkpoint. State is the windows, whatever the plan, so a plan may change between any
two batches without migration. Every batch has an entry, and the first writer decides. The driver writes a new plan.
Once the batch runs, any of its tasks may write the plan of the previous batch. An entry is written atomically and never
changed. So all tasks of a batch and of its replay use the same plan, even in a race, and shed the same rows. A plan
with another seed is refused: it would shed other rows at the same rate.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InputError, PlanError
from watersmeet.files import flush_directory, make_directory
from watersmeet.framing import DamagedFileError, encode_frame, read_frame
from watersmeet.operators.shed.sampling import DropBox, build_drop_boxes

_KIND = "plan"

#: Batch id of a task that works for no micro-batch.
NO_BATCH = -1

#: Entries older than this number of batches are deleted: Spark only runs the last batch again.
MAX_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class PlanLog:
    """A directory with one file per batch. All workers must be able to access it."""

    folder: Path

    def write(self, batch: int, plan: Plan) -> None:
        """Use this plan from this batch on. A batch that already has its plan is refused."""
        if batch < 0:
            raise InputError(f"there is no batch {batch}")
        if not self._create(batch, plan):
            raise PlanError(
                f"batch {batch} already has its plan", hint="a written plan cannot be changed; use a later batch"
            )

    def plan_at(self, batch: int) -> Plan | None:
        """Return the plan of a batch if nothing more is written; None means the query's own plan."""
        written = [number for number in self._list_batches() if number <= batch]
        return self._read(max(written)) if written else None

    def settle_plan(self, batch: int) -> Plan | None:
        """Return the plan of a batch for one of its tasks; from now on, no other plan can be written for it.

        None means the query's own plan, which a task of no micro-batch uses too.
        """
        if batch == NO_BATCH:
            return None
        if not self._file(batch).exists():
            self._create(batch, self.plan_at(batch))
            for number in self._list_batches():
                if number < batch - MAX_ENTRIES:
                    self._file(number).unlink(missing_ok=True)
        return self._read(batch)

    def _create(self, batch: int, plan: Plan | None) -> bool:
        """Create the entry atomically if there is none; return whether it was created.

        It is on disk before the batch runs by it. Otherwise a power failure could change the plan of a replay.
        """
        make_directory(self.folder)
        temporary = self.folder / f"{uuid.uuid4().hex}.new"
        content, _ = encode_frame(_KIND, {"batch": batch, "plan": None if plan is None else plan.to_dict()})
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, self._file(batch))
            flush_directory(self.folder)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _read(self, batch: int) -> Plan | None:
        """Read an entry. Refuse a damaged entry, or one of another batch: another plan would shed other rows."""
        path = self._file(batch)
        try:
            saved = read_frame(path, _KIND).header
            if saved["batch"] != batch:
                raise DamagedFileError(path, f"is damaged: it is the plan of batch {saved['batch']}")
        except DamagedFileError as error:
            # Tasks raise this error, and only errors of `watersmeet.errors` are recognised in a message of Spark.
            hint = "restore that file from a backup, or start again with a new checkpoint, plan log and output"
            raise InputError(f"plan log: {error.message}", hint=hint) from error
        return None if saved["plan"] is None else Plan.from_dict(saved["plan"])

    def _list_batches(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.json")]

    def _file(self, batch: int) -> Path:
        return self.folder / f"{batch:019d}.json"


@dataclass(frozen=True)
class PlannedDrops:
    """Shed rates of one stream by batch: those of the query's own plan until the log has another plan."""

    bound: BoundQuery
    stream: str
    plan: Plan
    log: PlanLog

    @property
    def initial_box(self) -> DropBox:
        """Drop box of the query's own plan. A box that keeps every row still has the seed of the stream."""
        return build_drop_boxes(self.bound, self.plan).get(self.stream) or DropBox(
            self.stream, seed=self.plan.drop_seed
        )

    def box_at(self, batch: int) -> DropBox:
        """Return the drop box of a batch for one of its tasks, and settle its plan."""
        plan = self.log.settle_plan(batch)
        if plan is None:
            return self.initial_box
        check_drop_seed(self.plan, plan)
        return build_drop_boxes(self.bound, plan).get(self.stream) or DropBox(self.stream, seed=plan.drop_seed)


def check_drop_seed(before: Plan, after: Plan) -> None:
    """Refuse a new plan that sheds by another seed."""
    if after.drop and after.drop_seed != before.drop_seed:
        raise PlanError(
            f"the running query sheds rows with seed {before.drop_seed}, but the new plan uses {after.drop_seed}",
            hint="give the new plan the same drop_seed",
        )
