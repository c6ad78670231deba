"""Settings of every test run, and a table of the time per part of the suite."""

from __future__ import annotations

import os
import sys
from collections import defaultdict

import pytest
from hypothesis import settings

# Measured CPU time differs between runs. Tests of rehearsals switch them on.
os.environ.setdefault("WATERSMEET_REHEARSAL", "off")
# Runs of a test must not correct the forecasts of the next one.
os.environ.setdefault("WATERSMEET_LEARNING", "off")

# Without bytecode on disk, each of the processes that the tests and Spark start would compile all packages again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# One seed per run and nothing written next to the code: a failure replays by running the test again.
settings.register_profile("watersmeet", deadline=None, derandomize=True, database=None)
settings.load_profile("watersmeet")

#: Parts of the suite by the folders of their tests; the first match counts, everything else is "quick".
PARTS = (
    ("faults", ("tests/spark/faults/", "tests/spark/cluster/", "tests/runtime/test_damaged_checkpoints.py")),
    ("spark", ("tests/spark/",)),
    ("properties", ("tests/properties/",)),
    ("docs", ("tests/docs/", "tests/dashboard/")),
)

#: Files that take most CPU time, the longest first. They start before the other files of their part.
LONG_FILES = (
    "tests/spark/test_before_the_first_batch.py",
    "tests/spark/test_start.py",
    "tests/spark/test_ended_queries.py",
    "tests/spark/test_demo_on_spark.py",
    "tests/spark/real_data/test_real_data.py",
    "tests/spark/test_checkpoints.py",
    "tests/spark/test_spread_aggregation.py",
    "tests/spark/test_bench.py",
    "tests/spark/test_repair.py",
    "tests/spark/test_sources.py",
    "tests/spark/test_bad_input.py",
    "tests/spark/test_streaming.py",
    "tests/spark/test_plan_changes.py",
    "tests/properties/test_against_the_oracle.py",
    "tests/properties/test_aggregation.py",
    "tests/properties/test_query_errors.py",
    "tests/properties/test_planning_mutants.py",
    "tests/docs/test_pages.py",
    "tests/dashboard/test_in_a_browser.py",
    "tests/dashboard/test_dashboard_of_a_run.py",
    "tests/lab/papers/test_report.py",
    "tests/planner/test_aggregation_budget.py",
    "tests/lab/bench/test_peer_comparison.py",
    "tests/runtime/test_shown_plan_runs.py",
    "tests/operators/window_join/test_live_indexes.py",
    "tests/runtime/test_checkpoint_mutants.py",
    "tests/cli/test_incremental_run.py",
    "tests/planner/test_feasibility.py",
    "tests/planner/test_shed_search.py",
    "tests/planner/test_counted_comparisons.py",
    "tests/operators/window_join/test_tactics.py",
    "tests/cli/test_demo.py",
    "tests/operators/window_join/test_predicates_between_loops.py",
    "tests/golden/test_plans.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the parts and files that take longest, so that no process is left with a long file at the end."""
    order = [part for part, _ in PARTS]

    def rank(item: pytest.Item) -> tuple[int, int]:
        part, file = part_of(item.nodeid), item.nodeid.partition("::")[0]
        return (
            order.index(part) if part in order else len(order),
            LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES),
        )

    items.sort(key=rank)


def part_of(node_id: str) -> str:
    """Return the part of the suite that a test belongs to."""
    return next((part for part, folders in PARTS if node_id.startswith(folders)), "quick")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many seconds each part of the suite took, summed over the workers."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[part_of(report.nodeid)] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by part, summed over the workers")
        for part, spent in sorted(seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{spent:8.0f} s  {part}")
