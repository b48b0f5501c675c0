"""From the overview to a launch, as a user goes, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from stepscope.viewer.steps.filters import timeline_height
from tests.browser.conftest import LAUNCH, Visit, launch_in_panel

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def open_launch(visit: Visit, address: str) -> Any:
    page = visit.page
    page.goto(address)
    page.locator("main .strip a").nth(1).click()
    page.wait_for_url(re.compile(r"/steps/\d+"))
    page.locator(".launch-list tbody tr").first.click()
    page.locator("#panel h2").wait_for()
    return page


def test_from_the_overview_to_a_launch(visit: Visit, address: str) -> None:
    page = open_launch(visit, address)
    expect(page).to_have_url(re.compile("launch="))
    panel = page.locator("#panel")
    expect(panel.get_by_text(LAUNCH)).to_be_visible()
    expect(panel.locator("table.arguments tbody tr")).not_to_have_count(0)
    expect(panel.locator(".code .line")).not_to_have_count(0)
    expect(page.locator(".launch-list tr.chosen")).to_have_count(1)


def test_keys_walk_through_launches_and_back_works(visit: Visit, address: str) -> None:
    page = open_launch(visit, address)
    first = launch_in_panel(page)
    page.keyboard.press("ArrowRight")
    page.locator("#panel").get_by_text(f"launch {first + 1} of step").wait_for()
    page.go_back()
    page.locator("#panel").get_by_text(f"launch {first} of step").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("launch="))


def test_address_of_a_launch_opens_it_again(visit: Visit, address: str) -> None:
    page = open_launch(visit, address)
    expect(page).to_have_url(re.compile("launch="))
    title = page.locator("#panel h2").inner_text()
    page.reload()
    expect(page.locator("#panel h2")).to_be_visible()
    expect(page.locator("#panel h2")).to_have_text(title, use_inner_text=True)


def test_click_on_the_timeline_opens_a_launch(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/steps/1?log=0")
    lane = page.evaluate(
        """async () => {
            const { layout } = await import("#js/steps/timeline_lanes.js");
            const { prepare } = await import("#js/steps/timeline_model.js");
            const { xOf } = await import("#js/core/chart_draw.js");
            const { timeline } = JSON.parse(document.getElementById("step-data").textContent);
            const { lanes } = layout(timeline);
            const lane = lanes.find(({ kind }) => kind === "launches");
            const size = ({ start, end }) => end - start;
            const longest = prepare(timeline).launches.get(lane.thread).sort((a, b) => size(b) - size(a))[0];
            const width = document.querySelector(".timeline-box").clientWidth;
            const middle = (longest.start + longest.end) / 2;
            const x = xOf(middle, { start: 0, end: timeline.end_ns - timeline.start_ns }, width);
            return { x, y: lane.y + lane.height / 2, kernel: longest.kernel };
        }"""
    )
    box = page.locator(".timeline-box").bounding_box()
    assert box
    page.mouse.move(box["x"] + 1 + lane["x"], box["y"] + 1 + lane["y"])
    expect(page.locator(".tip strong")).to_have_text(lane["kernel"], use_inner_text=True)
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#panel h2")).to_be_visible()
    expect(page.locator("#panel h2")).to_have_text(lane["kernel"], use_inner_text=True)


def test_zoom_is_kept_in_the_address(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/steps/1?log=0")
    span = page.locator(".view-span")
    expect(span).not_to_be_empty()
    before = span.inner_text()
    page.keyboard.press("w")
    page.wait_for_url(re.compile(r"from=\d+.*to=\d+"))
    expect(span).not_to_have_text(before, use_inner_text=True)
    zoomed = span.inner_text()
    page.reload()
    expect(span).to_have_text(zoomed, use_inner_text=True)
    page.keyboard.press("f")
    expect(span).to_have_text(before, use_inner_text=True)


def test_room_for_the_timeline_is_kept_before_the_script_runs(visit: Visit, address: str, trace: Any) -> None:
    from stepscope.viewer.memory.queries.graphs import has_lifetimes
    from stepscope.viewer.steps.queries.steps import timeline

    visit.page.goto(f"{address}/steps/1?log=0")
    found = timeline(trace, 0, 1)
    assert found is not None
    height = timeline_height(found, has_lifetimes(trace))
    expect(visit.page.locator(".timeline-box canvas").first).to_have_js_property("clientHeight", height)


def test_kernel_filter_narrows_the_list(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/steps/1?log=0")
    rows = page.locator(".launch-list tbody tr")
    expect(rows).not_to_have_count(0)
    everything = rows.count()
    page.locator(".kernel-filter").fill("extern")
    page.locator(".list-count").get_by_text("match").wait_for()
    expect(rows.locator("td:last-child").filter(has_not_text="extern")).to_have_count(0)
    assert 0 < rows.count() < everything


def test_every_link_of_every_section_leads_somewhere(visit: Visit, address: str) -> None:
    page = visit.page
    seen = set()
    for path in (
        "/",
        "/steps",
        "/steps/0",
        "/graphs",
        "/graphs/0",
        "/compile",
        "/compile/0_0",
        "/records",
        "/problems",
    ):
        page.goto(address + path)
        for href in page.locator("a[href]").evaluate_all("(links) => links.map((a) => a.getAttribute('href'))"):
            assert href.startswith(("/", "#", "vscode://file/"))
            if href.startswith("/"):
                seen.add(address + href.partition("#")[0])
    addresses = sorted(href for href in seen if not href.endswith("/raw"))[:80]
    for href in addresses:
        assert page.request.get(href).status == 200, href


def test_choice_of_theme_is_remembered(visit: Visit, address: str) -> None:
    page = visit.page
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.locator("#theme-toggle").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto(f"{address}/graphs")
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 23, 26)")


def test_slash_jumps_to_the_search(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("code")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search\?text=code"))
    hit = page.locator("table.hits tbody tr a").first
    leads_to = f"{address}{hit.get_attribute('href')}"
    hit.click()
    expect(page).to_have_url(leads_to)
    expect(page.locator("h1")).to_have_count(1)


def test_line_of_a_launch_site_is_marked_in_the_code(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/graphs/0")
    link = page.locator("table.sites td.num a").first
    number = link.inner_text()
    link.click()
    expect(page.locator(".code .line:target .number")).to_have_text(number, use_inner_text=True)
