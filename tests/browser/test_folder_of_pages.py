"""The folder of `stepscope export --to html` on a plain web server, below an address of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.viewer.exports.formats import WantedPages
from stepscope.viewer.exports.write import export
from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit
from tests.logs import memory_logs, overflow_log
from tests.logs.hostile import SCRIPT
from tests.logs.poisoned import write_poisoned

pytestmark = [pytest.mark.browser, pytest.mark.slow]
BELOW = "some/where/run-7"
"""Where the folder stands on its server."""
RAN = "() => document.querySelectorAll('img, iframe, object, embed').length"


class Quiet(SimpleHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        self.asked.append(f"{int(code)} {self.path}")

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to the terminal."""


def hosted(logs: Path, root: Path, most: int) -> Iterator[str]:
    folder = root / BELOW
    folder.parent.mkdir(parents=True)
    with open_trace(logs) as trace:
        export(trace, "html", "", folder, pages=WantedPages(most))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{BELOW}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def pages_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("logs")
    overflow_log.recorded(graphs=2, rank=0, world_size=2).write(logs / "0_overflow.log")
    memory_logs.training(keep=2, allocator=True, rank=1, world_size=2, pid=4712).write(logs / "1_memory.log")
    yield from hosted(logs, tmp_path_factory.mktemp("host"), 200)


@pytest.fixture(scope="module")
def poisoned_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("poisoned")
    yield from hosted(write_poisoned(root / "logs"), root / "host", 90)


def open_page(visit: Visit, address: str) -> None:
    answer = visit.page.goto(address)
    assert answer is not None
    assert answer.status == 200, address
    visit.settle()
    assert visit.complaints == [], address


@pytest.mark.parametrize(
    ("page", "shows"),
    [
        ("index.html", ".finding"),
        ("steps.html", "main tbody tr"),
        ("steps.1.log-0.html", ".timeline-box canvas"),
        ("graphs.html", "main tbody tr"),
        ("graphs.0.html", "table.sites"),
        ("graphs.0.memory.html", "main"),
        ("memory.log-1.html", "[data-run-memory] canvas"),
        ("kernels.html", "main tbody tr"),
        ("values.html", "[data-plot] canvas"),
        ("compile.html", "main"),
        ("records.html", "main tbody tr"),
    ],
)
def test_a_page_loads_all_that_it_needs(visit: Visit, pages_at: str, page: str, shows: str) -> None:
    Quiet.asked.clear()
    visit.page.on("request", lambda request: asked.append(request.url))
    asked: list[str] = []
    open_page(visit, pages_at + page)
    expect(visit.page.locator(shows).first).to_be_visible()
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith((pages_at, "data:"))] == []
    assert [line for line in Quiet.asked if not line.startswith(("200", "304"))] == []


def test_a_finding_leads_to_its_launch_and_keys_go_on(visit: Visit, pages_at: str) -> None:
    page = visit.page
    open_page(visit, pages_at)
    page.get_by_role("link", name=re.compile("open launch")).first.click()
    panel = page.locator("#panel")
    expect(panel).to_contain_text("Generated code")
    expect(page).to_have_url(re.compile(rf"/{BELOW}/steps\.\d+\.log-0\.html\?launch=\d+"))
    shown = panel.inner_text()
    page.keyboard.press("ArrowRight")
    expect(panel).not_to_have_text(shown)
    visit.settle()
    assert panel.locator('a[href^="/"]').count() == 0
    page.locator("#panel h2 a").click()
    expect(page).to_have_url(re.compile(rf"/{BELOW}/kernels\.[^/]+\.html"))
    expect(page.locator("h1")).to_be_visible()
    visit.settle()
    page.keyboard.press("]")
    expect(page).not_to_have_url(re.compile("kernels"))


def test_the_launches_of_an_area_are_added_up_without_a_server(visit: Visit, pages_at: str) -> None:
    page = visit.page
    open_page(visit, f"{pages_at}steps.1.log-0.html")
    page.locator(".timeline-box").click(position={"x": 200, "y": 5})
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    area = page.locator(".area")
    expect(area.locator("tbody tr")).not_to_have_count(0)
    area.get_by_role("button", name="model line").click()
    expect(area.locator(".place").first).to_contain_text(".py:")
    page.locator(".overlay-choice").select_option(index=1)
    expect(page.locator(".difference")).to_contain_text("Step 1")


def test_the_search_box_finds_pages_and_says_what_is_not_there(visit: Visit, pages_at: str) -> None:
    page = visit.page
    open_page(visit, pages_at)
    page.keyboard.press("/")
    page.keyboard.type("step 2")
    expect(page.locator('#jumps [role="option"]').first).to_contain_text("Step 2")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Step 2")
    visit.settle()
    page.keyboard.press("/")
    page.keyboard.type(">open SQL")
    expect(page.locator('#jumps [role="option"]')).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("`stepscope serve TRACE` shows it")


def test_no_page_runs_what_a_log_holds(visit: Visit, poisoned_at: str) -> None:
    open_page(visit, poisoned_at)
    files: dict[str, str] = visit.page.evaluate("async () => (await (await fetch('folder.json')).json()).files")
    for file in [file for file in files.values() if file.endswith(".html")][::4]:
        open_page(visit, poisoned_at + file)
        assert visit.page.evaluate(RAN) == 0, file
    assert "alert(1)" in SCRIPT
    open_page(visit, poisoned_at)
    visit.page.keyboard.press("/")
    visit.page.keyboard.type("alert")
    expect(visit.page.locator('#jumps [role="option"]').first).to_contain_text("alert(1)")
    assert visit.page.evaluate(RAN) == 0
