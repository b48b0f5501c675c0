"""What another site's page, or a name that it has pointed here, can ask of the server: nothing. HEAD is answered like
GET, and a client that goes takes its statement with it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import uvicorn

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.search import ask as asking
from stepscope.viewer.search.ask import ask
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.app import create_app
from stepscope.viewer.web.server import configure, listen
from tests.logs.synthetic import recorded
from tests.viewer.client import Client
from tests.waiting import PATIENCE_S, wait_for

SLOW = "SELECT count(*) FROM range(10000000000) a, range(1000000) b"
OWN = "http://127.0.0.1:8686"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(recorded(steps=2).write(tmp_path_factory.mktemp("log") / "x.log")) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(trace: Trace) -> Client:
    return Client(trace)


@pytest.fixture
def port(trace: Trace) -> Iterator[int]:
    """Of a server."""
    with listen(0) as bound:
        server = uvicorn.Server(configure(create_app(trace)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        yield int(bound.getsockname()[1])
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8686"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8686"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/sql?query=SELECT 1", "/sql.json?query=SELECT 1", "/static/js/core/page.js"])
def test_other_sites_are_refused(client: Client, path: str, headers: dict[str, str]) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("Another site made this request")


@pytest.mark.parametrize(
    "headers", [{}, {"origin": OWN}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}]
)
def test_its_own_pages_are_answered(client: Client, headers: dict[str, str]) -> None:
    assert client.get("/sql.json?query=SELECT 1", headers=headers).json()["answer"]["rows"] == [[1]]


@pytest.mark.parametrize(
    "host",
    ["192.168.0.1", "10.0.0.1:8686", "localhost.", "127.0.0.1.", "127.1", "0.0.0.0:8686", "[::]:8686", "me@localhost",
     "localhost:", "localhost:8686:1", "localhost:x", "127.0.0.1:8686 evil.example"],
)  # fmt: skip
def test_only_names_of_this_machine_are_answered(client: Client, host: str) -> None:
    assert client.get("/problems", host=host).status_code == 400


def test_through_a_tunnel_the_port_is_another(client: Client) -> None:
    headers = {"origin": "http://localhost:1234", "sec-fetch-site": "same-origin"}
    assert client.get("/problems", host="localhost:1234", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_is_sent_to_it(client: Client, method: str) -> None:
    answer = client.get("/sql?query=SELECT 1", method=method)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    ["/", "/problems", "/problems.json", "/summary.json", "/index.json", "/openapi.json", "/static/js/core/page.js",
     "/records/0/raw", "/tables/logs/csv", "/steps/0", "/steps/0.json", "/launches/0", "/nothing", "/nothing.json"],
)  # fmt: skip
def test_head_is_answered_like_get(client: Client, path: str) -> None:
    get, head = (client.get(path, method=method) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert dict(head.headers) == dict(get.headers)


@pytest.mark.slow
def test_an_answer_is_bounded(trace: Trace) -> None:
    long = ask(trace, "SELECT repeat('é', 300000) AS a FROM range(1000)", seconds=600)
    assert long.more
    assert long.cut == len(long.rows)
    assert long.rows[0][0].endswith("… (300,000 characters)")
    assert len(json.dumps(long.rows, ensure_ascii=False).encode()) < 1.5 * asking.ANSWER_BYTES
    wide = ask(trace, "SELECT " + ", ".join(f"{i} AS c{i}" for i in range(2000)) + " FROM range(1000)", seconds=600)
    assert wide.more
    assert sum(map(len, wide.rows)) * 8 <= asking.ANSWER_BYTES + 2000 * 8


@pytest.mark.parametrize(
    "statement",
    ["SELECT repeat('x', 4000000000)", "SELECT list(x) FROM range(1000000000) t(x)", "SELECT repeat('x', 900000000)"],
)
def test_memory_is_bounded(trace: Trace, statement: str) -> None:
    with pytest.raises(StepscopeError, match="more memory than 100"):
        ask(trace, statement, memory_bytes=10**8, seconds=600)


def test_now_is_answered_as_text(trace: Trace) -> None:
    answer = ask(trace, "SELECT now() AS a, 1 AS b, 2 AS b, [current_timestamp], now() - INTERVAL 1 DAY -- a comment")
    assert answer.columns[:3] == ["a", "b", "b"]
    assert answer.rows[0][0].startswith("20")
    assert answer.rows[0][1:3] == [1, 2]


@pytest.mark.slow
def test_no_file_is_read_not_even_the_index(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "spilled.csv").write_text("a\n1\n")
    for name in (trace.index, "/proc/self/environ", tmp_path / "spilled.csv", tmp_path / "*", ".tmp/x"):
        for function in ("read_text", "read_blob", "glob", "read_csv"):
            if (name, function) == (trace.index, "glob"):  # its own name is all that this tells
                continue
            with pytest.raises(StepscopeError):
                ask(trace, f"SELECT * FROM {function}('{name}')")
    assert ask(trace, "SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'").rows == [[""]]


def test_statements_wait_for_a_place(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_PLACES", threading.BoundedSemaphore(1))
    place = asking._place(asking._Wait(threading.Event()), 1)
    with place, pytest.raises(StepscopeError, match="are still running"):
        ask(trace, "SELECT 1", seconds=0.1)
    assert ask(trace, "SELECT 1").rows == [[1]]


def test_a_process_that_dies_is_told_in_a_sentence(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_BOOT", "import os; os.abort()")
    with pytest.raises(StepscopeError, match="more memory"):
        ask(trace, "SELECT 1")


def children() -> set[str]:
    """Processes of this one that run a statement."""
    found = subprocess.run(["ps", "-ww", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True)
    return {line for line in found.stdout.splitlines() if "sql_process" in line}


def test_a_client_that_goes_takes_its_statement_with_it(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SECONDS", 3600.0)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"GET /sql?query={quote(SLOW)} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        wait_for(children)
    wait_for(lambda: not children())


def test_pages_are_answered_while_statements_run(port: int) -> None:
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
    for client in clients:
        client.sendall(f"GET /sql?query={quote(SLOW)} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
    wait_for(children)
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    asked.request("GET", "/problems")
    assert asked.getresponse().status == 200
    asked.close()
    for client in clients:
        client.close()
    wait_for(lambda: not children())
