"""What a command imports before it answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from stepscope.viewer.findings import KINDS, evidence
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.web import frame
from tests.logs.synthetic import LogBuilder, compile_records
from tests.viewer.client import Client
from tests.waiting import PATIENCE_S

_FIRST_PAGE = """
import asyncio, sys
from stepscope.viewer.web import server
from stepscope.viewer.web.app import create_app
from stepscope.viewer.store.open import open_trace

async def ask(app, path):
    sent = []
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"127.0.0.1")]}
    async def send(message): sent.append(message)
    await app(scope, None, send)
    return sent[0]["status"], sent[1]["body"]

with open_trace(sys.argv[1]) as trace:
    loaded = []
    app = create_app(trace)
    front = app.app
    front._warm = lambda: None
    for path in ("/", "/static/js/core/page.js", "/static/css/stepscope.css"):
        status, body = asyncio.run(ask(app, path))
        assert status == 200 and body, path
packages = {name.partition(".")[0] for name in sys.modules}
print(*sorted(packages | {name for name in sys.modules if name.startswith("stepscope.")}))
"""
_SEARCH = "import sys; from stepscope.viewer.cli import main\ntry: main()\nfinally: print(*sys.modules)"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_records(LogBuilder()).write(tmp_path_factory.mktemp("trace") / "plain.log")


def said(code: str, *words: str) -> list[str]:
    """What a Python of its own prints last."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.slow
def test_the_first_page_waits_for_no_other_page(log: Path) -> None:
    modules = said(_FIRST_PAGE, str(log))
    assert "stepscope.viewer.overview.page" in modules
    late = {
        "starlette",
        "fastapi",
        "pydantic",
        "stepscope.viewer.steps.page",
        "stepscope.viewer.findings.values.nonfinite",
    }
    if hasattr(duckdb.DuckDBPyConnection, "appender"):  # older versions take rows by numpy only
        late.add("numpy")
    assert not late & {*modules}


def test_a_command_waits_for_no_pydantic(log: Path) -> None:
    modules = said(_SEARCH, "search", str(log), "graph")
    assert "stepscope.viewer.search.queries.search" in modules
    assert "pydantic" not in modules


def test_a_command_waits_for_no_other_command(log: Path) -> None:
    modules = said(_SEARCH, "search", str(log), "graph")
    assert "stepscope.viewer.cli.ask" in modules
    assert not {"stepscope.viewer.cli.recording", "stepscope.viewer.cli.reading"} & {*modules}


def test_a_first_page_that_fails_says_so(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("x")

    with open_trace(log) as trace:
        client = Client(trace)
        monkeypatch.setattr(frame, "frame", broken)
        answer = client.get("/")
        assert (answer.status_code, answer.json()["error"]) == (500, "This page could not be created (ValueError: x).")
        monkeypatch.undo()
        assert client.get("/").status_code == 200


def test_methods_of_the_first_page(log: Path) -> None:
    with open_trace(log) as trace:
        client = Client(trace)
        assert client.get("/", method="HEAD").headers["content-length"] == str(len(client.get("/").content))
        assert client.get("/", method="POST").status_code == 405
        assert client.get("/static/js/nothing.js").status_code == 404


def test_every_kind_of_finding_is_a_module_with_its_rule() -> None:
    folder = Path(evidence.__file__).parent
    for kind in KINDS:
        (module,) = folder.rglob(f"{kind}.py")
        assert "def find(evidence: Evidence)" in module.read_text()
