"""Readable names in Spark's user interface, and the stages that Spark runs now, for people who wait for a query.

Descriptions of jobs and names of streaming queries are those of the caller's query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from watersmeet.algebra.expressions import has_aggregate
from watersmeet.algebra.query import Query, SelectItem
from watersmeet.errors import abbreviate
from watersmeet.runtime.spark.client import read_context
from watersmeet.sql.parsing import parse

_PREFIX = "watersmeet: "
_MAX_LENGTH = 100
_DESCRIPTION = "spark.job.description"


def ui_name(what: str) -> str:
    """Return the name under which Spark shows something of ours.

    >>> ui_name("pack orders")
    'watersmeet: pack orders'
    """
    return _PREFIX + abbreviate(what, _MAX_LENGTH)


def describe_query(query: Query | str) -> str:
    """Return a short description of a query: what it does with which sources.

    >>> describe_query("SELECT o.id FROM orders [ROWS 9] AS o, trades [ROWS 9] AS t WHERE o.id = t.id")
    'join orders, trades'
    >>> describe_query("SELECT COUNT(*) AS n FROM orders [RANGE 1 HOUR]")
    'aggregate orders'
    """
    parsed = parse(query) if isinstance(query, str) else query
    names = [source.name for source in parsed.sources]
    verb = "aggregate" if _is_aggregation(parsed) else "join" if len(names) > 1 else "select from"
    return f"{verb} {', '.join(names)}"


def _is_aggregation(query: Query) -> bool:
    return bool(query.group_by) or any(
        isinstance(item, SelectItem) and has_aggregate(item.expr) for item in query.select
    )


@contextmanager
def describe_jobs(spark: SparkSession, what: str) -> Iterator[None]:
    """Show a description for the jobs that this thread starts in a session; restore the caller's own afterwards.

    A session of Spark Connect has no descriptions.
    """
    context = read_context(spark)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, ui_name(what))
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type] # None removes the property


def watch_stages() -> Callable[[], str]:
    """Return a function that describes the running stages of the active session, with their finished tasks.

    Any thread may call it.
    """
    tracker = SparkSession.active().sparkContext.statusTracker()

    def describe() -> str:
        stages = [tracker.getStageInfo(number) for number in sorted(tracker.getActiveStageIds())]
        running = [
            f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks done" for each in stages if each
        ]
        return f"running on Spark, {' and '.join(running)}" if running else "running on Spark"

    return describe
