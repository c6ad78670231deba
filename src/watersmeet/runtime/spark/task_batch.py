"""What is dropped of a stream while a query runs: a drop box by batch, read from the log of plans by the task that
packs the batch.

Which batch a task works for is Spark's to say, and a plan once written for a batch stays, so a batch that runs again
drops the same rows. A change of the seed would drop other rows at the same rate, which nobody can want, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import PlanError
from watersmeet.operators.shed.sampling import DropBox, build_drop_boxes
from watersmeet.runtime.spark.plan_log import PlanLog

#: The batch of a task that works for none.
NO_BATCH = -1


def task_batch_id() -> int:
    """The number of the micro-batch; on the driver, where an operator is only asked for its columns, there is none."""
    task = TaskContext.get()
    return NO_BATCH if task is None else int(task.getLocalProperty("streaming.sql.batchId") or NO_BATCH)


def task_plan(log: PlanLog) -> Plan | None:
    """The plan that the log has for the batch this task works for, settled by this; None where the query's own is to be
    used.
    """
    batch = task_batch_id()
    return None if batch == NO_BATCH else log.settle_plan(batch)


@dataclass(frozen=True)
class PlannedDrops:
    """What plans say of a stream: the query's own until another is written for a batch."""

    bound: BoundQuery
    stream: str
    plan: Plan
    log: PlanLog

    @property
    def initial_box(self) -> DropBox:
        """The query's own box; one that keeps everything has the stream's seed nevertheless."""
        return build_drop_boxes(self.bound, self.plan).get(self.stream) or DropBox(
            self.stream, seed=self.plan.drop_seed
        )

    def current_box(self) -> DropBox:
        """The box of the batch the task works for."""
        plan = task_plan(self.log)
        if plan is None:
            return self.initial_box
        check_drop_seed(self.plan, plan)
        return build_drop_boxes(self.bound, plan).get(self.stream) or DropBox(self.stream, seed=plan.drop_seed)


def check_drop_seed(before: Plan, after: Plan) -> None:
    if after.drop and after.drop_seed != before.drop_seed:
        raise PlanError(
            f"a running query drops by the seed {before.drop_seed}, and the new plan by {after.drop_seed}",
            hint="give the new plan the same drop_seed",
        )


_RUN_ID = "spark.jobGroup.id"  # Spark runs all jobs of a streaming query in a group named by its run id


def task_run_id() -> str:
    """Return Spark's id of the streaming run that this task works for; on the driver, which only asks for an operator's
    columns, none.
    """
    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty(_RUN_ID) or ""
