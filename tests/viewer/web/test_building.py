"""While an index is built, every page says how far it is; then the page that was asked for is there."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import cast

import httpx
import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest import logs
from stepscope.viewer.store import open_in_background as background
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.open_in_background import Building, HowFar
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.building import BuildingApp
from tests.logs.synthetic import recorded
from tests.waiting import PATIENCE_S, wait_for

ORIGIN = "http://127.0.0.1:8686"


class Paused:
    """An index that is done when the test says so."""

    def __init__(self, path: Path) -> None:
        self.how_far = HowFar()
        self.done = Event()
        self._path = path

    def open(self) -> Trace:
        assert self.done.wait(PATIENCE_S)
        return open_trace(self._path)

    def stop(self) -> None:
        self.done.set()


@contextmanager
def serving(paused: Paused) -> Iterator[tuple[BuildingApp, Event]]:
    """Yield the application, and the event that is set when it asks the server to stop."""
    stopped = Event()
    app = BuildingApp(cast(Building, paused))
    app.start(stopped.set)
    try:
        yield app, stopped
    finally:
        app.close()


def get(app: BuildingApp, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN) as client:
            return await client.get(path)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(ask())).result()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return recorded().write(tmp_path / "stepscope_trace_0.log")


def test_the_page_and_its_twin_say_how_far_the_index_is(log: Path) -> None:
    paused = Paused(log)
    with serving(paused) as (app, _):
        paused.how_far = HowFar("reading 581 of 2,324 MB of logs", 581_000_000, 2_324_000_000)
        page, twin, asked = get(app, "/steps/0"), get(app, "/steps/0.json"), get(app, "/building.json")
        assert (page.status_code, twin.status_code, asked.status_code) == (503, 503, 200)
        assert "reading 581 of 2,324 MB of logs" in page.text
        assert "25 %" in page.text
        assert re.search(r'<progress [^>]*value="0.25"', page.text)
        assert '<noscript><meta http-equiv="refresh"' in page.text
        assert twin.headers["retry-after"] == "1"
        expected = {"what": paused.how_far.what, "done": 581_000_000, "total": 2_324_000_000, "share": 0.25}
        assert twin.json()["building"] == asked.json()["building"] == expected
        for asset in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
            assert get(app, asset).status_code == 200, asset
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_a_share_that_is_not_known_is_not_shown(log: Path) -> None:
    with serving(Paused(log)) as (app, _):
        page = get(app, "/").text
        assert "finding the logs" in page
        assert "value=" not in page
        assert " %" not in page
        assert get(app, "/index.json").json()["building"]["share"] is None


def test_the_page_that_was_asked_for_appears(log: Path) -> None:
    paused = Paused(log)
    with serving(paused) as (app, stopped):
        assert get(app, "/steps").status_code == 503
        paused.done.set()
        deadline = time.monotonic() + PATIENCE_S
        while get(app, "/steps").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert get(app, "/building.json").status_code == 404
        assert not stopped.is_set()


def test_a_trace_that_cannot_be_opened_ends_the_server_with_its_reason(tmp_path: Path) -> None:
    paused = Paused(tmp_path / "missing.log")
    with serving(paused) as (app, stopped):
        paused.done.set()
        assert stopped.wait(PATIENCE_S)
        assert isinstance(app.error, StepscopeError)
        assert "missing.log" in str(app.error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_another_process_tells_how_far_it_is(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "AT_ONCE_BYTES", 0)
    building = Building(log, lambda trace: None)
    assert building.has_ended(PATIENCE_S)
    assert building.how_far.what == "looking for what is wrong"
    trace = building.open()
    assert trace is not None
    with trace:
        assert trace.index_bytes > 0
    monkeypatch.setattr(background, "PATIENCE_S", 0.0)
    other = log.rename(log.with_name("stepscope_trace_1.log"))
    found = background.open_in_background(other, lambda: None, lambda trace: time.sleep(PATIENCE_S))
    assert isinstance(found, Building)
    found.stop()
    assert found.has_ended(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ending_the_server_ends_the_building_and_reads_nothing_again(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Path]()

    def never_done(path: Path) -> None:
        opened.append(path)
        time.sleep(PATIENCE_S)

    monkeypatch.setattr(background, "_open", never_done)
    building = Building(log, lambda trace: None)
    app = BuildingApp(building)
    app.start(lambda: None)
    os.kill(building._child, signal.SIGINT)  # Ctrl-C reaches both processes
    assert not building.has_ended(0.2)
    app.close()
    assert building.has_ended(0)
    assert not opened
    assert app.error is None


DIES_WHILE_IT_BUILDS = """
import sys, time
from pathlib import Path
from stepscope.viewer.store.open_in_background import Building
building = Building(Path(sys.argv[1]), lambda trace: time.sleep(600))
print(building._child, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_building_ends_with_a_process_that_is_killed(log: Path) -> None:
    command = [sys.executable, "-c", DIES_WHILE_IT_BUILDS, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert runs(child)
        parent.kill()
    wait_for(lambda: not runs(child))


def runs(process: int) -> bool:
    """Return whether a process is there and not a zombie that nobody waits for."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
