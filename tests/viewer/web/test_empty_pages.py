"""A page that has nothing to show says which command records it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, recorded
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs

Open = Callable[[LogBuilder | bytes], Trace]
PAGES = (
    "/", "/steps", "/graphs", "/graphs/0", "/graphs/0/buffers", "/graphs/0/memory", "/kernels", "/values", "/memory",
    "/compile", "/graph-breaks", "/recompiles", "/caches", "/cuda-graphs", "/metrics", "/compile-time",
    "/draft-export", "/vllm", "/ranks",
)  # fmt: skip
GOOD = {"No recompiles", "No graph breaks"}
"""Titles of what a program without these faults shows."""


def empties(client: Client, path: str) -> dict[str, str]:
    """The commands of the empty sections of a page, by title."""
    page = client.get(path).text
    found = re.findall(r'(?s)<div class="empty">\s*<p class="empty-title">(.*?)</p>(.*?)</div>', page)
    commands = {title: re.search(r'(?s)<pre class="command" tabindex="0">(.*?)</pre>', rest) for title, rest in found}
    return {title: html.unescape(command[1]) if command else "" for title, command in commands.items()}


def check(client: Client) -> dict[str, dict[str, str]]:
    found = {path: empties(client, path) for path in PAGES}
    assert [
        (path, title) for path, of in found.items() for title, how in of.items() if not how and title not in GOOD
    ] == []
    return found


def test_a_log_of_the_level_launches(opened: Open) -> None:
    client = Client(opened(recorded()))
    found = check(client)
    assert found["/values"] == {"No values in this trace": "stepscope run --level values -- python train.py"}
    assert found["/graphs/0/memory"] == {
        "The memory of this graph was not recorded": "stepscope run -- python train.py"
    }
    command = "<code>stepscope run --level values -- python train.py</code>"
    values = f"Values were not recorded. To record them, run {command}"
    for path in ("/kernels", "/graphs/0/buffers", "/graphs/0/buffers/buf0"):
        assert values in client.get(path).text, path
    assert "stepscope run --lifetimes log" in client.get("/memory").text


def test_a_log_without_provenance(opened: Open) -> None:
    plain = LogBuilder()
    plain.raw(b"".join(part for part in _parts(recorded().data) if b"stepscope_provenance" not in part))
    text = Client(opened(plain)).get("/graphs/0").text
    assert "<code>stepscope run --provenance -- python train.py</code>" in text


def _parts(data: bytes) -> list[bytes]:
    return re.split(rb"(?m)^(?=V)", data)


def test_a_log_without_a_compile(opened: Open) -> None:
    found = check(Client(opened(LogBuilder().torch("str", ["/src/model.py", 7]))))
    for path in ("/compile", "/graph-breaks", "/recompiles", "/caches", "/metrics", "/compile-time", "/graphs"):
        assert any("stepscope run" in command for command in found[path].values()), path


def test_a_log_without_launch_sites(opened: Open) -> None:
    client = Client(opened(LogBuilder().torch("str", ["/src/model.py", 7])))
    assert empties(client, "/sites?name=mm") == {"No launches in this trace": "stepscope run -- python train.py"}


@pytest.mark.slow
@pytest.mark.skipif(sample_logs() is None, reason="no sample logs")
@pytest.mark.parametrize("name", ["simple.log", "comp_failure.log", "export.log", "multi_rank_logs"])
def test_logs_that_pytorch_wrote(name: str, tmp_path: Path) -> None:
    folder = sample_logs()
    assert folder is not None
    with open_trace(folder / name, index_dir=tmp_path) as trace:
        client = Client(trace)
        found = {path: empties(client, path) for path in PAGES if client.get(path).status_code == 200}
    assert [
        (path, title) for path, of in found.items() for title, how in of.items() if not how and title not in GOOD
    ] == []
    assert found["/steps"]["No launches in this trace"] == "stepscope run -- python train.py"
