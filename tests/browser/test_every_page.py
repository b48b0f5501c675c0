"""Every page at three widths: nothing overflows, and scripts stay small.

Axe finds no serious fault in either theme. It is asked once about each kind of page, as all traces share the templates.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from stepscope.viewer.store.open import open_trace
from stepscope.viewer.web import assets
from tests.browser.addresses import Kind, every_page, kind_of
from tests.browser.conftest import PUT_OFF, Visit, serving, visiting
from tests.logs.rich import write_rich

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHECKS = Path(__file__).with_name("page_checks.js")
WIDTHS = (1400, 900, 700)
MOST_SCRIPT_BYTES = 60_000
SERIOUS = {"serious", "critical"}
ALIKE = ["tbody tr:nth-child(n+20)", ".code .line:nth-child(n+20)", ".chain:nth-child(n+20)"]
"""Rows and lines that look like those before them; axe would need seconds for them."""
OF_COLOURS_AND_WIDTH = ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]
"""Rules whose result differs in the dark theme or in a narrow window."""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
AXE = """async ([exclude, rules]) => {
    const only = rules ? { runOnly: { type: "rule", values: rules } } : {};
    const { violations } = await axe.run({ exclude }, { resultTypes: ["violations"], ...only });
    const told = (rule) => (node) => [rule.impact, `${rule.id}: ${node.html.slice(0, 200)}: ${node.failureSummary}`];
    return violations.flatMap((rule) => rule.nodes.map(told(rule)));
}"""


@dataclass
class Look:
    """What was seen on one page."""

    violations: list[str] | None = None
    """What axe found; None: it was asked about a page of this kind in another trace."""
    faults: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def asked() -> set[Kind]:
    """The kinds of pages about which axe was asked."""
    return set()


@pytest.fixture(scope="module", params=["rich", "demo"])
def looks(
    request: pytest.FixtureRequest, browser: Browser, asked: set[Kind], tmp_path_factory: Any
) -> Iterator[dict[str, Look]]:
    """Each page, loaded once; the window and the theme then change in place."""
    is_demo = request.param == "demo"
    folder = request.getfixturevalue("demo_logs") if is_demo else write_rich(tmp_path_factory.mktemp("rich"))
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    with open_trace(folder) as trace, serving(trace) as root, visiting(browser, offline=False) as visit:
        pages = {address: kind_of(address) for address in every_page(root)}
        seen = {address: look(visit, root + address, None if kind in asked else axe) for address, kind in pages.items()}
        asked.update(pages.values())
        yield seen


def look(visit: Visit, address: str, axe: str | None) -> Look:
    page, seen = visit.page, Look()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.goto(address)
    visit.settle()
    seen.scripts = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    if axe is not None:
        page.evaluate(axe)
        seen.violations = violations(page, None)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(DRAWN)
        found: dict[str, list[str]] = page.evaluate(CHECKS.read_text("utf-8"))
        seen.faults += [f"{width} px, {kind}: {fault}" for kind, faults in found.items() for fault in faults]
    if seen.violations is not None:
        page.emulate_media(color_scheme="dark")
        page.evaluate(PUT_OFF)
        seen.violations += [f"dark: {text}" for text in violations(page, OF_COLOURS_AND_WIDTH)]
    return seen


def violations(page: Page, rules: list[str] | None) -> list[str]:
    return [text for impact, text in page.evaluate(AXE, [ALIKE, rules]) if impact in SERIOUS]


def listed(found: dict[str, list[str]]) -> str:
    return json.dumps({address: texts for address, texts in found.items() if texts}, indent=1, ensure_ascii=False)


def test_axe_finds_nothing_serious(looks: dict[str, Look], asked: set[Kind]) -> None:
    assert {kind_of(address) for address in looks} <= asked
    assert listed({address: seen.violations or [] for address, seen in looks.items()}) == "{}"


def test_nothing_overflows_is_clipped_or_overlaps(looks: dict[str, Look]) -> None:
    assert listed({address: seen.faults for address, seen in looks.items()}) == "{}"


def test_a_page_loads_little_script(looks: dict[str, Look]) -> None:
    sizes = {address: sum(map(packed, seen.scripts)) for address, seen in looks.items()}
    assert {address: size for address, size in sizes.items() if size > MOST_SCRIPT_BYTES} == {}
    assert min(sizes.values()) > 1000


def packed(url: str) -> int:
    """Return the size of a script after gzip, 0 for what is no script."""
    name = urlsplit(url).path.removeprefix("/static/")
    return len(gzip.compress(assets.content(name))) if name.endswith(".js") else 0


def test_the_pages_cover_most_routes(looks: dict[str, Look]) -> None:
    assert len(looks) > 30
