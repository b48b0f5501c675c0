"""Pages lead to what they name: artifacts to their graphs, buffers to writers and readers, lines to their launches."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import training
from tests.logs.named_logs import named_training
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

Opened = Callable[[LogBuilder | bytes], Trace]


@pytest.fixture
def trace(opened: Opened) -> Trace:
    return opened(named_training(2))


def facts(page: str) -> dict[str, str]:
    found = re.findall(r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", page, re.DOTALL)
    return {re.sub(r"<[^>]+>", "", name).strip(): content for name, content in found}


@pytest.mark.parametrize(
    ("event", "graphs"),
    [
        ("aot_forward_graph", ["/graphs/0"]),  # of its phase
        ("dynamo_output_graph", ["/graphs/0", "/graphs/1"]),
        ("stepscope_output_code_0", ["/graphs/0"]),  # the code of this graph
    ],
)
def test_an_artifact_leads_to_its_graphs(trace: Trace, event: str, graphs: list[str]) -> None:
    record = sql.number(trace, "SELECT record FROM records WHERE event = $1 OR name = $1", [event])
    shown = facts(Client(trace).get(f"/records/{record}").text)
    assert re.findall(r'href="([^"]+)"', shown["graph" if len(graphs) == 1 else "graphs"]) == graphs


def test_a_buffer_leads_to_its_writer_and_its_readers(trace: Trace) -> None:
    shown = facts(Client(trace).get("/graphs/0/buffers/buf1").text)
    assert 'href="/kernels/cpp_fused_relu_0"' in shown["written by"]
    assert 'href="/kernels/cpp_fused_mean_1"' in shown["read by"]


def test_a_line_leads_to_its_launches(opened: Opened) -> None:
    client = Client(opened(training(3)))
    page = client.get("/sites?name=model.py:11").text
    launches = re.findall(r"launch=(\d+)", page)
    known = client.get("/sites.json?name=model.py:11").json()
    assert launches == [str(row["launch"]) for row in known["launches"]]
    assert len(launches) == known["total_launches"] == 6, "line 11 is of two sites, and each ran in three steps"
    for launch in launches:
        assert client.get(f"/launches/{launch}.json").json()["launch"]["site"]["stacks"][0][-1]["line"] == 11
