"""`watersmeet ui`, and the dashboard of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import watersmeet as wm
from watersmeet.algebra.query import Query
from watersmeet.cli.exit import stop_on_signals
from watersmeet.cli.terminal import make_console
from watersmeet.dashboard.server import DashboardContent, serve
from watersmeet.dashboard.view import LiveRun
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.errors import escape_controls
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.stats.stream_stats import StreamStats

#: Query of the dashboard without arguments: the sales of three stores, with declared statistics.
EXAMPLE = """
    SELECT a.item, a.store, b.store, c.store
    FROM sales_a [RANGE 1 HOUR] AS a, sales_b [RANGE 1 HOUR] AS b, sales_c [ROWS 1000] AS c
    WHERE a.item = b.item AND b.item = c.item AND a.price > 10
"""
EXAMPLE_STATS = {
    "sales_a": wm.stats(rate=50, distinct={"item": 5_000}, row_bytes=32),
    "sales_b": wm.stats(rate=20, distinct={"item": 5_000}, row_bytes=32),
    "sales_c": wm.stats(rate=5, distinct={"item": 5_000}, row_bytes=32),
}


def build_dashboard(
    title: str,
    query: Query,
    sources: Mapping[str, Stream | Relation | StreamStats],
    stats: Mapping[str, StreamStats] | None = None,
    plan: wm.Plan | None = None,
    budget: wm.Budget | None = None,
    engine: str = "embedded",
) -> DashboardContent:
    """Build the dashboard of a query: its plan and its what-if controls."""
    base = wm.explain(query, sources, plan=plan, stats=stats, budget=budget, engine=engine)
    return DashboardContent(title, WhatIf(query, sources, base))


def serve_until_interrupted(shown: DashboardContent, port: int) -> None:
    """Serve the dashboard until Ctrl-C, or until the server fails."""
    with stop_on_signals() as stop, serve(shown, port, stop.set) as address:
        _print_url(address.url)
        make_console(stderr=True).print("Press Ctrl-C to close it.", style="dim")
        stop.wait()


@contextmanager
def serve_during_run(shown: DashboardContent, port: int, stop: threading.Event | None = None) -> Iterator[LiveRun]:
    """Serve the dashboard during a run, and after it until Ctrl-C, so that the user can inspect the finished run.

    If the server fails, it sets `stop` to end the run.
    """
    stop_run, close = stop or threading.Event(), threading.Event()

    def end() -> None:
        stop_run.set()
        close.set()

    with serve(shown, port, end) as address:
        _print_url(address.url)
        try:
            yield shown.live
        except BaseException:
            shown.live.end("stopped")
            raise
        shown.live.end("done")
        make_console(stderr=True).print("The dashboard stays open. Press Ctrl-C to close it.", style="dim")
        with stop_on_signals(close):
            _wait(close)


def _wait(stop: threading.Event) -> None:
    stop.wait()


def _print_url(url: str) -> None:
    make_console(stderr=True).print(f"dashboard: {escape_controls(url)}", markup=False, soft_wrap=True)
