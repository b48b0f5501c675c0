"""Memory pages in a real browser: curves are read, looked closer at and compared, nodes opened, the report alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.viewer.report.write import render_report
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.browser.conftest import Visit, serving
from tests.logs.memory_logs import training
from tests.logs.memory_records import growth, mismatch, recompute

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def memory_trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    log = training(4, keep=9, allocator=True).record(recompute()).record(mismatch())
    log.record(growth([(0, 4), (2, 4), (4, 4)]))
    with open_trace(log.write(tmp_path_factory.mktemp("memory") / "memory.log")) as trace:
        yield trace


@pytest.fixture(scope="module")
def memory_address(memory_trace: Trace) -> Iterator[str]:
    with serving(memory_trace) as where:
        yield where


def test_a_curve_reads_exact_bytes_with_kernel_and_line(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/graphs/0/memory")
    page.locator(".plot .picture").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = page.locator(".plot .tip")
    for part in (
        "op1",
        "cpp_fused_relu_0",
        "model.py:11",
        "measured + base: 1,536 B (1.5 kB) + 384 B = 1.9 kB",
        "1 lifetime mismatch",
        "was not freed; it is held by a list of 3 in keep of __main__",
        "measured peak",
    ):
        expect(tip).to_contain_text(part, use_inner_text=True)


def test_a_click_on_a_node_changes_only_what_is_alive(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/graphs/0/memory?by=kind")
    page.locator(".node-memory h2", has_text="Alive at op1").wait_for()
    page.locator(".plot .picture").focus()
    page.evaluate("document.querySelector('.plot').dataset.seen = 'yes'")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.locator(".node-memory h2", has_text="Alive at op0").wait_for()
    expect(page).to_have_url(re.compile("snode=0"))
    expect(page).to_have_url(re.compile("by=kind"))
    expect(page.locator(".plot"), "the curve was not drawn anew").to_have_attribute("data-seen", "yes")
    expect(page.locator(".treemap .cell")).to_have_count(3)
    page.locator(".tabs a", has_text="every buffer").click()
    page.locator(".node-memory th", has_text="written by").wait_for()
    page.go_back()
    page.locator(".tabs a[aria-current]", has_text="by kind").wait_for()
    page.go_back()
    page.locator(".node-memory h2", has_text="Alive at op1").wait_for()


def test_zoom_and_hidden_series_stand_in_the_address(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/graphs/0/memory")
    page.get_by_label("measured + base", exact=True).uncheck()
    expect(page).to_have_url(re.compile("measured"))
    page.locator(".plot .picture").focus()
    page.keyboard.press("End")
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile("from=1"))
    page.reload()
    expect(page.get_by_label("measured + base", exact=True)).not_to_be_checked()
    page.locator(".plot .picture").focus()
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("from="))


def test_two_graphs_share_one_zoom(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/graphs/0/memory?call=0&against=0.2")
    expect(page.locator(".plot .picture")).to_have_count(2)
    page.locator("select[name=against]").select_option("1")
    page.wait_for_url("**against=1*")
    expect(page.locator("[data-memory=right] .picture")).to_have_count(1)


def test_a_leak_is_read_step_by_step(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/memory?growth=0.buf2")
    page.locator("[data-leak] .picture").focus()
    page.keyboard.press("Home")
    tip = page.locator("[data-leak] .tip")
    for part in ("end of step 0", "part of this leak: 64 B", "64 B left by this step"):
        expect(tip).to_contain_text(part, use_inner_text=True)
    page.keyboard.press("Enter")
    page.wait_for_url("**/steps/0?log=0")


def test_treemap_is_walked_by_keys(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/graphs/0/memory")
    page.locator(".treemap .cell[tabindex='0']").focus()
    chosen = page.locator(":focus")
    expect(chosen).to_have_attribute("aria-label", re.compile(r"^buf1, 1\.0 kB, saved for backward"))
    page.keyboard.press("ArrowRight")
    expect(chosen).to_have_attribute("aria-label", re.compile(r"^buf0, 512 B, temporary"))
    expect(page.locator(".treemap .tip")).to_contain_text("512 B · 26.7 % · temporary")
    page.keyboard.press("Enter")
    page.wait_for_url("**/graphs/0/buffers/buf0")


def test_run_curve_looks_closer_and_opens_a_step(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/memory")
    box = page.locator("[data-run-memory] .pointer").bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.35, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.45, middle, steps=3)
    page.mouse.up()
    page.wait_for_url("**first_step=1*")
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    expect(page.locator("[data-run-memory] .tip")).to_contain_text("step 1")
    page.get_by_role("button", name="All", exact=True).click()
    page.wait_for_url(lambda url: "first_step" not in url)
    page.mouse.click(box["x"] + box["width"] * 0.4, middle)
    page.wait_for_url("**/steps/1?log=0")


def test_timeline_reads_live_bytes(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/steps/1?log=0")
    box = page.locator(".timeline-box .pointer").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] - 30)
    tip = page.locator(".timeline-box .tip")
    for part in ("inputs and parameters", "saved for a backward call", "outputs and others that outlive their call"):
        expect(tip).to_contain_text(part)


def test_recompute_page_draws_its_curves(visit: Visit, memory_address: str) -> None:
    page = visit.page
    page.goto(f"{memory_address}/recompute/0")
    page.locator(".plot .picture").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = page.locator(".plot .tip")
    for part in ("moved node", "updated, after alloc: 1,000 B", "after alloc: 1,100 B"):
        expect(tip).to_contain_text(part, use_inner_text=True)


def test_report_holds_the_pages_of_its_findings(offline: Visit, memory_trace: Trace, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(render_report(memory_trace), "utf-8")
    page = offline.page
    page.goto(report.as_uri())
    page.locator(".page.shown .finding-title a", has_text="was not freed").click()
    page.locator(".page.shown .plot .picture").wait_for()
    expect(page.locator(".page.shown h1")).to_have_text(re.compile(r"^\s*Memory of graph 0"))
    expect(page.locator(".page.shown .treemap .cell")).to_have_count(4)
    page.goto(f"{report.as_uri()}#/recompute/0")
    page.locator(".page.shown .plot .picture").wait_for()
    page.goto(f"{report.as_uri()}#/memory")
    page.locator(".page.shown [data-run-memory] .picture").focus()
    page.keyboard.press("Home")
    expect(page.locator(".page.shown [data-run-memory] .tip")).to_contain_text("was not freed")
    page.locator(".page.shown [data-run-memory] .picture").wait_for()
    page.goto(f"{report.as_uri()}#/steps/1?log=0")
    page.locator(".page.shown .timeline-box .picture").wait_for()
