"""The page of a step: selection of time, pinned rows, another step below, keys, marks, and the sheet of a launch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit, serving
from tests.logs import overflow_log, synthetic
from tests.logs.judged_logs import judged

pytestmark = [pytest.mark.browser, pytest.mark.slow]
GUTTER, MINIMAP, AXIS = 64, 30, 22


@pytest.fixture(scope="module")
def steps_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("steps")
    synthetic.recorded(steps=6).write(folder / "recorded.log")
    with open_trace(folder) as trace, serving(trace) as where:
        yield where


@pytest.fixture(scope="module")
def overflow_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = overflow_log.recorded().write(tmp_path_factory.mktemp("overflow") / "recorded.log")
    with open_trace(path) as trace, serving(trace) as where:
        yield where


@pytest.fixture(scope="module")
def judged_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = judged(synthetic.recorded(end=False)).record(End("exit", synthetic.MONOTONIC_NS + 2_000_000))
    with open_trace(log.write(tmp_path_factory.mktemp("judged") / "recorded.log")) as trace, serving(trace) as where:
        yield where


def drag(visit: Visit, y: float, start: float, end: float) -> None:
    """Drags over a share of the timeline's width."""
    box = visit.page.locator(".timeline-box").bounding_box()
    assert box
    width = box["width"] - GUTTER
    visit.page.mouse.move(box["x"] + GUTTER + start * width, box["y"] + y)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + GUTTER + end * width, box["y"] + y, steps=4)
    visit.page.mouse.up()


def open_step(visit: Visit, address: str, query: str = "") -> Any:
    visit.page.goto(f"{address}/steps/1?log=0{query}")
    expect(visit.page.locator(".view-span")).not_to_be_empty()
    visit.settle()
    return visit.page


def column(area: Locator, number: int) -> list[str]:
    return area.locator(f"tbody td:nth-child({number})").all_inner_texts()


