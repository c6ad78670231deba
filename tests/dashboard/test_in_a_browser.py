"""The dashboard in Chromium: it loads under its content policy, updates, answers questions, and shows names as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Page, expect

import watersmeet as wm
from tests.dashboard.conftest import ARTEFACTS, OpenedPage, ServedRun

OpenDashboard = Callable[..., OpenedPage]


def tile(page: Page, name: str) -> str:
    return page.inner_text(f'.tile[data-name="{name}"] .value')


def test_the_page_loads_without_console_errors(served_run: ServedRun, opened_page: OpenedPage) -> None:
    seen = opened_page
    served_run.advance(2)
    expect(seen.page.locator("#status")).to_have_text("running")
    expect(seen.page.locator("#chart-rates .main-svg").first).to_be_visible()
    assert seen.page.inner_text("#verdict") == "keeps up"
    assert "SELECT o.item" in seen.page.inner_text("#query")
    assert seen.page.locator(".card").count() == 3 + 3 + 1 + 1  # inputs, origins, every batch, rows out
    assert seen.page.locator(".loser").count() >= 5
    assert seen.console_errors == []


def test_the_token_does_not_stay_in_the_address(served_run: ServedRun, open_dashboard: OpenDashboard) -> None:
    page = open_dashboard(served_run.address).page
    assert served_run.address.token not in page.url
    page.reload()
    page.wait_for_selector("#controls input")


def test_live_values_change(served_run: ServedRun, opened_page: OpenedPage) -> None:
    page = opened_page.page
    served_run.advance()
    rows = page.locator('.tile[data-name="rows in"] .more')
    expect(rows).to_contain_text("in total")
    before = rows.inner_text()
    served_run.advance(3)
    expect(rows).not_to_have_text(before)
    assert tile(page, "state") != "–"
    assert tile(page, "late rows") not in ("–", "0")


def test_every_card_shows_predicted_and_measured_cost(served_run: ServedRun, opened_page: OpenedPage) -> None:
    page = opened_page.page
    served_run.advance(4)
    expect(page.locator(".measured-text").first).not_to_have_text("not measured")
    for card in page.locator(".card").all():
        assert re.search(r"( % of a core| cores?)$", card.locator(".predicted-text").inner_text())
        assert re.search(r"( % of a core| cores?)$", card.locator(".measured-text").inner_text())


def test_a_what_if_slider_changes_the_verdict_and_the_plan(opened_page: OpenedPage) -> None:
    page = opened_page.page
    expect(page.locator("#answer .chip")).to_have_text("keeps up")
    before, orders = page.inner_text(".answer-plan"), page.inner_text(".answer-orders")
    _slide(page, "window q", 1000)
    expect(page.locator(".answer-plan")).to_contain_text("another plan")
    assert page.inner_text(".answer-orders") != orders
    _slide(page, "rate orders", 1000)
    _slide(page, "processors", 0)
    expect(page.locator("#answer .chip")).to_have_text("cannot keep up")
    expect(page.locator(".drop-rate").first).to_contain_text("shed ")
    page.click("#reset")
    expect(page.locator(".answer-plan")).to_have_text(before)


def test_the_answer_reports_insufficient_memory(opened_page: OpenedPage) -> None:
    page = opened_page.page
    _slide(page, "memory", 0)
    expect(page.locator("#answer")).to_contain_text("available")
    page.click("#reset")
    expect(page.locator("#answer .chip")).to_have_text("keeps up")


def test_names_with_markup_are_shown_as_text(
    dashboard: Callable[..., AbstractContextManager[ServedRun]], open_dashboard: OpenDashboard
) -> None:
    nasty = '<img src=x onerror="document.title=1"><b>x</b>'
    quoted = '"' + nasty.replace('"', '""') + '"'
    query = (
        f"SELECT a.item AS {quoted} FROM {quoted} [RANGE 1 SECOND] AS a, b [RANGE 1 SECOND] AS {quoted} "
        f"WHERE a.item = {quoted}.item"
    )
    with dashboard(query, {nasty: "10 ms", "b": "10 ms"}, title=nasty) as shown:
        seen = open_dashboard(shown.address)
        shown.advance(3)
        expect(seen.page.locator("#chart-lost .main-svg").first).to_be_visible()
        assert seen.page.inner_text("#title") == nasty
        assert nasty in seen.page.inner_text("#picture")
        assert nasty in seen.page.inner_text("#controls")
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("b").count() == 0
        assert "<b>x</b>" in (seen.page.text_content("#chart-lost") or "")
        assert seen.page.title() == "Watersmeet"
        assert seen.console_errors == []


def test_plan_changes_are_logged(served_run: ServedRun, opened_page: OpenedPage) -> None:
    page = opened_page.page
    served_run.advance()  # a plan change is a batch whose plan differs from that of the previous batch
    served_run.run.replan(wm.plan("eager-hash"))
    served_run.advance()
    expect(page.locator("#changes li").first).to_have_text(re.compile(r"now eager-hash \(.*\), before runs"))


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("light", 1280, False), ("dark", 1280, True), ("phone", 390, False)]
)
def test_it_fits_every_screen(
    served_run: ServedRun, open_dashboard: OpenDashboard, name: str, width: int, dark: bool
) -> None:
    page = open_dashboard(served_run.address, dark=dark, width=width).page
    served_run.advance(4)
    expect(page.locator("#chart-state .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(15, 21, 27)" if dark else "rgb(244, 246, 248)")
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"dashboard-{name}.png", full_page=True)


def _slide(page: Page, key: str, position: int) -> None:
    page.locator(f'input[data-key="{key}"]').evaluate(
        "(input, position) => { input.value = position; input.dispatchEvent(new Event('input')); }", position
    )
