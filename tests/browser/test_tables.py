"""Tables in a real browser: they sort by raw numbers, filter, add up and are copied; the address keeps their order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from stepscope.viewer.report.write import render_report
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.browser.conftest import Visit, serving
from tests.logs import compile_summary_logs, synthetic

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HEADED = """() => {
    const [table] = [...document.querySelectorAll("main table")].filter((one) => one.checkVisibility());
    const nameOf = (cell) => (cell.querySelector(".sort") ?? cell).innerText.trim();
    const column = [...table.tHead.rows[0].cells].findIndex((cell) => nameOf(cell) === "%s");
    return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[column].innerText.trim());
}"""
CSV = """async () => {
    let copied = "";
    Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => (copied = text) } });
    [...document.querySelectorAll(".table-tools button")].find((one) => one.checkVisibility()).click();
    await new Promise((done) => setTimeout(done, 50));
    return copied;
}"""


def column(page: Page, name: str) -> list[str]:
    found: list[str] = page.evaluate(HEADED % name)
    return found


def sort(page: Page, name: str) -> None:
    page.locator("main th:visible", has_text=name).first.locator("button.sort").press("Enter")


def test_a_table_sorts_by_its_raw_numbers(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/kernels")
    head = page.locator("main th", has_text="host time")
    expect(head).to_have_attribute("aria-sort", "none")
    before = column(page, "kernel")
    sort(page, "host time")
    expect(head).to_have_attribute("aria-sort", "descending")
    raw = page.locator("main tbody td [data-ns]").evaluate_all("(all) => all.map((one) => Number(one.dataset.ns))")
    assert raw
    assert "table=" in page.url
    down = column(page, "kernel")
    page.reload()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert column(page, "kernel") == down
    sort(page, "host time")
    expect(head).to_have_attribute("aria-sort", "ascending")
    sort(page, "host time")
    expect(head).to_have_attribute("aria-sort", "none")
    assert column(page, "kernel") == before
    assert "table=" not in page.url


def test_what_a_break_costs_moves_with_its_place(visit: Visit, tmp_path: Path) -> None:
    path = compile_summary_logs.with_breaks().write(tmp_path / "breaks.log")
    with open_trace(path) as trace, serving(trace) as where:
        page = visit.page
        page.goto(f"{where}/graph-breaks")
        sort(page, "breaks")
        rows = page.locator("main table.places").first.locator("> tbody > tr")
        expect(page.locator("main th", has_text="breaks").first).to_have_attribute("aria-sort", "descending")
        expect(rows).to_have_text(
            [re.compile("model.py:20"), re.compile("resumed functions"), re.compile("model.py:30")]
        )
        assert page.evaluate(CSV).count("\n") == 3, "a head and a line for each place"


def test_a_column_with_an_explanation_sorts_too(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/kernels")
    head = page.locator("main th", has=page.get_by_role("button", name="What is meant by")).first
    name = head.locator("button.sort").inner_text()
    sort(page, name)
    expect(head).to_have_attribute("aria-sort", "descending")
    head.locator(".term").click()
    expect(page.locator(".term-text:popover-open")).to_be_visible()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert "?" not in page.evaluate(CSV).splitlines()[0]


def test_a_table_is_copied_with_raw_numbers_and_whole_names(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/kernels")
    names = page.locator("main tbody td:first-child").evaluate_all("(all) => all.map((one) => one.textContent.trim())")
    head, *rows = page.evaluate(CSV).splitlines()
    assert head.startswith("kernel,worst output,kind,share")
    assert "host time (ns)" in head
    assert [row.split(",", 1)[0] for row in rows] == names
    assert not any(" us" in row or " ms" in row for row in rows)


def test_a_table_adds_up_what_is_shown(visit: Visit, address: str) -> None:
    page = visit.page
    page.goto(f"{address}/sql?query=SELECT range AS n, range %25 10 AS last FROM range(30)")
    page.locator("main th", has_text="last").wait_for()
    page.get_by_label("Filter the rows of this table").fill("25 5")
    expect(page.locator(".table-said")).to_have_text("1 of 30 rows")
    assert column(page, "n") == ["25"]
    page.goto(f"{address}/steps")
    total = page.locator("main tfoot tr").first
    expect(total).to_contain_text("sum of")
    launches = sum(int(text.split()[0]) for text in column(page, "launches"))
    expect(total).to_contain_text(f"{launches:,}")


def test_a_subgraph_is_not_added_to_its_kernels(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    with open_trace(synthetic.recorded().write(tmp_path / "recorded.log")) as trace, serving(trace) as where:
        for path in ("/kernels", "/graphs/0"):
            page.goto(f"{where}{path}")
            foot = page.locator("main tfoot").first.locator("tr").first
            rows = zip(column(page, "kind"), column(page, "launches"), strict=True)
            added = [int(launches.split()[0]) for kind, launches in rows if kind != "subgraph"]
            expect(foot.locator("th")).to_have_text(f"sum of {len(added)} rows")
            expect(foot.locator("td").filter(has_text=re.compile(f"^{sum(added):,}$"))).not_to_have_count(0)


def test_tables_of_a_report_sort_too(offline: Visit, trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_report(trace), "utf-8")
    page = offline.page
    page.goto(f"{path.as_uri()}#/kernels")
    page.locator("main th:visible", has_text="kernel").first.wait_for()
    sort(page, "kernel")
    assert column(page, "kernel") == sorted(column(page, "kernel"), key=str.lower)
    assert page.url.endswith("#/kernels")


@pytest.mark.parametrize("width", [1400, 700])
def test_wide_tables_scroll_within_their_box(visit: Visit, address: str, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("/kernels", "/graphs", "/graphs/0", "/steps", "/compile", "/records", "/tables"):
        page.goto(f"{address}{path}")
        main = page.locator("#main").evaluate("(main) => [main.scrollWidth, main.clientWidth]")
        assert main[0] <= main[1], path


@pytest.mark.parametrize("path", ["/", "/kernels", "/graphs", "/graphs/0", "/graphs/0/buffers", "/records", "/ranks"])
def test_no_column_is_out_of_sight(visit: Visit, address: str, path: str) -> None:
    page = visit.page
    for width in (1400, 900, 700):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{address}{path}")
        visit.settle()
        wide = page.locator(".scroll:visible").evaluate_all(
            "(all) => all.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent.trim())"
        )
        assert wide == [], width


def test_a_stacked_table_names_each_cell_and_sorts(visit: Visit, address: str) -> None:
    page = visit.page
    page.set_viewport_size({"width": 700, "height": 900})
    page.goto(f"{address}/kernels")
    cell = page.locator("main table.stacked tbody tr").first.locator("td").nth(4)
    assert cell.evaluate("(cell) => getComputedStyle(cell, '::before').content") == '"launches "'
    totals = (
        page.locator("main table.stacked tfoot tr")
        .first.locator("th, td")
        .evaluate_all(
            "(all) => all.filter((c) => c.checkVisibility()).map((c) => [c.dataset.label ?? '', c.textContent])"
        )
    )
    assert [name for name, _ in totals][:2] == ["", "launches"]
    assert all(text for _, text in totals)
    sort(page, "launches")
    expect(page.locator("main th", has_text="launches").first).to_have_attribute("aria-sort", "descending")
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(page.locator("main table.stacked")).to_have_count(0)