def test_a_drag_on_the_ruler_adds_up_the_launches_in_it(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    drag(visit, MINIMAP + AXIS / 2, 0.0, 1.0)
    area = page.locator(".area")
    expect(area.locator("tbody tr")).not_to_have_count(0)
    expect(area.locator("h2")).to_contain_text("6 launches")  # its two calls of subgraphs are none
    assert sum(map(int, column(area, 1))) == 6
    expect(page).to_have_url(re.compile(r"area=\d+-\d+"))
    area.get_by_role("button", name="kind", exact=True).click()
    expect(page).to_have_url(re.compile("by=kind"))
    assert set(column(area, 5)) == {"extern", "cpp"}
    area.get_by_role("group", name="Add up by").get_by_role("button", name="model line").click()
    expect(area.locator("tbody tr")).not_to_have_count(0)
    page.reload()
    expect(area.get_by_role("group", name="Add up by").get_by_role("button", name="model line")).to_have_attribute(
        "aria-pressed", "true"
    )


def test_an_address_that_means_nothing_shows_the_whole_step(visit: Visit, steps_at: str) -> None:
    whole = open_step(visit, steps_at).locator(".view-span").inner_text()
    page = open_step(visit, steps_at, "&area=0-900000000&by=toString&from=x&to=9")
    expect(page.locator(".area tbody tr")).not_to_have_count(0)
    expect(page.locator(".view-span")).to_have_text(whole, use_inner_text=True)


def test_back_brings_an_earlier_selection_and_escape_removes_it(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    area = page.locator(".area")
    drag(visit, MINIMAP + AXIS / 2, 0.0, 0.5)
    expect(area.locator("h2")).to_be_visible()
    first = area.locator("h2").inner_text()
    drag(visit, MINIMAP + AXIS / 2, 0.55, 0.9)
    expect(area.locator("h2")).not_to_have_text(first, use_inner_text=True)
    page.go_back()
    expect(area.locator("h2")).to_have_text(first, use_inner_text=True)
    page.keyboard.press("Escape")
    expect(area).to_be_hidden()
    expect(page).not_to_have_url(re.compile("area="))


def test_shift_selects_on_the_rows_and_a_plain_drag_still_moves(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    page.keyboard.press("w")
    page.wait_for_url(re.compile("from="))
    before = page.url
    drag(visit, 100, 0.5, 0.2)
    expect(page).not_to_have_url(before)
    expect(page.locator(".area")).to_be_hidden()
    page.keyboard.down("Shift")
    drag(visit, 100, 0.2, 0.6)
    page.keyboard.up("Shift")
    expect(page.locator(".area")).to_be_visible()


def test_the_selection_is_right_where_the_page_joins_launches(visit: Visit, tmp_path: Path) -> None:
    log = synthetic.LogBuilder().record(synthetic.run()).record(synthetic.graph()).record(synthetic.provenance())
    start, count = synthetic.MONOTONIC_NS + 1_000_000, 6_000
    for call in range(count):
        log.record(synthetic.calls(call, 0, start + 10_000 * call))
    step = Steps([0], ["inference"], ["user"], [start], [start + 10_000 * count])
    log.record(step).write(tmp_path / "many.log")
    with open_trace(tmp_path) as trace, serving(trace) as where:
        page = visit.page
        page.goto(f"{where}/steps/0?log=0&area=0-{10_000 * 1_000 - 1}")
        expect(page.locator(".area h2")).to_contain_text("3,000 launches")
        rows = dict(zip(column(page.locator(".area"), 5), column(page.locator(".area"), 1), strict=True))
        assert {name.strip(): launches for name, launches in rows.items()} == {
            "extern_kernels.mm": "1,000", "cpp_fused_relu_0": "2,000",
        }  # fmt: skip


def test_m_selects_what_is_in_view(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    page.keyboard.press("m")
    expect(page.locator(".area h2")).to_contain_text("6 launches")


def test_a_pinned_row_is_the_first_and_stays_so(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    names = page.locator(".lane-name")
    cpu = page.locator('.lane-name[data-lane="cpu0"]')
    cpu.click()
    expect(page).to_have_url(re.compile("pin=cpu0"))
    expect(names.first).to_have_attribute("data-lane", "cpu0")
    expect(cpu).to_be_focused()
    page.reload()
    expect(names.first).to_have_attribute("data-lane", "cpu0")
    expect(cpu).to_have_attribute("aria-pressed", "true")
    page.go_back()
    expect(names.first).not_to_have_attribute("data-lane", "cpu0")


def test_another_step_is_shown_below_with_what_differs(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    height = page.locator(".timeline-box").bounding_box()["height"]
    page.locator(".overlay-choice").select_option("3")
    line = page.locator(".difference")
    expect(line).to_contain_text(re.compile(r"^Step 1 took (\S+ us), as long as step 3 \(\1\)\. Launches: "))
    expect(line).to_contain_text("outside of launches")
    expect(page).to_have_url(re.compile("over=3"))
    expect(page.locator('.lane-name[data-lane="other0"]')).to_have_text("step 3")
    assert page.locator(".timeline-box").bounding_box()["height"] > height
    expect(page.get_by_role("heading", name="Launches and calls of subgraphs")).to_be_visible()
    line.locator("a").click()
    page.wait_for_url(re.compile("/steps/3"))
    page.go_back()
    expect(line).to_contain_text("Step 1 took")


def test_keys_lead_to_launches_of_the_same_kernel_and_to_steps(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    row = page.locator(".launch-list tbody tr", has_text="cpp_fused_relu_0").first
    first = row.get_attribute("data-launch")
    row.click()
    title = page.locator("#panel h2")
    expect(title).to_have_text("cpp_fused_relu_0")
    page.keyboard.press(".")
    expect(page).not_to_have_url(re.compile(f"launch={first}$"))
    expect(title).to_have_text("cpp_fused_relu_0")
    page.keyboard.press(",")
    expect(page).to_have_url(re.compile(f"launch={first}$"))
    page.keyboard.press(",")
    expect(page.locator("#said")).to_contain_text("first launch of cpp_fused_relu_0")
    page.keyboard.press(">")
    page.wait_for_url(re.compile("/steps/2"))
    page.keyboard.press(",")
    page.wait_for_url(re.compile("/steps/1"))


def test_control_k_opens_the_search_box_and_the_help_names_all_keys(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    page.keyboard.press("Control+k")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    listed = set(" ".join(page.locator("#keys kbd").all_inner_texts()).split())
    assert listed >= {*"/?,.<>[]←→+−0WASDFM", "Ctrl", "K", "Esc", "Enter", "Shift"}


def test_findings_are_marked_and_the_worst_tensor_stands_first(visit: Visit, overflow_at: str) -> None:
    page = visit.page
    page.goto(overflow_at)
    page.locator(".strip .mark").first.wait_for()
    page.locator(".strip a:has(.mark)").first.click()
    page.wait_for_url(re.compile("/steps/"))
    visit.settle()
    mark = page.evaluate(
        """async () => {
            const { layout } = await import("#js/steps/timeline_lanes.js");
            const { xOf } = await import("#js/core/chart_draw.js");
            const { timeline, marks } = JSON.parse(document.getElementById("step-data").textContent);
            const found = marks.find((mark) => mark.launch !== null);
            const { lanes } = layout(timeline);
            const lane = lanes.find(({ kind, thread }) => kind === "launches" && thread === found.thread);
            const width = document.querySelector(".timeline-box").clientWidth;
            const bounds = { start: 0, end: timeline.end_ns - timeline.start_ns };
            return { x: xOf(found.start_ns - timeline.start_ns, bounds, width), y: lane.y + 9, ...found };
        }"""
    )
    box = page.locator(".timeline-box").bounding_box()
    assert box
    page.mouse.move(box["x"] + 1 + mark["x"], box["y"] + 1 + mark["y"])
    expect(page.locator(".tip")).to_contain_text(mark["title"])
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile(f"launch={mark['launch']}"))
    sections = page.locator("#panel h3")
    expect(sections.first).to_contain_text("NaN or infinity")
    expect(page.locator("#panel .arguments").first.locator(".v-nan, .v-positive-infinity").first).to_be_visible()
    expect(page.locator(".step-findings a").first).to_have_attribute("href", re.compile("launch="))


def test_the_panel_is_a_sheet_on_a_narrow_screen(visit: Visit, overflow_at: str) -> None:
    page = visit.page
    page.set_viewport_size({"width": 700, "height": 900})
    page.goto(f"{overflow_at}/steps/1?log=0&launch=5")
    panel = page.locator("#panel")
    expect(panel.locator("h2")).to_be_visible()
    expect(panel).to_have_js_property("offsetWidth", 700)
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_rows_without_a_span_in_view_take_no_room(visit: Visit, steps_at: str) -> None:
    page = open_step(visit, steps_at)
    canvas, box = page.locator(".timeline-box canvas").first, page.locator(".timeline-box")
    whole = canvas.bounding_box()["height"]
    page.goto(f"{steps_at}/steps/1?log=0&from=0&to=210")
    page.wait_for_function(
        "(height) => document.querySelector('.timeline-box canvas')?.clientHeight < height", arg=whole
    )
    assert box.bounding_box()["height"] < whole


def test_verdicts_of_the_judge_are_a_row_and_a_column_that_keys_reach(visit: Visit, judged_at: str) -> None:
    page = visit.page
    page.goto(f"{judged_at}/steps/0?log=0")
    expect(page.locator(".lane-name", has_text="judge")).to_be_visible()
    expect(page.locator(".legend .judged")).to_have_text(["✖ wrong", "● ok"])
    assert [text.strip() for text in column(page.locator(".launch-list"), 5)] == ["● ok", "✖ wrong", "✖ wrong", "–"]
    for kernel in ("cpp_fused_relu_0", "true_graph_0", "cpp_fused_relu_0"):  # after the last one the first
        page.keyboard.press("j")
        expect(page.locator("#panel h2").first).to_have_text(kernel)
        expect(page.locator("#panel")).to_contain_text("✖")
    page.goto(f"{judged_at}/steps/1?log=0")
    expect(page.locator(".launch-list tbody tr").first).to_be_visible()
    expect(page.locator(".lane-name", has_text="judge")).to_have_count(0)
