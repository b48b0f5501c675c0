"""The SQL page and the search box in a real browser: pictures of results, and commands."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CLIPBOARD = """() => Object.defineProperty(navigator, "clipboard", {
    value: { writeText: async (text) => (window.kept = text) },
})"""


def test_a_result_is_a_timeline_a_curve_or_a_table(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/sql?query=SELECT step, launch, start_ns, duration_ns FROM launches ORDER BY launch")
    page.locator(".timeline-box canvas").first.wait_for()
    page.get_by_role("link", name="curve", exact=True).click()
    page.locator(".plot canvas").first.wait_for()
    assert "view=curve" in page.url
    page.get_by_role("button", name="duration_ns").first.click()
    page.get_by_role("link", name="table", exact=True).click()
    expect(page.locator(".plot, .timeline-box")).to_have_count(0)
    expect(page.locator(".answer tbody tr").first).to_be_visible()


def test_a_point_of_a_curve_marks_its_row(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/sql?query=SELECT step, launches AS most FROM steps ORDER BY step DESC")
    last = page.locator(".answer tbody tr").last
    expect(last.locator("td").first).to_have_text("0")
    page.locator(".plot canvas").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(last).to_have_class("chosen")


def test_the_search_box_runs_commands(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/kernels")
    page.keyboard.press("/")
    page.keyboard.type(">theme")
    option = page.get_by_role("option", name="switch between light and dark")
    option.wait_for()
    page.keyboard.press("ArrowDown")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_command_says_what_came_of_it(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/sql")
    page.evaluate(CLIPBOARD)
    for command, said in (("link", "The link was copied."), ("table", "This page has no table to copy.")):
        page.keyboard.press("/")
        page.keyboard.type(f">copy {command}")
        page.get_by_role("option").first.wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_text(said)).to_be_visible()
    assert page.evaluate("window.kept") == page.url


def test_an_operator_leads_to_its_launch_sites(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/graphs/0")
    name = page.locator("main .sites a.named").first
    text = name.text_content() or ""
    name.click()
    page.wait_for_url("**/sites?name=*")
    expect(page.get_by_role("heading", level=1)).to_contain_text(text)
    expect(page.locator("main tbody tr").first).to_be_visible()
