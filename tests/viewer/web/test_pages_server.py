"""Where the dashboard listens, and when it opens a browser."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.web import server
from tests.logs.synthetic import LogBuilder, compile_records
from tests.waiting import PATIENCE_S, wait_for


@pytest.fixture
def kept() -> Iterator[int]:
    """A port that one who asks for it can have, and that nobody gets who asks for any."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


def test_a_taken_default_port_gives_way_to_a_free_one(
    kept: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "DEFAULT_PORT", kept)
    with server.listen(kept) as first:
        assert capsys.readouterr().err == ""
        with server.listen(kept) as second:
            assert first.getsockname()[1] == kept
            assert second.getsockname()[1] not in {0, kept}
    assert capsys.readouterr().err == f"stepscope: The port {kept} is in use, so a free one is taken.\n"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--open",)], ids=["plain", "open"])
def test_a_browser_is_opened_only_with_the_option(options: tuple[str, ...], tmp_path: Path) -> None:
    """A command stands in for the browser, as a user's variable BROWSER names one."""
    log = compile_records(LogBuilder()).write(tmp_path / "plain.log")
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "stepscope", "serve", str(log), "--port", "0", *options]
    environment = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address is not None
            if options:
                wait_for(opened.exists)
                assert opened.read_text() == f"{address[0]}\n"
            else:
                with urllib.request.urlopen(address[0], timeout=PATIENCE_S) as page:
                    assert page.status == 200
        finally:
            process.kill()
    assert opened.exists() == bool(options)


def test_a_port_that_was_asked_for_is_not_changed(kept: int) -> None:
    with (
        server.listen(kept),
        pytest.raises(StepscopeError, match=f"The port 127.0.0.1:{kept} cannot be opened"),
    ):
        server.listen(kept)
