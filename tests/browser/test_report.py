"""The report from the disk, with the network off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.viewer.report.write import render_report
from stepscope.viewer.store.trace import Trace
from tests.browser.conftest import Visit, launch_in_panel

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(trace), "utf-8")
    return path.as_uri()


def test_from_the_overview_to_a_launch(offline: Visit, report: str) -> None:
    page = offline.page
    page.goto(report)
    page.locator(".page.shown .strip a").nth(1).click()
    page.locator(".page.shown .launch-list tbody tr").nth(1).click()
    second = launch_in_panel(page)
    expect(page).to_have_url(re.compile("launch="))
    expect(page.locator("#panel .code .line")).not_to_have_count(0)
    page.keyboard.press("ArrowRight")
    page.locator("#panel").get_by_text(f"launch {second + 1} of step").wait_for()
    page.go_back()
    page.locator("#panel").get_by_text(f"launch {second} of step").wait_for()
    page.go_back()
    expect(page.locator("#panel")).to_be_hidden()
    page.go_back()
    expect(page.locator(".page.shown")).to_have_attribute("data-route", "/")
    expect(page.locator("#panel")).to_be_hidden()


def test_a_click_is_not_lost_while_the_list_is_shown_again(offline: Visit, report: str) -> None:
    page = offline.page
    page.goto(f"{report}#/steps/1?log=0")
    page.locator(".page.shown .launch-list tbody tr").nth(1).hover()
    page.mouse.down()
    page.locator(".page.shown .kernel-filter").dispatch_event("input")
    page.wait_for_timeout(200)
    page.mouse.up()
    assert launch_in_panel(page) > 0


def test_every_section_can_be_reached(offline: Visit, report: str) -> None:
    page = offline.page
    page.goto(report)
    for link in page.locator(".nav a").all():
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.locator(".page.shown")).to_have_count(1)
        expect(page.locator(".page.shown h1")).to_have_count(1)


def test_code_of_a_graph_is_unpacked_and_its_lines_are_linked(offline: Visit, report: str) -> None:
    page = offline.page
    page.goto(f"{report}#/graphs/0")
    link = page.locator(".page.shown table.sites td.num a").first
    number = link.inner_text()
    link.click()
    page.locator(".page.shown .code .marked .number").get_by_text(number, exact=True).wait_for()


def test_what_is_not_in_the_report_says_so(offline: Visit, report: str) -> None:
    offline.page.goto(f"{report}#/steps/999?log=0")
    expect(offline.page.get_by_text("Not in this report")).to_be_visible()


def test_summary_can_be_saved(offline: Visit, report: str) -> None:
    page = offline.page
    page.goto(report)
    with page.expect_download() as waiting:
        page.locator("#download").click()
    assert Path(waiting.value.path()).read_text("utf-8").startswith('{"format":"stepscope-summary/1"')


def test_links_that_scripts_make_lead_to_pages_of_the_report(offline: Visit, report: str) -> None:
    page = offline.page
    page.goto(report)
    routes = page.eval_on_selector_all(".page", "pages => pages.map((page) => page.dataset.route)")
    paths = {route.partition("?")[0] for route in routes}
    for route in [route for route in routes if route.startswith("/steps/")]:
        page.goto(f"{report}#{route}")
        expect(page.locator(".page.shown")).to_have_attribute("data-route", route)
        page.locator(".page.shown .launch-list tbody tr").first.click()
        launch_in_panel(page)
        links = page.eval_on_selector_all('a[href^="#/"]', "links => links.map((link) => link.getAttribute('href'))")
        assert {re.split(r"[?#]", link[1:])[0] for link in links} <= paths
