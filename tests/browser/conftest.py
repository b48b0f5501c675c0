"""A real Chromium on a real server; anything it says on the console or asks of another machine fails the test."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import uvicorn

from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.app import create_app
from stepscope.viewer.web.server import listen
from tests.logs import synthetic
from tests.logs.demo import record_demo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Request

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOCAL = {"127.0.0.1", "localhost", ""}
PATIENCE_S = 60.0
"""How long a page may take for what is expected of it: longer than a busy machine needs."""
PUT_OFF = "() => new Promise((done) => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 100))"
"""Comes behind what scripts put off for less than a tenth of a second, and behind the next frame."""


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("STEPSCOPE_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    path = chromium()
    if path is None:
        pytest.skip("no Chromium is installed")
    expect.set_options(timeout=1000 * PATIENCE_S)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A tab that remembers what went wrong in it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    under_way: set[Request] = field(default_factory=set)

    def watch(self) -> None:
        self.page.on("console", lambda message: self.complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        self.page.on("request", self.begin)
        self.page.on("requestfinished", lambda request: self.under_way.discard(request))
        self.page.on("requestfailed", lambda request: self.under_way.discard(request))
        self.page.on("dialog", self.refuse)

    def complain(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(f"console {kind}: {text}")

    def refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def begin(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"data", "blob", "file"}:
            return
        self.under_way.add(request)
        if parts.hostname not in LOCAL:
            self.complaints.append(f"request to another machine: {request.url}")

    def settle(self) -> None:
        """Waits until no request is under way and the scripts of the page have done what they put off."""
        deadline = time.monotonic() + PATIENCE_S
        is_quiet = False
        while not is_quiet:
            assert time.monotonic() < deadline, [request.url for request in self.under_way]
            was_quiet = not self.under_way
            self.page.evaluate(PUT_OFF)
            is_quiet = was_quiet and not self.under_way


@contextmanager
def visiting(browser: Browser, offline: bool) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=offline)
    context.set_default_timeout(1000 * PATIENCE_S)
    found = Visit(context.new_page())
    found.watch()
    yield found
    context.close()
    assert not found.complaints


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    with visiting(browser, offline=False) as found:
        yield found


@pytest.fixture
def offline(browser: Browser) -> Iterator[Visit]:
    with visiting(browser, offline=True) as found:
        yield found


@pytest.fixture(scope="session")
def demo_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recording of the demo."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("demo")
    record_demo(folder)
    return folder


@pytest.fixture(scope="session", params=["synthetic", pytest.param("demo", marks=pytest.mark.slow)])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    if request.param == "synthetic":
        folder = tmp_path_factory.mktemp("synthetic")
        synthetic.recorded(steps=4).write(folder / "recorded.log")
    else:
        folder = request.getfixturevalue("demo_logs")
    with open_trace(folder) as opened:
        yield opened


@contextmanager
def serving(trace: Trace) -> Iterator[str]:
    """Serves the dashboard of a trace; its address."""
    with listen(0) as bound:
        config = uvicorn.Config(
            create_app(trace), loop="asyncio", http="h11", ws="none", lifespan="off", log_level="error"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        thread.join(PATIENCE_S)


@pytest.fixture(scope="session")
def address(trace: Trace) -> Iterator[str]:
    """Where the dashboard of the trace is served."""
    with serving(trace) as where:
        yield where


LAUNCH = re.compile(r"launch (\d+) of step")


def launch_in_panel(page: Page) -> int:
    """Return the number of the launch that the panel shows, once it shows one."""
    found = LAUNCH.search(page.locator("#panel").get_by_text(LAUNCH).inner_text())
    assert found is not None
    return int(found[1])
