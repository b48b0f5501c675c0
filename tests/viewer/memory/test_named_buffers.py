"""Lists of allocations and frees have the program's names of inputs and outputs, beside those of the compiler."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from stepscope.viewer.store.trace import Trace
from tests.logs.memory_records import mismatch, recompute
from tests.logs.named_logs import WEIGHT, named_training
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

pytestmark = pytest.mark.slow


Opened = Callable[[LogBuilder | bytes], Trace]


@pytest.fixture
def client(opened: Opened) -> Client:
    return Client(opened(named_training().record(mismatch(buffer="buf2")).record(recompute(graph=0))))


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_what_a_node_allocates_and_what_is_alive(client: Client) -> None:
    page = client.get("/graphs/0/memory?snode=2&by=buffer").text
    text = text_of(page)
    assert "allocated, estimated + 64 B output 0 buf2 64 B output" in text
    assert "allocated, measured + 64 B output 0 buf2 64 B allocated" in text
    alive = text[text.index("Alive, estimated") :]
    assert "output 0 buf2 64 B" in alive
    assert re.search(rf"{re.escape(WEIGHT)} primals_1 256 B \d+\.\d % parameter", text)
    assert page.count('href="/graphs/0/buffers/buf2"') >= 3, "the list of live buffers and both lists of allocations"


def test_each_linked_buffer_has_a_page(client: Client) -> None:
    pages = (client.get(path).text for path in ("/graphs/0/memory?snode=0", "/graphs/0/memory?snode=2", "/recompute/0"))
    for address in {address for page in pages for address in re.findall(r'href="(/graphs/\d+/buffers/[^"]+)"', page)}:
        assert client.get(address).status_code == 200, address


def test_mismatches_name_the_buffer_of_the_program(client: Client) -> None:
    for path in ("/memory", "/graphs/0/memory"):
        assert "output 0 buf2" in text_of(client.get(path).text)


def test_statements_of_the_wrapper(client: Client) -> None:
    assert "allocate buf2 output 0" in text_of(client.get("/graphs/0").text)
    assert "allocate buf2 output 0" in text_of(client.get("/graphs/0/buffers/buf2").text)


def test_nodes_of_a_recompute_mismatch_lead_to_the_memory_of_the_graph(client: Client) -> None:
    page = client.get("/recompute/0").text
    assert '<dt>moved</dt><dd><a class="mono" href="/graphs/0/memory?snode=1">op1</a>' in page
    assert 'href="/graphs/0/buffers/buf0"' in page
    text = text_of(page)
    at_peak = text[text.index("at the peak") : text.index("found by")]
    assert "op1" in at_peak
    assert "model.py:11 line of cpp_fused_relu_0" in at_peak, "the line that the node at the peak computes"
    for address in set(re.findall(r'href="(/graphs/[^"]+)"', page)):
        assert client.get(address.replace("&amp;", "&")).status_code == 200, address


def test_nodes_of_an_unknown_graph_are_no_links(opened: Opened) -> None:
    page = Client(opened(named_training().record(recompute()))).get("/recompute/0").text
    assert '<dt>moved</dt><dd><span class="mono">op1</span>' in page
