"""The chart of compile time in a real browser: read, looked closer at, opened; its view stands in the address."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit, serving
from tests.logs import compile_summary_logs as logs
from tests.logs.synthetic import LogBuilder

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST_ROW = 30 + 22 + 6 + 8
"""Middle of the first row below minimap and axis, in pixels."""
GUTTER = 64


@pytest.fixture(scope="module")
def compile_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = logs.chromium(LogBuilder(), "entire_frame_compile", "B", 0)
    for number in range(2000):
        logs.span(log, f"pass {number}", 100 + 10 * number, 108 + 10 * number)
    logs.chromium(log, "automatic_dynamic", "i", 10_000, reason="size change")
    logs.chromium(log, "entire_frame_compile", "E", 40_000)
    logs.span(log, "lost", 50_000, None)
    logs.compiled(log, 0, 0)
    logs.compiled(log, 0, 1, duration_us=7)
    with open_trace(log.write(tmp_path_factory.mktemp("compile") / "compile.log")) as trace, serving(trace) as where:
        yield where


def test_spans_events_and_what_has_no_end_are_read(visit: Visit, compile_address: str) -> None:
    page = visit.page
    page.goto(f"{compile_address}/compile-time")
    overlay, tip = page.locator(".flame-box .pointer"), page.locator(".flame-box .tip")
    width = overlay.bounding_box()["width"] - GUTTER  # type: ignore[index]
    overlay.hover(position={"x": GUTTER + width * 0.7, "y": FIRST_ROW})
    expect(tip).to_contain_text("entire_frame_compile\n40.0 ms (40,000,000 ns)", use_inner_text=True)
    overlay.hover(position={"x": GUTTER + width * 0.2, "y": FIRST_ROW + 16})
    expect(tip).to_contain_text("spans within")
    overlay.hover(position={"x": GUTTER + width * 10 / 52, "y": FIRST_ROW + 31})
    said = "automatic_dynamic\nevent at 10.0 ms (10,000,000 ns)\nreason: size change"
    expect(tip).to_contain_text(said, use_inner_text=True)
    overlay.hover(position={"x": GUTTER + width * 50 / 52 + 8, "y": FIRST_ROW})
    expect(tip).to_contain_text("its end is not in the log")


def test_a_closer_look_fetches_single_spans_and_stands_in_the_address(visit: Visit, compile_address: str) -> None:
    page = visit.page
    page.goto(f"{compile_address}/compile-time")
    row = page.locator(".span-totals tr", has_text="pass 1234")
    with page.expect_response(lambda answer: "/compile-time/spans.json" in answer.url):
        row.locator("button").click()
    page.wait_for_url("**start_ns=**")
    overlay, tip = page.locator(".flame-box .pointer"), page.locator(".flame-box .tip")
    box = overlay.bounding_box()
    assert box is not None
    overlay.hover(position={"x": GUTTER + (box["width"] - GUTTER) / 2, "y": FIRST_ROW + 16})
    expect(tip).to_contain_text("pass 1234")
    expect(tip).to_contain_text("8.00 us (8,000 ns)")
    address = page.url
    page.reload()
    expect(page).to_have_url(address)
    overlay.hover(position={"x": GUTTER + (box["width"] - GUTTER) / 2, "y": FIRST_ROW + 16})
    expect(tip).to_contain_text("pass 1234")
    page.keyboard.press("f")
    page.wait_for_url("**/compile-time")


def test_a_click_opens_the_compile(visit: Visit, compile_address: str) -> None:
    page = visit.page
    page.goto(f"{compile_address}/compile-time")
    page.locator(".flame-box .pointer").click(position={"x": 400, "y": FIRST_ROW})
    page.wait_for_url("**/compile/0_0?log=0")


def test_columns_and_order_of_metrics_stand_in_the_address(visit: Visit, compile_address: str) -> None:
    page = visit.page
    page.goto(f"{compile_address}/metrics")
    page.locator(".metrics-table thead a", has_text="duration").click()
    page.wait_for_url("**sort=duration_us**")
    expect(page.locator(".metrics-table tbody tr").first).to_have_text(re.compile(r"^\s*0/0"))
    page.locator(".metrics-table thead a", has_text="duration").click()
    page.wait_for_url("**direction=asc**")
    expect(page.locator(".metrics-table tbody tr").first).to_have_text(re.compile(r"^\s*0/1"))
    page.locator(".columns summary").click()
    page.get_by_label("co_firstlineno").check()
    page.get_by_role("button", name="Show these columns").click()
    page.locator(".metrics-table thead a", has_text="co firstlineno").wait_for()
    expect(page).to_have_url(re.compile("sort=duration_us"))
