"""The plot of several series over named points: what the cursor reads, a drag that looks closer, keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit, serving
from tests.logs import overflow_log

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOUNT = """async () => {
    const { Plot } = await import("#js/core/plot.js");
    const { formatBytes, thousands } = await import("#js/core/format.js");
    const box = Object.assign(document.createElement("div"), { className: "plot" });
    document.querySelector("main").replaceChildren(box);
    const count = 200;
    const points = Array.from({ length: count }, (_, n) => n);
    const data = {
        label: "Live bytes",
        names: points.map((n) => `op${n}`),
        series: [
            { name: "after alloc", values: points.map((n) => 4000 * (n < 100 ? n : count - n)), stepped: true },
            {
                name: "after free", dash: "dashed", colour: "info",
                values: points.map((n) => (n === 7 ? null : 3000 * n)),
            },
            { name: "base", values: points.map(() => 90000), filled: true, colour: "muted" },
        ],
        markers: [{ index: 100, series: 0, name: "peak" }],
    };
    window.told = { opened: [], views: [] };
    window.plot = new Plot(box, data, {
        format: formatBytes, exact: (value) => `${formatBytes(value)} (${thousands(value)} bytes)`,
        open: (index) => told.opened.push(index), remember: (view) => told.views.push(view),
    });
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = overflow_log.recorded(2).write(tmp_path_factory.mktemp("series") / "values.log")
    with open_trace(path) as trace, serving(trace) as where:
        yield where


def test_a_plot_of_several_series(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(served)
    page.evaluate(MOUNT)
    tip, picture = page.locator(".plot .tip"), page.locator(".plot .picture")
    picture.focus()
    page.keyboard.press("Home")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    lines = [
        "op7",
        "after alloc: 28.0 kB (28,000 bytes)",
        "after free: – (not recorded)",
        "base: 90.0 kB (90,000 bytes)",
    ]
    expect(tip.locator("> *")).to_have_text(lines)
    box: Any = page.locator(".plot").bounding_box()
    middle, y = box["x"] + 72 + (box["width"] - 88) / 2, box["y"] + 120
    page.mouse.move(middle - 100, y)
    page.mouse.down()
    page.mouse.move(middle + 100, y, steps=4)
    page.mouse.up()
    page.wait_for_function("told.views.length > 0")
    (first, last) = page.evaluate("told.views.at(-1)")
    assert 60 < first < 100 < last < 140
    page.mouse.move(middle, y)
    page.mouse.click(middle, y)
    page.wait_for_function("told.opened.length > 0")
    (opened,) = page.evaluate("told.opened")
    assert first < opened < last
    picture.focus()
    page.keyboard.press("Home")
    expect(tip.locator("strong")).to_have_text("op0")
    page.keyboard.press("0")
    page.wait_for_function("told.views.at(-1) === null")
    page.evaluate("plot.moveTo(100)")
    expect(tip).to_have_text(re.compile("▼ peak$"))
