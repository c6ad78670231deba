"""`watersmeet ui`, and the dashboard beside a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import watersmeet as wm
from watersmeet.algebra.query import Query
from watersmeet.cli.exit import stop_on_signals
from watersmeet.cli.terminal import escape_control_characters, make_console
from watersmeet.dashboard.app import DashboardContent
from watersmeet.dashboard.live import LiveRun
from watersmeet.dashboard.serve import DEFAULT_PORT, serve
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.stats.stream_stats import StreamStats

__all__ = ["DEFAULT_PORT", "EXAMPLE", "EXAMPLE_STATS", "explore", "shown_for", "watched"]

#: What the dashboard is about when it is started with nothing: three stores' sales, by declared statistics.
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
    budget: wm.Budget | None = None,
    engine: str = "embedded",
) -> DashboardContent:
    """A dashboard about a query: its plan, and what-if questions about it."""
    base = wm.explain(query, sources, stats=stats, budget=budget, engine=engine)
    return DashboardContent(title, WhatIf(query, sources, base))


def serve_until_interrupted(shown: DashboardContent, port: int) -> None:
    """Serve until Ctrl-C, or until the server fails."""
    with stop_on_signals() as stop, serve(shown, port, stop.set) as address:
        _print_url(address.url)
        make_console(stderr=True).print("Ctrl-C ends it.", style="dim")
        stop.wait()


@contextmanager
def serve_during_run(shown: DashboardContent, port: int, stop: threading.Event | None = None) -> Iterator[LiveRun]:
    """Serve during a run, and after it until Ctrl-C, so that its end can be looked at. A server that fails sets `stop`
    to end the run.
    """
    running, over = stop or threading.Event(), threading.Event()

    def end() -> None:
        running.set()
        over.set()

    with serve(shown, port, end) as address:
        _print_url(address.url)
        try:
            yield shown.live
        except BaseException:
            shown.live.end("stopped")
            raise
        shown.live.end("done")
        make_console(stderr=True).print("The dashboard stays open. Ctrl-C ends it.", style="dim")
        with stop_on_signals(over) as asked:
            _wait(asked)


def _wait(stop: threading.Event) -> None:
    stop.wait()


def _print_url(url: str) -> None:
    make_console(stderr=True).print(f"dashboard: {escape_control_characters(url)}", markup=False, soft_wrap=True)
