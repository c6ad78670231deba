"""The micro-batch that a task works for: its run, its batch id, its plan, and the rows that the plan sheds.

Spark tells a task its batch id, and the plan log keeps a plan once it is written for a batch. So a batch that runs
again sheds the same rows. A plan with another seed would shed other rows at the same rate, which has no use; it is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import PlanError
from watersmeet.operators.shed.sampling import DropBox, build_drop_boxes
from watersmeet.runtime.spark.plan_log import PlanLog

#: Batch id of a task that works for no micro-batch.
NO_BATCH = -1

#: Spark runs all jobs of a streaming query in a job group that is named after the run id.
_RUN_ID = "spark.jobGroup.id"


def task_run_id() -> str:
    """Return Spark's id of the streaming run that this task works for.

    It is empty on the driver, which only asks an operator for its columns.
    """
    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty(_RUN_ID) or ""


def task_batch_id() -> int:
    """Return the id of the task's micro-batch, or `NO_BATCH` on the driver."""
    task = TaskContext.get()
    return NO_BATCH if task is None else int(task.getLocalProperty("streaming.sql.batchId") or NO_BATCH)


def task_plan(log: PlanLog) -> Plan | None:
    """Return the logged plan of the task's batch, or None for the query's own plan.

    The call settles the plan: from now on, no other plan can be written for the batch.
    """
    batch = task_batch_id()
    return None if batch == NO_BATCH else log.settle_plan(batch)


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

    def current_box(self) -> DropBox:
        """Return the drop box of the task's batch."""
        plan = task_plan(self.log)
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
