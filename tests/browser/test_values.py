"""Values in a real browser: the panel's strips, plots and the heat map with mouse and keys, also in a report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.viewer.report.write import render_report
from stepscope.viewer.steps.filters import timeline_height
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.browser.conftest import Visit, serving
from tests.logs import overflow_log

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(overflow_log.recorded(8).write(tmp_path_factory.mktemp("values") / "values.log")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(values: Trace) -> Iterator[str]:
    with serving(values) as where:
        yield where


def test_panel_shows_before_and_after(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/steps/5?log=0&launch=21")
    lines = page.locator("#panel .value-line")
    lines.first.wait_for()
    expect(lines.locator(".when")).to_have_text(["before", "after"], use_inner_text=True)
    part = lines.nth(1).locator(".part.v-nan")
    expect(part).to_have_attribute("data-count", "7")
    assert part.evaluate("(part) => part.clientWidth") >= 12
    page.locator("#panel").get_by_text("NaN 7").wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#panel .value-strip.uninitialised").wait_for()
    page.locator("#panel a.curve-link").first.click()  # The output, which holds infinities, stands first.
    page.wait_for_url(re.compile(r"/curves\?site=0&argument=2&moment=after"))


def test_room_for_the_health_strip_is_kept_before_the_script_runs(visit: Visit, served: str, values: Trace) -> None:
    visit.page.goto(f"{served}/steps/5?log=0")
    found = timeline(values, 0, 5)
    assert found is not None
    canvas = visit.page.locator(".timeline-box canvas").first
    expect(canvas).to_have_js_property("clientHeight", timeline_height(found))


def test_one_element_of_many_stays_visible(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/steps/5?log=0&launch=21")
    widths = page.evaluate(
        """async () => {
            const { strip } = await import("#js/values/lines.js");
            const counts = { nan: 1, zero: 1, subnormal: 1, positive_infinity: 1 };
            const row = { skipped: null, numel: 1e9, looked_at: 1e9, ...counts };
            const box = strip(row);
            document.querySelector("#panel").append(box);
            return [...box.children].map((part) => part.getBoundingClientRect().width);
        }"""
    )
    assert len(widths) == 5
    assert min(widths) >= 3
    assert widths[0] > 100


def test_heat_map_reads_cells_and_opens_them(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/values")
    picture = page.locator(".heat-picture")
    picture.focus()
    for key in ["ArrowRight", "ArrowDown", *["ArrowRight"] * 5]:
        page.keyboard.press(key)
    tip = page.locator(".heat-box .tip")
    expect(tip).to_contain_text("step 5 · NaN")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/steps/5\?log=0&launch=21"))


def test_magnitudes_are_read_and_opened_by_keys(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/magnitudes?of=outputs&log=0")
    page.get_by_label("a scale for each row").check()
    page.get_by_text("smallest of the row").wait_for()
    page.locator(".heat-picture").focus()
    for key in ["ArrowRight", "ArrowDown", *["ArrowRight"] * 4]:
        page.keyboard.press(key)
    tip = page.locator(".heat-box .tip")
    expect(tip).to_contain_text("step 4largest magnitude: ")
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("step 5 · NaN")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/steps/5\?log=0&launch=21"))


def test_a_joined_cell_of_the_heat_map_looks_closer(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/values")
    page.evaluate(
        """async () => {
            const { mountPlot } = await import("#js/values/plots.js");
            const { heat } = JSON.parse(document.getElementById("page-data").textContent);
            const box = document.querySelector(".heat-box");
            box.replaceChildren();
            const joined = { ...heat, steps: [0, 4], last_steps: [3, 7], joined_steps: [4, 4] };
            mountPlot(box, { heat: { ...joined, cells: heat.cells.map((row) => [row[0], row[5]]) } }, { root: "" });
        }"""
    )
    picture = page.locator(".heat-picture")
    picture.focus()
    for key in ["ArrowRight", "ArrowRight", "ArrowDown"]:
        page.keyboard.press(key)
    tip = page.locator(".heat-box .tip")
    expect(tip).to_contain_text("steps 4 to 7 · worst: NaN")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/values\?log=0&first_site=0&last_site=3&first_step=0&last_step=7#at=1,1,4,7"))
    tip.wait_for()
    expect(tip).to_contain_text("step 5 · NaN")
    page.goto(f"{served}/values?log=0&first_site=1&last_site=1&first_step=4&last_step=6")
    page.get_by_role("link", name="later steps").click()
    page.wait_for_url(re.compile(r"first_step=5&last_step=7"))
    page.get_by_role("link", name="Full map").click()
    page.wait_for_url(re.compile(r"/values\?log=0$"))


def test_plot_is_read_by_keys_and_mouse_and_opens_launches(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/graphs/0/buffers/buf0")
    picture = page.locator(".plot .picture")
    picture.focus()
    page.keyboard.press("End")
    tip = page.locator(".plot .tip")
    expect(tip).to_contain_text("step 7 · launch 29")
    expect(tip).to_contain_text("NaN 7")
    page.keyboard.press("Home")
    expect(tip).to_contain_text("largest: 64", use_inner_text=True)
    page.locator(".log-switch input").uncheck()
    box = page.locator(".plot").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] - 18, box["y"] + 100)
    page.wait_for_url(re.compile(r"/steps/7\?log=0&launch=29"))


def test_chosen_statistic_is_kept_in_the_address(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/curves?site=0&argument=2&moment=after")
    page.get_by_label("Statistic").get_by_role("button", name="mean", exact=True).click()
    page.wait_for_url(re.compile("statistic=mean"))
    page.reload()
    expect(page.get_by_label("Statistic").get_by_role("button", name="mean", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )


def test_brackets_walk_through_findings(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/graphs")
    hrefs = page.locator("#finding-links a").evaluate_all("(links) => links.map((link) => link.href)")
    page.keyboard.press("]")
    page.wait_for_url(hrefs[0])
    page.clock.install(time=0)
    page.clock.pause_at(1000)  # what the page says stays until it is read
    page.keyboard.press("[")
    page.locator("#said").get_by_text("This is the first finding.").wait_for()


def test_report_shows_values_from_the_disk(offline: Visit, values: Trace, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_report(values), "utf-8")
    page = offline.page
    page.goto(f"{path.as_uri()}#/steps/5?log=0&launch=21")
    page.locator("#panel .part.v-nan").wait_for()
    page.locator("#panel .arguments td a code", has_text="buf1").click()
    page.locator(".page.shown .plot .picture").focus()
    page.keyboard.press("End")
    expect(page.locator(".page.shown .plot .tip")).to_contain_text("step 7")
    page.keyboard.press("Enter")
    page.locator("#panel h2").get_by_text("cpp_fused_relu_0").wait_for()
    page.goto(f"{path.as_uri()}#/values?log=0")
    page.locator(".page.shown .heat-picture").wait_for()
