"""A real browser, and dashboards of a run that a test advances batch by batch."""

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
from watersmeet.dashboard.server import DashboardAddress, DashboardContent, serve
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

#: The defaults of Playwright are 5 or 30 seconds; a loaded machine takes longer.
PATIENCE_MS = 300_000
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
class ServedRun:
    """Dashboard of a run that a test advances batch by batch."""

    address: DashboardAddress
    content: DashboardContent
    run: EmbeddedRun
    batch: int = 0

    def advance(self, batches: int = 1) -> None:
        for _ in range(batches):
            tables = {name: make_batch(name, self.batch) for name in self.run.sources}
            self.content.live.observe(run_batch_with_metrics(self.run, self.batch, tables)[1])
            self.batch += 1


def make_batch(name: str, number: int) -> pa.Table:
    """Return half a second of a stream; some of its rows are late."""
    random = np.random.default_rng([number, *name.encode()])
    at = np.sort(random.integers(number * BATCH_US - 100_000, (number + 1) * BATCH_US, BATCH_ROWS))
    return pa.table(
        {
            "ts": pa.array(at),
            "item": pa.array(random.integers(0, 20_000, BATCH_ROWS)),
            "price": pa.array(random.integers(1, 500, BATCH_ROWS)),
        }
    )


@contextmanager
def serve_run(
    query: str, lateness_by_stream: Mapping[str, str], title: str = "orders with trades and quotes"
) -> Iterator[ServedRun]:
    """Serve a dashboard of a run over generated streams."""
    streams = {
        name: wm.stream([make_batch(name, 0)], time="ts", lateness=late) for name, late in lateness_by_stream.items()
    }
    parsed = wm.sql(query)
    declared = {name: wm.stats(rate=4_000, distinct={"item": 20_000}, row_bytes=24) for name in lateness_by_stream}
    base = wm.explain(parsed, streams, stats=declared, budget=wm.Budget(processors=2))
    content = DashboardContent(title, WhatIf(parsed, streams, base))
    with serve(content, port=0) as address:
        yield ServedRun(address, content, wm.run(parsed, streams))


@pytest.fixture
def dashboard() -> Callable[..., AbstractContextManager[ServedRun]]:
    return serve_run


@pytest.fixture(scope="module")
def served_run() -> Iterator[ServedRun]:
    with serve_run(QUERY, {"orders": "50 ms", "trades": "50 ms", "quotes": "50 ms"}) as made:
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
        pytest.fail("Chromium not found: run scripts/chromium.sh")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(FLAGS), timeout=PATIENCE_MS)
        yield opened
        opened.close()


@dataclass
class OpenedPage:
    """Open page and the errors in its console."""

    page: Page
    console_errors: list[str]


@contextmanager
def opener_of_pages(browser: Browser) -> Iterator[Callable[..., OpenedPage]]:
    """Give a function that opens a dashboard, and close its pages at the end."""
    contexts = []

    def open_page(address: DashboardAddress, *, dark: bool = False, width: int = 1280, height: int = 900) -> OpenedPage:
        context = browser.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": height}
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        seen = OpenedPage(page, [])
        page.on("console", lambda message: seen.console_errors.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: seen.console_errors.append(str(error)))
        page.goto(address.url)
        page.wait_for_selector("#controls input")
        return seen

    try:
        yield open_page
    finally:
        for context in contexts:
            context.close()


@pytest.fixture
def open_dashboard(browser: Browser) -> Iterator[Callable[..., OpenedPage]]:
    with opener_of_pages(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def opened_page(browser: Browser, served_run: ServedRun) -> Iterator[OpenedPage]:
    """Return a page about the run that the tests of a file share; each leaves its sliders where they were."""
    with opener_of_pages(browser) as open_page:
        yield open_page(served_run.address)
