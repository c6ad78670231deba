"""A real browser, and dashboards that a run feeds batch by batch when a test says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import watersmeet as wm
from watersmeet.dashboard.app import DashboardContent
from watersmeet.dashboard.serve import DashboardAddress, serve
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.runtime.embedded.run import EmbeddedRun, run_batch_with_metrics

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

#: Playwright gives up after 5 or 30 seconds by default; a loaded machine takes longer. The watchdog shows a wait that
#: never ends.
PATIENCE_MS = 300_000  # ends a test whose page never shows what it waits for
expect.set_options(timeout=PATIENCE_MS)

ARTEFACTS = Path(__file__).parents[2] / "artefacts"

QUERY = """
    SELECT o.item, t.price, q.price AS quoted
    FROM orders [RANGE 10 SECONDS] AS o, trades [RANGE 10 SECONDS] AS t, quotes [ROWS 1000] AS q
    WHERE o.item = t.item AND t.item = q.item
"""
BATCH_ROWS = 2_000
BATCH_US = 500_000


@dataclass
class Running:
    """A dashboard over a run that goes on by one batch at a time."""

    address: DashboardAddress
    shown: DashboardContent
    run: EmbeddedRun
    batch: int = 0

    def go_on(self, batches: int = 1) -> None:
        for _ in range(batches):
            tables = {name: batch_of(name, self.batch) for name in self.run.sources}
            self.shown.live.observe(run_batch_with_metrics(self.run, self.batch, tables)[1])
            self.batch += 1


def batch_of(name: str, number: int) -> pa.Table:
    """Half a second of a stream, a part of it too late to be joined."""
    random = np.random.default_rng([number, *name.encode()])
    at = np.sort(random.integers(number * BATCH_US - 100_000, (number + 1) * BATCH_US, BATCH_ROWS))
    return pa.table(
        {"ts": at, "item": random.integers(0, 20_000, BATCH_ROWS), "price": random.integers(1, 500, BATCH_ROWS)}
    )


@contextmanager
def running(query: str, names: Mapping[str, str], title: str = "orders with trades and quotes") -> Iterator[Running]:
    """A served dashboard; `names` maps the streams' names to their lateness."""
    streams = {name: wm.stream([batch_of(name, 0)], time="ts", lateness=late) for name, late in names.items()}
    parsed = wm.sql(query)
    declared = {name: wm.stats(rate=4_000, distinct={"item": 20_000}, row_bytes=24) for name in names}
    base = wm.explain(parsed, streams, stats=declared, budget=wm.Budget(processors=2))
    shown = DashboardContent(title, WhatIf(parsed, streams, base))
    with serve(shown, port=0) as address:
        yield Running(address, shown, wm.run(parsed, streams))


@pytest.fixture
def dashboard() -> Callable[..., AbstractContextManager[Running]]:
    return running


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with running(QUERY, {"orders": "50 ms", "trades": "50 ms", "quotes": "50 ms"}) as made:
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(
        (
            path
            for name in (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser")
            if name and (path := shutil.which(name))
        ),
        None,
    )
    if found is None:
        pytest.fail("no Chromium to test the dashboard with: bash scripts/chromium.sh")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(FLAGS), timeout=PATIENCE_MS)
        yield opened
        opened.close()


@dataclass
class Seen:
    """A page, and everything its console complained about."""

    page: Page
    complaints: list[str]


@pytest.fixture
def looked_at(browser: Browser) -> Iterator[Callable[..., Seen]]:
    contexts = []

    def look(address: DashboardAddress, *, dark: bool = False, width: int = 1280, height: int = 900) -> Seen:
        context = browser.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": height}
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        seen = Seen(page, [])
        page.on("console", lambda message: seen.complaints.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.goto(address.url)
        page.wait_for_selector("#controls input")
        return seen

    yield look
    for context in contexts:
        context.close()
