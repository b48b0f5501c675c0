"""Logs with a script in every text, in a real browser: no page runs it, asks elsewhere or breaks the policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.viewer.report.write import render_report
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.browser.conftest import Visit, serving
from tests.logs.hostile import hostile_logs, log_of
from tests.logs.poisoned import write_poisoned
from tests.viewer.client import Client
from tests.viewer.crawling import EVERY_PAGE, crawl, visits

pytestmark = pytest.mark.browser
START = (*EVERY_PAGE, "/search?text=alert", "/sql?query=FROM records", "/compile/0_0/provenance?log=2")
RAN = "() => document.querySelectorAll('img, iframe, object, embed').length"


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(write_poisoned(tmp_path_factory.mktemp("poisoned"))) as trace:
        yield trace


@pytest.mark.slow
def test_no_page_runs_what_a_log_holds(visit: Visit, poisoned: Trace) -> None:
    client = Client(poisoned)
    found = visits(list(crawl(client, each=2, most=110, start=START)))
    addresses = [address for of_page in found.values() for address in of_page[-1:]]
    assert len(addresses) == len(found)
    with serving(poisoned) as where:
        for address in addresses:
            answer = visit.page.goto(where + address)
            assert answer is not None
            assert answer.status == 200, address
            visit.settle()
            assert visit.page.evaluate(RAN) == 0, address
            assert visit.complaints == [], address


def test_what_a_script_builds_is_text_too(visit: Visit, poisoned: Trace) -> None:
    """Panels, the list of the search field, pieces that come later."""
    page = visit.page
    with serving(poisoned) as where:
        page.goto(f"{where}/steps/5?log=0&launch=22")
        page.locator("#panel h2").wait_for()
        expect(page.locator("#panel")).to_contain_text("alert(1)", use_inner_text=True)
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("alert")
        page.locator('[role="option"]').first.wait_for()
        assert page.evaluate(RAN) == 0
        page.goto(f"{where}/search?text=onerror")
        page.locator("mark", has_text="onerror").first.wait_for()
        visit.settle()
        assert page.evaluate(RAN) == 0
        page.goto(f"{where}/compile/0_0/provenance?log=2")
        page.locator(".pane .line").first.click()
        visit.settle()
        assert page.evaluate(RAN) == 0


@pytest.mark.slow
def test_the_report_runs_nothing(offline: Visit, poisoned: Trace, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_report(poisoned), "utf-8")
    offline.page.goto(path.as_uri())
    offline.page.locator(".page.shown h1").wait_for()
    for route in offline.page.locator(".page[data-route]").evaluate_all("(all) => all.map((one) => one.dataset.route)"):
        address = route if route.startswith("/") else "/nowhere"  # shows the page for what was left out
        offline.page.evaluate("(address) => { location.hash = '#' + address }", address)
        expect(offline.page.locator(".page.shown")).to_have_attribute("data-route", route)
    offline.settle()
    assert offline.page.evaluate(RAN) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scripts", "links", "nul_bytes"])
def test_records_that_are_no_records(visit: Visit, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.log").write_bytes(log_of(hostile_logs()[name]))
    with open_trace(tmp_path / "x.log") as trace, serving(trace) as where:
        for address in ("/", "/problems", "/compile", "/records", "/metrics", "/compile-time", "/records/40"):
            visit.page.goto(where + address)
            visit.settle()
            assert visit.page.evaluate(RAN) == 0, address
