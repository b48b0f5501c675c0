"""Every page with the keyboard alone: the focus reaches each control, is visible, is never trapped, and comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.viewer.store.open import open_trace
from tests.browser.addresses import every_page
from tests.browser.conftest import Visit, serving
from tests.logs.rich import write_rich

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST_TABS = 40
"""Controls at the start and at the end of a page that are reached one by one; rows of a table are alike."""
WATCH = Path(__file__).with_name("focus_watch.js")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with open_trace(write_rich(tmp_path_factory.mktemp("rich"))) as trace, serving(trace) as where:
        yield where


@pytest.fixture(scope="module")
def pages(root: str) -> list[str]:
    return every_page(root)


@pytest.fixture(scope="module")
def launch_page(root: str, pages: list[str]) -> str:
    return root + next(address for address in pages if address.startswith("/steps/")).partition("&")[0]


def press_tab(visit: Visit, times: int) -> list[int]:
    """Press Tab; return the controls that had the focus, by their place in the document."""
    for _ in range(times):
        visit.page.keyboard.press("Tab")
    found: list[int] = visit.page.evaluate("focusWatch.take()")
    return found


def walk(visit: Visit, address: str, is_first: bool) -> list[str]:
    """Press Tab through a page, from its first control or, if it is not the first page, from the last one of the
    navigation, which all pages share; return what is wrong with the way."""
    page = visit.page
    page.goto(address)
    visit.settle()
    page.evaluate(WATCH.read_text("utf-8"))
    count: int = page.evaluate("focusWatch.controls.length")
    wrong = []
    start = page.evaluate("focusWatch.startAtTop()" if is_first else "focusWatch.startAtMain()")
    end = min(count, start + MOST_TABS)
    if (way := press_tab(visit, end - start)) != [*range(start, end)]:
        wrong.append(f"the controls from {start} to {end} of {count} have the focus in the order {way}")
    if count > end:
        start = page.evaluate("(index) => focusWatch.goTo(index)", max(end, count - MOST_TABS) - 1) + 1
        if (way := press_tab(visit, count - start)) != [*range(start, count)]:
            wrong.append(f"the controls from {start} to {count} have the focus in the order {way}")
    unseen: list[str] = page.evaluate("focusWatch.unseen")
    return wrong + unseen


def test_tab_reaches_each_control_in_order_with_a_visible_focus(visit: Visit, root: str, pages: list[str]) -> None:
    wrong = {address: walk(visit, root + address, address == pages[0]) for address in pages}
    assert {address: faults for address, faults in wrong.items() if faults} == {}


def test_the_first_tab_leads_past_the_navigation(visit: Visit, root: str) -> None:
    page = visit.page
    page.goto(f"{root}/steps")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_a_launch_opened_by_keyboard_gets_the_focus_and_gives_it_back(visit: Visit, launch_page: str) -> None:
    page = visit.page
    page.goto(launch_page)
    link = page.locator(".launch-list tbody a").nth(1)
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#panel h2")).to_be_visible()
    assert page.evaluate("document.getElementById('panel').contains(document.activeElement)")
    page.keyboard.press("Tab")
    expect(page.locator("#panel a").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(page.locator(".launch-list tbody a").nth(1)).to_be_focused()


def test_arrow_keys_go_from_launch_to_launch_and_the_panel_is_read(visit: Visit, launch_page: str) -> None:
    page = visit.page
    page.goto(launch_page)
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel h2")).to_be_visible()
    expect(page.locator("#panel")).to_be_focused()
    first = page.locator("#panel").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel")).not_to_have_text(first)
    expect(page.locator("#panel")).to_be_focused()
    expect(page.locator("#panel")).to_have_attribute("aria-label", "Launch")


@pytest.mark.parametrize(
    ("address", "chart"),
    [
        (r"/graphs/\d+/memory", ".plot canvas[tabindex]"),
        (r"/recompute/0", ".plot canvas[tabindex]"),
    ],
)
def test_arrow_keys_read_a_chart_aloud(visit: Visit, root: str, pages: list[str], address: str, chart: str) -> None:
    page = visit.page
    page.goto(root + next(one for one in pages if re.match(address, one)))
    canvas = page.locator(chart).first
    expect(canvas).to_have_attribute("aria-label", re.compile("Arrow keys"))
    canvas.focus()
    said = page.locator(".plot [aria-live]").first
    page.keyboard.press("ArrowRight")
    expect(said).not_to_be_empty()
    before = said.inner_text()
    page.keyboard.press("ArrowRight")
    expect(said).not_to_have_text(before)


def test_escape_closes_the_keys_and_the_focus_returns(visit: Visit, root: str) -> None:
    page = visit.page
    page.goto(root)
    page.locator("#keys-toggle").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    expect(page.locator("#keys-toggle")).to_be_focused()
